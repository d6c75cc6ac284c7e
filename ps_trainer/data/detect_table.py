"""Detects the form of a table: separator and header of delimited text, and the column of the labels."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from ps_trainer.data import near_misses
from ps_trainer.data.pipeline import parquet_rows
from ps_trainer.data.pipeline.line_source import first_lines
from ps_trainer.data.pipeline.table_columns import IGNORE
from ps_trainer.data.pipeline.table_rows import is_parquet, number_of

_LABELS = ("label", "labels", "target", "class", "y", "outcome")
_MAX_ROWS = 1000
_MIN_NAMES = 2  # different texts above numbers make a first line with numbers a header; one may mean "missing"
_MAX_CLASSES = 20
_MIN_ROWS_PER_CLASS = 3


class DetectedTable(NamedTuple):
    """A table that dataset csv or parquet can read.

    Attributes:
        columns: Names of its columns, or their numbers if it has no header.
        label: Name of the column that seems to hold the labels.
        options: Options of the dataset, without the names of the files.
    """

    columns: tuple[str, ...]
    label: str
    options: tuple[str, ...]


def detect(path: pathlib.Path) -> DetectedTable | None:
    """Returns what a file looks like as a table; None if it is none, or no column looks like a label."""
    found = near_misses.columns_of(path)
    if found is None or near_misses.is_list_of_others(path, *found):
        return None
    separator, columns = found
    rows = list(csv.reader(first_lines(path, _MAX_ROWS), delimiter=separator))
    has_numbers = any(number_of(name.strip()) is not None for name in columns)
    has_header = not has_numbers or _num_texts_above_numbers(columns, rows[1:]) >= _MIN_NAMES
    names = [name.strip() for name in columns] if has_header else [str(number) for number in range(len(columns))]
    rows = rows[1:] if has_header else rows
    label = _label_of(names, [row[-1] for row in rows if len(row) == len(names)])
    if label is None:
        return None
    options = (
        f"label={label}",
        *(() if separator == "," else (f"delimiter={near_misses.SEPARATORS[separator].removesuffix('s')}",)),
        *((f"header={str(has_header).lower()}",) if has_numbers else ()),
    )
    return DetectedTable(tuple(names), label, options)


def detect_parquet(path: pathlib.Path) -> DetectedTable | None:
    """Returns what a Parquet file looks like as a table; None if it is none, or no column looks like a label.

    Raises:
        DataError: The file cannot be read, or pyarrow is missing.
    """
    if not is_parquet(path):
        return None
    names, nested = parquet_rows.names_of(path), parquet_rows.nested_of(path)
    usable = [name for name in names if name not in nested]
    first = next(parquet_rows.chunks(path, names, {}, usable[-1], wanted=usable[-1:]), None) if usable else None
    label = _label_of(usable, [] if first is None else [str(value) for value in first.columns[usable[-1]][:_MAX_ROWS]])
    ignored = ",".join(f"{name}:{IGNORE}" for name in nested)
    options = (f"label={label}", *([f"columns={ignored}"] if ignored else []))
    return None if label is None else DetectedTable(tuple(names), label, options)


def _num_texts_above_numbers(first: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Returns the number of different texts in the first row that stand above nothing but numbers."""
    columns = zip(*(row for row in rows if len(row) == len(first)), strict=True)
    return len(
        {
            text
            for text, values in zip(map(str.strip, first), columns, strict=False)
            if text and number_of(text) is None and all(number_of(value.strip()) is not None for value in values)
        }
    )


def _label_of(names: Sequence[str], last_column: Sequence[str]) -> str | None:
    """Returns the column that is named like a label, or the last one if its values look like classes."""
    label = next((name for name in names if name.lower() in _LABELS), None)
    return names[-1] if label is None and _looks_like_classes(last_column) else label


def _looks_like_classes(values: Sequence[str]) -> bool:
    classes = {value.strip() for value in values}
    return 2 <= len(classes) <= _MAX_CLASSES and len(values) >= _MIN_ROWS_PER_CLASS * len(classes)
