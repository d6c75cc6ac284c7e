"""Describes a path that no loader reads: its likely format, its faults, and the flags that would read it."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Callable, Sequence

from ps_trainer.data.formats import image_folder, movielens, transcript_list
from ps_trainer.data.pipeline import parquet_rows
from ps_trainer.data.pipeline.line_source import first_lines, text_file
from ps_trainer.data.pipeline.table_rows import Dialect, chunks, header_of, is_parquet
from ps_trainer.errors import DataError

SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "pipes"}
"""Words for the characters that may separate columns."""

_DELIMITERS = {".csv": ",", ".tsv": "\t"}  # by the suffix of a file
_NUM_LINES = 5
_SHOWN_COLUMNS = 8
_SOUND_WORDS = ("wav", "audio", "sound")


def describe(path: pathlib.Path) -> str | None:
    """Describes what an unknown file or folder looks like; None if it looks like nothing known.

    Raises:
        DataError: A file is named like a table and cannot be read as one.
        OSError: The path cannot be read.
    """
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if not file.name.startswith("."))
    for look in _LOOKS:
        sentence = look(path, files)
        if sentence is not None:
            return sentence
    return None


def columns_of(path: pathlib.Path) -> tuple[str, list[str]] | None:
    """Returns the separator and the columns of the first line of a table; None if a file is not a table.

    In a table the first lines have the same number of columns, at least two. Prose has commas as well, so text needs
    two lines, and no blank after a comma that separates columns.
    """
    try:
        lines = first_lines(path, _NUM_LINES)
    except DataError:  # it is compressed and damaged
        return None
    for separator in SEPARATORS:
        rows = list(csv.reader(lines, delimiter=separator))
        widths = {len(row) for row in rows}
        is_prose = separator == "," and any(column.startswith(" ") for column in rows[0]) if rows else False
        if len(rows) > 1 and len(widths) == 1 and widths.pop() > 1 and not is_prose:
            return separator, rows[0]
    return None


def is_list_of_others(file: pathlib.Path, separator: str, columns: Sequence[str]) -> bool:
    """Returns whether a table is not itself the data of a class and its features: a list of sounds, or ratings."""
    return _is_list_of_sounds(file, separator, columns) or _has_ratings(columns)


def _is_list_of_sounds(file: pathlib.Path, separator: str, columns: Sequence[str]) -> bool:
    second = next(csv.reader(first_lines(file, 2)[1:], delimiter=separator))
    has_word = any(word in name.lower() for name in columns for word in _SOUND_WORDS)
    return has_word or any(column.endswith(".wav") for column in second)


def _has_ratings(columns: Sequence[str]) -> bool:
    names = [name.lower() for name in columns]
    return any("user" in name for name in names) and any("rating" in name for name in names)


def _table(_path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    for file in files:
        found = columns_of(file) if file.is_file() else None
        if found is not None:
            return f"{file.name} {_said_of_table(file, *found)}"
    return None


def _parquet(_path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    file = next((file for file in files if file.is_file() and is_parquet(file)), None)
    if file is None:
        return None
    names, nested = parquet_rows.names_of(file), parquet_rows.nested_of(file)
    label = next((name for name in reversed(names) if name not in nested), "kind")
    return (
        f"{file.name} is a Parquet file with the columns {_first_few(names)}; read it by --dataset=parquet"
        f" --dataset_option=train_files={file.name} --dataset_option=label=<column> --data_dir={file.parent}, with the"
        f" column of the labels, such as {label}"
    )


def _unreadable_table(path: pathlib.Path, files: Sequence[pathlib.Path]) -> None:
    """Raises the DataError of dataset csv for a file that is named like a table, or empty, and cannot be read."""
    for file in files:
        suffix = pathlib.Path(file.name.removesuffix(".gz")).suffix.lower()
        if not file.is_file() or (suffix not in _DELIMITERS and (file != path or file.stat().st_size)):
            continue
        text_file(file)
        separator, _ = columns_of(file) or (_DELIMITERS[suffix], [])
        dialect = Dialect(delimiter=separator, checks_header=False)
        for _ in chunks(file, dialect, header_of(file, dialect)):
            pass


def _first_few(columns: Sequence[str]) -> str:
    return ", ".join(columns[:_SHOWN_COLUMNS]) + (", …" if len(columns) > _SHOWN_COLUMNS else "")


def _said_of_table(file: pathlib.Path, separator: str, columns: Sequence[str]) -> str:
    shown = _first_few(columns)
    if _is_list_of_sounds(file, separator, columns):
        return (
            f"looks like a list of sounds with the columns {shown}; a list must have the columns"
            f" {','.join(transcript_list.COLUMNS)} and this line at its top: change it, then read it by --dataset=wav"
            f" --dataset_option=train_files={file.name} --data_dir={file.parent}"
        )
    if _has_ratings(columns):
        known = next(form for form in movielens.FORMATS if form.num_header_lines)
        return (
            f"looks like ratings with the columns {shown}; write the columns user, item, rating and seconds, separated"
            f" by commas, to a file {known.file_name} with a header, then read it by --dataset=movielens"
            f" --data_dir={file.parent}"
        )
    name = SEPARATORS[separator].removesuffix("s")
    delimiter = "" if separator == "," else f"--dataset_option=delimiter={name} "
    return (
        f"looks like a table of {len(columns)} columns separated by {SEPARATORS[separator]}: {shown}; read it by"
        f" --dataset=csv --dataset_option=train_files={file.name} {delimiter}--dataset_option=label=<column>"
        f" --data_dir={file.parent}, with the column of the labels, such as {columns[-1]}"
    )


def _sounds(path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    sounds = [file.name for file in files if file.suffix.lower() == ".wav"]
    if not sounds:
        return None
    return (
        f"{len(sounds)} WAV files without a list; write a file list.csv with the line"
        f" {','.join(transcript_list.COLUMNS)} and such a line for each sound,"
        f" for example {sounds[0]},0,one, then read it by --dataset=wav"
        f" --dataset_option=train_files=list.csv --data_dir={path if path.is_dir() else path.parent}"
    )


def _images(path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    if not path.is_dir():
        return None
    images = [file for file in path.rglob("*") if file.suffix.lower() in image_folder.SUFFIXES]
    if not images:
        return None
    classes = sorted({file.relative_to(path).parts[0] for file in images if file.parent != path})
    place = f"in {len(classes)} folder{'s' * (len(classes) != 1)}" if classes else "and no folder of a class"
    others = [file.name for file in files if file.name not in classes]
    extra = f" and other files, such as {others[0]}," if classes and others else ""
    return (
        f"{len(images)} images{extra} {place}; --dataset=image_folder needs a folder for each class, at least two, and"
        f" then reads them by --data_dir={path}"
    )


_LOOKS: tuple[Callable[[pathlib.Path, Sequence[pathlib.Path]], str | None], ...] = (
    _parquet,
    _unreadable_table,
    _table,
    _sounds,
    _images,
)
