"""Detects the form of a table: separator and header of delimited text, and the column of the labels."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ps_trainer.data import near_misses
from ps_trainer.data.formats.parallel_text import ATTRIBUTION
from ps_trainer.data.pipeline import parquet_rows
from ps_trainer.data.pipeline.line_source import first_lines
from ps_trainer.data.pipeline.table_columns import IGNORE
from ps_trainer.data.pipeline.table_rows import is_parquet, number_of
from ps_trainer.errors import DataError

_LABELS = ("label", "labels", "target", "class", "y", "outcome")
_MAX_ROWS = 1000
_MIN_NAMES = 2  # different texts above numbers make a first line with numbers a header; one may mean "missing"
_MAX_CLASSES = 20
_MIN_ROWS_PER_CLASS = 3
# Texts in two columns: different pairs, their share with another text in a column, and texts with several words.
_MIN_PAIRS, _MIN_DIFFERENT, _MIN_SENTENCES = 2, 0.5, 0.3
_FIRST_OF_EAST_ASIA = "\u2e80"  # the first block of Unicode with their characters


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


def detect(path: pathlib.Path, given: Mapping[str, str] = MappingProxyType({})) -> DetectedTable | None:
    """Returns what a file looks like as a table; None if it is none, or no column looks like a label.

    Args:
        path: Path of the file.
        given: Values of options that the user gives, by name; `label` makes a guess unnecessary.
    """
    is_spaced = given.get("delimiter") in ("space", " ")
    found = near_misses.columns_of(path, (" ",) if is_spaced else tuple(near_misses.SEPARATORS))
    if found is None or ("label" not in given and near_misses.is_list_of_others(path, *found)):
        return None
    separator, columns = found
    rows = near_misses.first_rows(path, separator, _MAX_ROWS)
    decimal = near_misses.decimal_of(rows, separator)
    has_numbers = any(number_of(name.strip(), decimal) is not None for name in columns)
    has_header = not has_numbers or _num_texts_above_numbers(columns, rows[1:], decimal) >= _MIN_NAMES
    names = [name.strip() for name in columns] if has_header else [str(number) for number in range(len(columns))]
    rows = rows[1:] if has_header else rows
    label = given.get("label") or _label_of(names, [row[-1] for row in rows if len(row) == len(names)])
    if label is None:
        return None
    delimiter = near_misses.SEPARATORS.get(separator, "spaces").removesuffix("s")
    options = (
        f"label={label}",
        *(() if separator == "," else (f"delimiter={delimiter}",)),
        *((f"header={str(has_header).lower()}",) if has_numbers else ()),
        *(() if decimal == "." else (f"decimal={decimal}",)),
    )
    return DetectedTable(tuple(names), label, options)


def detect_parquet(path: pathlib.Path, given: Mapping[str, str] = MappingProxyType({})) -> DetectedTable | None:
    """Returns what a Parquet file looks like as a table; None if it is none, or no column looks like a label.

    Args:
        path: Path of the file.
        given: Values of options that the user gives, by name; `label` makes a guess unnecessary.

    Raises:
        DataError: The file has no row or cannot be read, or pyarrow is missing.
    """
    if not is_parquet(path):
        return None
    parquet_rows.num_rows(path)
    names, nested = parquet_rows.names_of(path), parquet_rows.nested_of(path)
    usable = [name for name in names if name not in nested]
    first = next(parquet_rows.chunks(path, names, {}, usable[-1], wanted=usable[-1:]), None) if usable else None
    last = [] if first is None else [str(value) for value in first.columns[usable[-1]][:_MAX_ROWS]]
    label = given.get("label") or _label_of(usable, last)
    ignored = ",".join(f"{name}:{IGNORE}" for name in nested)
    options = (f"label={label}", *([f"columns={ignored}"] if ignored else []))
    return None if label is None else DetectedTable(tuple(names), label, options)


def has_sentence_pairs(path: pathlib.Path) -> bool:
    """Returns whether a file looks like texts and their translations, in two columns with a tab between them."""
    try:
        lines = first_lines(path, _MAX_ROWS)
    except DataError:  # it is compressed and damaged
        return False
    pairs = {tuple(re.sub(ATTRIBUTION, "", line).split("\t")) for line in lines}
    if len(pairs) < _MIN_PAIRS or any(len(pair) != 2 for pair in pairs):
        return False
    if has_attributions(lines):
        return True
    # A text with its class, or two categories, have many more different pairs than texts in one of the columns.
    return all(
        len(set(column)) > _MIN_DIFFERENT * len(pairs) and sum(map(_is_sentence, column)) >= _MIN_SENTENCES * len(pairs)
        for column in ([value.strip() for value in column] for column in zip(*pairs, strict=True))
    )


def has_attributions(lines: Sequence[str]) -> bool:
    """Returns whether each line of a file ends with the attribution of its texts."""
    return all(re.search(ATTRIBUTION, line) for line in lines)


def _is_sentence(value: str) -> bool:
    """Returns whether a text has several words, or is written in a script without spaces, such as Chinese."""
    return number_of(value) is None and (" " in value or any(letter >= _FIRST_OF_EAST_ASIA for letter in value))


def _num_texts_above_numbers(first: Sequence[str], rows: Sequence[Sequence[str]], decimal: str) -> int:
    """Returns the number of different texts in the first row that stand above nothing but numbers."""
    columns = zip(*(row for row in rows if len(row) == len(first)), strict=True)
    return len(
        {
            text
            for text, values in zip(map(str.strip, first), columns, strict=False)
            if text
            and number_of(text, decimal) is None
            and all(number_of(value.strip(), decimal) is not None for value in values)
        }
    )


def _label_of(names: Sequence[str], last_column: Sequence[str]) -> str | None:
    """Returns the column that is named like a label, or the last one if its values look like classes."""
    label = next((name for name in names if name.lower() in _LABELS), None)
    return names[-1] if label is None and _looks_like_classes(last_column) else label


def _looks_like_classes(values: Sequence[str]) -> bool:
    classes = {value.strip() for value in values}
    return 2 <= len(classes) <= _MAX_CLASSES and len(values) >= _MIN_ROWS_PER_CLASS * len(classes)
