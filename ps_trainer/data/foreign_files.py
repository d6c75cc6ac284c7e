"""Describes files that no dataset reads as they are: by their contents, with the way to read them."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
from collections.abc import Sequence

from ps_trainer.data.formats import image_folder
from ps_trainer.data.pipeline.line_source import UTF_16_MARKS, conversion, first_lines, head, packing_of
from ps_trainer.data.pipeline.table_rows import number_of
from ps_trainer.errors import DataError

_JSON = (".json", ".jsonl", ".ndjson")
OTHER_IMAGES = (".webp", ".bmp", ".gif", ".tif", ".tiff", ".heic")
"""Endings of images that `image_folder` does not read."""

_IMAGE_MARKS = (b"\x89PNG\r\n", b"\xff\xd8\xff")
_START_BYTES = 16

# Start of a file, in lower case -> what it is, and how to convert it.
_FOREIGN = {
    b"pk\x03\x04": "a ZIP archive, as files .xlsx are, too; unpack it, or save the sheet as CSV",
    b"\x93numpy": "an array of NumPy; give it to ps_trainer.train in Python, or write it with numpy.savetxt",
    b"sqlite format": "a database of SQLite; export a table as CSV",
    b"@relation": "an ARFF file; write the names of its attributes in one line in place of the lines up to @data",
}
_NUM_LINES = 5


def other_images(path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    """Describes images that `image_folder` does not read, by the first file; None if that is not an image."""
    file = next(iter(files_inside(path, files)), None)
    if file is None:
        return None
    wanted = ", ".join(image_folder.SUFFIXES)
    if file.suffix.lower() in OTHER_IMAGES:
        problem = f"{file.name} is an image with the ending {file.suffix}; convert such images to {wanted}"
    elif _start_of(file).startswith(_IMAGE_MARKS):
        problem = f"{file.name} is an image without one of the endings {wanted}; rename such files"
    else:
        return None
    folder = data_dir(path if path.is_dir() else path.parent)
    return f"{problem}, and read them by --dataset=image_folder {folder}, with a folder for each class"


def foreign_file(_path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    """Describes a file that another program has to convert; None if there is none."""
    for file in files:
        start = _start_of(file) if file.is_file() else b""
        kind = next((kind for mark, kind in _FOREIGN.items() if start.lower().startswith(mark)), None)
        if kind is None and file.is_file() and _is_json(file):
            kind = "JSON; write its records to a CSV file with a column for each key"
        if kind is not None:
            return (
                f"{file.name} is {kind}, then read it by --dataset=csv {option_of_file(file.with_suffix('.csv'))}"
                f" --dataset_option=label=<column> {data_dir(file.parent)}"
            )
        if (packing := packing_of(start)) is not None:
            return f"{file.name} is compressed with {packing}; unpack it, or compress it with gzip, and look again"
    return None


def other_text(_path: pathlib.Path, files: Sequence[pathlib.Path]) -> str | None:
    """Describes a text that no format names, or one that is not UTF-8; None if there is none."""
    for file in files:
        start = head(file) if file.is_file() else b""
        if not start or (b"\0" in start and not start.startswith(UTF_16_MARKS)):
            continue
        if lines := first_lines(file, _NUM_LINES):
            return f"{file.name} {_describe_lines(file, lines)}"
        return f"{file.name} is not UTF-8; convert it, for example with {conversion(start)}"
    return None


def _describe_lines(file: pathlib.Path, lines: Sequence[str]) -> str:
    rows = [line.split() for line in lines]
    has_numbers = any(number_of(value) is not None for value in rows[-1])
    if all(re.fullmatch(r"\S+(\s+\d+:\S+)+\s*", line) for line in lines):
        return (
            "looks like sparse examples in the format of LIBSVM, with other labels than numbers; write 1 and -1 in"
            f" their place, then read it by --dataset=libsvm {option_of_file(file)} {data_dir(file.parent)}"
        )
    if has_numbers and len(rows) > 1 and len({len(row) for row in rows}) == 1 < len(rows[0]):
        name = f"looks like a table of {len(rows[0])} columns separated by spaces"
        if all(line == " ".join(row) for line, row in zip(lines, rows, strict=True)):
            return (
                f"{name}; read it by --dataset=csv {option_of_file(file)} --dataset_option=delimiter=space"
                f" --dataset_option=label=<column> {data_dir(file.parent)}"
            )
        return (
            f"{name}; write one comma between columns, for example with sed -E 's/^ +//; s/ +/,/g'"
            f" {shlex.quote(str(file))} > {shlex.quote(str(file.with_suffix('.csv')))}, and look again"
        )
    return f"looks like running text; read it by --dataset=text {option_of_file(file)} {data_dir(file.parent)}"


def option_of_file(file: pathlib.Path) -> str:
    """Returns the option that names a file to train on, as a shell reads it."""
    return shlex.quote(f"--dataset_option=train_files={file.name}")


def data_dir(folder: pathlib.Path) -> str:
    """Returns the flag that names the folder of the data, as a shell reads it."""
    return shlex.quote(f"--data_dir={folder}")


def files_inside(path: pathlib.Path, files: Sequence[pathlib.Path], suffixes: Sequence[str] = ()) -> list[pathlib.Path]:
    """Lists the files of a folder and of the folders in it, or the file alone, with one of some endings, or any."""
    found = path.rglob("*") if path.is_dir() else files
    return sorted(file for file in found if file.is_file() and (not suffixes or file.suffix.lower() in suffixes))


def _start_of(file: pathlib.Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_START_BYTES)


def _is_json(file: pathlib.Path) -> bool:
    if file.suffix.lower() in _JSON:
        return True
    try:
        return isinstance(json.loads(next(iter(first_lines(file, 1)), "")), dict)
    except (DataError, ValueError, RecursionError):
        return False
