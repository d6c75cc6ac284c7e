"""Describes a path that no loader reads: its likely format, its faults, and the flags that would read it."""

from __future__ import annotations

import csv
import itertools
import pathlib
import shlex
from collections.abc import Callable, Sequence

from ps_trainer.data.foreign_files import (
    OTHER_IMAGES,
    data_dir,
    files_inside,
    foreign_file,
    option_of_file,
    other_images,
    other_text,
)
from ps_trainer.data.formats import image_folder, mnist, movielens, transcript_list
from ps_trainer.data.pipeline import parquet_rows
from ps_trainer.data.pipeline.data_folder import training_first
from ps_trainer.data.pipeline.line_source import first_lines, text_file
from ps_trainer.data.pipeline.prediction_input import SOUND_SUFFIX
from ps_trainer.data.pipeline.table_rows import Dialect, chunks, header_of, is_parquet, number_of
from ps_trainer.errors import DataError

SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "pipes", ",": "commas"}
"""Words for the characters that may separate columns; the comma is last, as it may also stand before decimals."""

_DELIMITERS = {".csv": ",", ".tsv": "\t"}  # by the suffix of a file
_NUM_ROWS = 5
_MAX_LINES = 1000
_SHOWN_COLUMNS = 8
_SOUND_WORDS = ("wav", "audio", "sound")


def describe(path: pathlib.Path) -> str | None:
    """Describes what an unknown file or folder looks like; None if it looks like nothing known.

    Raises:
        DataError: A file is named like a table and cannot be read as one.
        OSError: The path cannot be read.
    """
    found = [path] if path.is_file() else path.iterdir()
    files = training_first(file for file in found if file == path or not file.name.startswith("."))
    if not files:
        return "the folder is empty; give one with the files of a dataset"
    for look in _LOOKS:
        sentence = look(path, files)
        if sentence is not None:
            return sentence
    return None


def columns_of(path: pathlib.Path, separators: Sequence[str] = tuple(SEPARATORS)) -> tuple[str, list[str]] | None:
    """Returns the separator and the columns of the first line of a table; None if a file is not a table.

    In a table the first lines have the same number of columns, at least two. Prose has commas as well, so text needs
    two lines, and no blank after a comma that separates columns.
    """
    try:
        lines = first_lines(path, _MAX_LINES)
    except DataError:  # it is compressed and damaged
        return None
    for separator in separators:
        rows = _rows_of(lines, separator, _NUM_ROWS)
        widths = {len(row) for row in rows}
        is_prose = separator == "," and any(column.startswith(" ") for column in rows[0]) if rows else False
        if len(rows) > 1 and len(widths) == 1 and widths.pop() > 1 and not is_prose:
            return separator, rows[0]
    return None


def first_rows(path: pathlib.Path, separator: str, number: int) -> list[list[str]]:
    """Reads the first rows of a table, at most `number`; a line end inside of quotes becomes a space.

    Raises:
        DataError: The file is compressed and damaged.
    """
    return _rows_of(first_lines(path, _MAX_LINES), separator, number)


def decimal_of(rows: Sequence[Sequence[str]], separator: str) -> str:
    """Returns the character before the decimals of numbers: a comma if some have one, and none has a point."""
    values = {value.strip() for row in rows for value in row}
    has_points = any("." in value and number_of(value) is not None for value in values)
    has_commas = any("," in value and number_of(value, ",") is not None for value in values)
    return "," if has_commas and not has_points and separator != "," else "."


def is_list_of_others(file: pathlib.Path, separator: str, columns: Sequence[str]) -> bool:
    """Returns whether a table is not itself the data of a class and its features: a list of files, or ratings."""
    is_list = _is_list_of_sounds(file, separator, columns) or _is_list_of_images(file, separator)
    return is_list or _has_ratings(columns)


def _is_list_of_sounds(file: pathlib.Path, separator: str, columns: Sequence[str]) -> bool:
    second = first_rows(file, separator, 2)[1]
    has_word = any(word in name.lower() for name in columns for word in _SOUND_WORDS)
    return has_word or any(column.endswith(".wav") for column in second)


def _is_list_of_images(file: pathlib.Path, separator: str) -> bool:
    """Returns whether the first row names an image, and images lie beside the list or in folders there."""
    second = first_rows(file, separator, 2)[1]
    names_one = any(column.lower().endswith((*image_folder.SUFFIXES, *OTHER_IMAGES)) for column in second)
    return names_one and bool(files_inside(file.parent, [], (*image_folder.SUFFIXES, *OTHER_IMAGES)))


def _has_ratings(columns: Sequence[str]) -> bool:
    names = [name.lower() for name in columns]
    return any("user" in name for name in names) and any("rating" in name for name in names)


def _rows_of(lines: Sequence[str], separator: str, number: int) -> list[list[str]]:
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=separator)
    return [[value.replace("\n", " ") for value in row] for row in itertools.islice(rows, number)]


def _table(_path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    tables = {file: found for file in files if file.is_file() and (found := columns_of(file)) is not None}
    if not tables:
        return None
    file = max(tables, key=lambda file: len(tables[file][1]))  # the first of the widest
    separator, columns = tables[file]
    others = [other for other, (_, names) in tables.items() if set(names) < set(columns)]
    form = (separator, len(columns))
    tests = [
        one.name
        for one, (mark, names) in tables.items()
        if one != file and "test" in one.name and (mark, len(names)) == form
    ]
    told = f"{file.name} {_describe_table(file, separator, columns, tests)}"
    if not others:
        return told
    missing = [name for name in columns if name not in tables[others[0]][1]]
    return (
        f"{told}; {others[0].name} lacks {_first_few(missing)}: if these are the labels, give it to `ps_trainer predict"
        " --input`"
    )


def _parquet(_path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    file = next((file for file in files if file.is_file() and is_parquet(file)), None)
    if file is None:
        return None
    names, nested = parquet_rows.names_of(file), parquet_rows.nested_of(file)
    label = next((name for name in reversed(names) if name not in nested), None)
    if label is None:
        return (
            f"{file.name} is a Parquet file with lists and structs only ({_first_few(names)}); write a value a column"
        )
    return (
        f"{file.name} is a Parquet file with the columns {_first_few(names)}; read it by --dataset=parquet"
        f" {option_of_file(file)} --dataset_option=label=<column> {data_dir(file.parent)}, with the column of the"
        f" labels, such as {label}"
    )


def _unreadable_table(path: pathlib.Path, files: Sequence[pathlib.Path]) -> None:
    """Raises the DataError of dataset csv for a file that is named like a table, or empty, and cannot be read."""
    for file in files:
        suffix = pathlib.Path(file.name.removesuffix(".gz")).suffix.lower()
        if not file.is_file() or (suffix not in _DELIMITERS and (file != path or file.stat().st_size)):
            continue
        text_file(file)
        separator, columns = columns_of(file) or (_DELIMITERS[suffix], [])
        dialect = Dialect(delimiter=separator, has_header=_has_header(columns), checks_header=False)
        for _ in chunks(file, dialect, header_of(file, dialect)):
            pass


def _has_header(columns: Sequence[str]) -> bool:
    """Returns whether the first row of a table has names, as dataset csv decides it."""
    return all(number_of(column.strip()) is None for column in columns)


def _first_few(columns: Sequence[str]) -> str:
    return ", ".join(columns[:_SHOWN_COLUMNS]) + (", …" if len(columns) > _SHOWN_COLUMNS else "")


def _describe_table(file: pathlib.Path, separator: str, columns: Sequence[str], tests: Sequence[str]) -> str:
    shown = _first_few(columns)
    if _is_list_of_sounds(file, separator, columns):
        return (
            f"looks like a list of sounds with the columns {shown}, separated by {SEPARATORS[separator]}; a list must"
            f" have the columns {','.join(transcript_list.COLUMNS)}, separated by commas or tabs alone, and this line"
            f" at its top: change it, then read it by --dataset=wav {option_of_file(file)} {data_dir(file.parent)}"
        )
    if _is_list_of_images(file, separator):
        return (
            f"looks like a list of images with the columns {shown}; --dataset=image_folder takes the class from the"
            f" folder of an image: put each image into a folder with the name of its class, such as its"
            f" {_likely_label(file, separator, columns)}, then read them by --dataset=image_folder"
            f" {data_dir(file.parent)}"
        )
    if _has_ratings(columns):
        known = next(form for form in movielens.FORMATS if form.num_header_lines)
        is_ready = separator == "," and len(columns) == 3 and _has_ratings([columns[0], columns[2]])
        task = (
            f"copy it to a file {known.file_name}"
            if is_ready
            else "write the columns user, item, rating and, if known, seconds, separated by commas, to a file"
            f" {known.file_name} with a header"
        )
        return (
            f"looks like ratings with the columns {shown}; {task}, then read it by --dataset=movielens"
            f" {data_dir(file.parent)}, and --dataset_option=ids=text if users or items have names in place of numbers"
        )
    has_header = _has_header(columns)
    label = _likely_label(file, separator, columns if has_header else [str(at) for at in range(len(columns))])
    name = SEPARATORS[separator].removesuffix("s")
    options = [
        *([f"test_files={','.join(tests)}"] if tests else []),
        *([] if separator == "," else [f"delimiter={name}"]),
        *([] if has_header else ["header=false"]),
        *([] if decimal_of(first_rows(file, separator, _MAX_LINES), separator) == "." else ["decimal=,"]),
    ]
    flags = "".join(f"{shlex.quote(f'--dataset_option={one}')} " for one in options)
    return (
        f"looks like a table of {len(columns)} columns separated by {SEPARATORS[separator]}: {shown}; read it by"
        f" --dataset=csv {option_of_file(file)} {flags}--dataset_option=label=<column>"
        f" {data_dir(file.parent)}, with the column of the labels, such as {label}"
    )


def _likely_label(file: pathlib.Path, separator: str, columns: Sequence[str]) -> str:
    """Returns the column with the fewest different values, but at least two; of equal ones the last."""
    rows = [row for row in first_rows(file, separator, _MAX_LINES)[1:] if len(row) == len(columns)]
    numbers = {at: len(values) for at, values in enumerate(map(set, zip(*rows, strict=True))) if len(values) > 1}
    return columns[min(reversed(numbers), key=lambda at: numbers[at])] if numbers else columns[-1]


def _idx(path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    names = {file.name for file in files}
    missing = [
        accepted[0] for one in mnist.FILES if not names & set(accepted := mnist.accepted_names(*one)) and path.is_dir()
    ]
    if not missing or len(missing) == len(mnist.FILES):
        return None
    return (
        f"a part of a set of images in IDX files; {', '.join(missing)} are missing, perhaps with .gz; with them,"
        f" --dataset=mnist {data_dir(path)} reads the set"
    )


def _sounds(path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    sounds = files_inside(path, files, (SOUND_SUFFIX,))
    if not sounds:
        return None
    folder = path if path.is_dir() else path.parent
    first = sounds[0].relative_to(folder)
    transcript = first.parts[0] if len(first.parts) > 1 else "one"
    found = next((file.name for file in files if file.suffix.lower() in _DELIMITERS), None)
    name = found or "list.csv"
    problem = f"and {name}, which is not a list of them; begin it" if found else f"without a list; write a file {name}"
    return (
        f"{len(sounds)} WAV files {problem} with exactly the line {','.join(transcript_list.COLUMNS)} and such a line"
        f" for each sound, for example {first},0,{transcript}, then read it by --dataset=wav"
        f" {option_of_file(folder / name)} {data_dir(folder)}"
    )


def _folders_without_images(path: pathlib.Path, _files: Sequence[pathlib.Path]) -> str | None:
    folder = path / "train" if (path / "train").is_dir() else path
    inner = training_first(one for one in folder.glob("[!.]*") if one.is_dir())
    empty = [one.name for one in inner if not files_inside(one, [], image_folder.SUFFIXES)]
    if not empty or len(inner) - len(empty) < 2:
        return None
    return (
        f"images in {len(inner) - len(empty)} folders, and {_first_few(empty)} without an image; remove such folders,"
        f" then read the images by --dataset=image_folder {data_dir(path)}"
    )


def _images(path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    images = files_inside(path, files, image_folder.SUFFIXES) if path.is_dir() else []
    if not images:
        return None
    classes = sorted({file.relative_to(path).parts[0] for file in images if file.parent != path})
    place = f"in {len(classes)} folder{'s' * (len(classes) != 1)}" if classes else "and no folder of a class"
    others = [file.name for file in files if file.name not in classes]
    extra = f" and other files, such as {others[0]}," if classes and others else ""
    return (
        f"{len(images)} images{extra} {place}; --dataset=image_folder needs a folder for each class, at least two, and"
        f" then reads them by {data_dir(path)}"
    )


def _folders(path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    inner = next((file for file in files if file.is_dir() and any(one.is_file() for one in file.iterdir())), None)
    if inner is None or any(file.is_file() for file in files):
        return None
    command = f"ps_trainer data info {shlex.quote(str(inner))}"
    return f"the folder has only other folders, such as {inner.name}; try `{command}`"


_LOOKS: tuple[Callable[[pathlib.Path, Sequence[pathlib.Path]], str | None], ...] = (
    _parquet,
    _folders_without_images,
    _unreadable_table,
    _table,
    _idx,
    _sounds,
    _images,
    other_images,
    foreign_file,
    other_text,
    _folders,
)
