"""Facts about a table's columns, from its training rows: kinds, vocabularies, means and scales, classes.

Every worker computes this in one pass over the same files in the same order, so all workers get the same numbers.
"""

from __future__ import annotations

import math
import pathlib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.data.pipeline.table_rows import Chunk, Dialect, format_names, number_of, numbers_of
from ps_trainer.errors import DataError

NUMBER, CATEGORY, HASH, IGNORE = KINDS = ("number", "category", "hash", "ignore")
"""Kinds of columns: a number; one of a vocabulary of words; a word that is hashed; a column that is not used."""

MAX_CLASSES = 1000
"""Largest number of classes of a label; a column with more distinct values is rejected as a label."""

_SHOWN_CLASSES = 10
_DECIMALS = {".": "point", ",": "comma"}
# By the character before the decimals: numbers with another one, or with signs between thousands.
_OTHER_NUMBERS = {
    ".": re.compile(r"[-+]?((\d{1,3}(\.\d{3})+|\d*),\d+|\d{1,3}(,\d{3})+(\.\d+)?)"),
    ",": re.compile(r"[-+]?(\d*\.\d+|\d{1,3}(\.\d{3})+(,\d+)?)"),
}
_POINTS_IN_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?")
_MIN_NUMBER_SHARE = 0.9  # of a column of numbers with some wrong values, which a message then names


class Columns(NamedTuple):
    """Facts about the columns of a table.

    Attributes:
        label: Name of the label's column.
        kinds: Kind of each other column, by its name, in the order of the file.
        vocabularies: Words of each column of kind category, the most frequent first; words of equal frequency are
            sorted.
        means: float64, mean of each column of numbers over the training rows where it is not missing.
        scales: float64, standard deviation of each column of numbers; 1 for a constant column.
        class_names: Values of the label, sorted, as numbers if all are numbers.
        class_counts: Training rows with each of these labels; empty in the record of an older version.
        booleans: Words of each column of kind hash that holds only Booleans, sorted: the form in which to hash them.
        ranges: Least and largest number of each column of numbers in the training rows; empty in the record of an older
            version.
        times: Names of the columns of numbers whose file has dates, times or durations; None in the record of an older
            version.
    """

    label: str
    kinds: dict[str, str]
    vocabularies: dict[str, tuple[str, ...]]
    means: dict[str, float]
    scales: dict[str, float]
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...] = ()
    booleans: Mapping[str, Sequence[str]] = MappingProxyType({})
    ranges: Mapping[str, Sequence[float]] = MappingProxyType({})
    times: Sequence[str] | None = None

    def with_counts_of(self, other: Columns) -> Columns:
        """Returns these columns with the numbers of training rows of `other`.

        Raises:
            DataError: `other` has a class that these columns do not have.
        """
        counts = dict(zip(other.class_names, other.class_counts, strict=True))
        if new := [name for name in other.class_names if name not in self.class_names]:
            raise DataError(
                f"the label {self.label!r} has the value {new[0]!r}, which the run that columns_of names does not have;"
                f" labels there: {', '.join(self.class_names[:_SHOWN_CLASSES])}"
            )
        return self._replace(class_counts=tuple(counts.get(name, 0) for name in self.class_names))

    def of_kind(self, kind: str) -> list[str]:
        """Returns the names of the columns of a kind."""
        return [name for name, its_kind in self.kinds.items() if its_kind == kind]


FACT = "columns"
"""Name of the fact that holds the names of all columns in the order of the file, and their `Columns`."""


def as_fact(names: Sequence[str], columns: Columns) -> list[Any]:
    """Returns the value of `FACT`, as JSON."""
    return [list(names), columns._asdict()]


def of_fact(value: Sequence[Any]) -> tuple[list[str], Columns]:
    """Returns the names of all columns and their `Columns` from the value of `FACT`."""
    names, columns = value
    vocabularies = {name: tuple(words) for name, words in columns["vocabularies"].items()}
    classes = {name: tuple(columns.get(name, ())) for name in ("class_names", "class_counts")}
    return names, Columns(**columns | {"vocabularies": vocabularies} | classes)


class ColumnCounter:
    """Collects `Columns` from the training rows, chunk by chunk.

    Args:
        label: Name of the label's column.
        kinds: Kinds that the user gave, by the name of the column.
        dialect: Which values are missing.
        max_words: Largest number of words of a vocabulary.
    """

    def __init__(self, label: str, kinds: Mapping[str, str], dialect: Dialect, max_words: int):
        self._label, self._given, self._dialect, self._max_words = label, kinds, dialect, max_words
        self._kinds: dict[str, str] = {}
        self._words: dict[str, Counter[str]] = {}
        self._hashed: dict[str, set[str]] = {}  # words of each hashed column, as long as all are Booleans
        self._moments: dict[str, _Moments] = {}
        self._classes: Counter[str] = Counter()
        self._place_of: dict[str, str] = {}  # of the first row with each label, whether for training or not

    def add(self, path: pathlib.Path, chunk: Chunk, is_train: Callable[[int], bool]) -> None:
        """Checks a chunk, and counts its training rows.

        Args:
            path: Path of the file, for messages.
            chunk: Rows of the file; the first chunk decides the kinds that the user did not give.
            is_train: Whether the row of a number, from 0, is for training.

        Raises:
            DataError: A column of numbers has a text, a label is missing, or there are too many words or classes.
        """
        if not self._kinds:
            self._kinds = {
                name: self._given.get(name) or self._kind_of(path, name, values)
                for name, values in chunk.columns.items()
                if name != self._label
            }
        count = len(chunk.columns[self._label])
        chosen = [at for at in range(count) if is_train(chunk.first + at)]
        for name, kind in self._kinds.items():
            values = chunk.columns[name]
            if kind == NUMBER:
                numbers = numbers_in(path, chunk, name, self._dialect)
                self._moments.setdefault(name, _Moments()).add(numbers[chosen])
            elif kind == CATEGORY:
                words = self._words.setdefault(name, Counter())
                words.update(values[at] for at in chosen)
                self._check_words(path, name, words)
            elif kind == HASH and all(map(is_boolean, self._hashed.setdefault(name, set()))):
                self._hashed[name].update(values[at] for at in chosen if not self._dialect.is_missing(values[at]))
        self._add_labels(path, chunk, chosen)

    def columns(self) -> Columns:
        """Returns what was found.

        Raises:
            DataError: A label occurs in test rows only, or all labels are the same.
        """
        if len(self._classes) == 1 and len(self._place_of) == 1:
            value = next(iter(self._classes))
            raise DataError(
                f"the label {self._label!r} is {value!r} in every row, but a model needs two classes or more; name"
                f" another column by --dataset_option=label=<column>; other columns: {format_names(list(self._kinds))}"
            )
        for value, location in self._place_of.items():
            if value not in self._classes:
                if 2 * len(self._classes) > self._classes.total() and self._are_numbers(self._classes):
                    raise DataError(
                        f"{location}: the label {self._label!r} is a number, {value} here, with {len(self._place_of)}"
                        " different values; csv and parquet predict classes, and no number (regression): replace it by"
                        " a few classes, or name another label"
                    )
                raise DataError(
                    f"{location}: the label {value!r} of a test row is in no training row; labels there:"
                    f" {', '.join(_sort_names(self._classes)[:_SHOWN_CLASSES])}; remove its row, or name another label"
                )
        by_name = {name: self._moments[name] for name, kind in self._kinds.items() if kind == NUMBER}
        return Columns(
            self._label,
            self._kinds,
            {name: self._vocabulary(words) for name, words in self._words.items()},
            {name: moments.mean for name, moments in by_name.items()},
            {name: moments.deviation or 1.0 for name, moments in by_name.items()},
            tuple(_sort_names(self._classes)),
            tuple(self._classes[name] for name in _sort_names(self._classes)),
            {name: sorted(words) for name, words in self._hashed.items() if all(map(is_boolean, words))},
            {name: [moments.least, moments.largest] for name, moments in by_name.items() if moments.count},
            [],
        )

    def _are_numbers(self, names: Iterable[str]) -> bool:
        decimal = self._dialect.decimal
        return all(number_of(name, decimal) is not None or _OTHER_NUMBERS[decimal].fullmatch(name) for name in names)

    def _kind_of(self, path: pathlib.Path, name: str, values: Sequence[str] | np.ndarray) -> str:
        if isinstance(values, np.ndarray):
            return NUMBER
        present = [value for value in values if not self._dialect.is_missing(value)]
        decimal = self._dialect.decimal
        num_numbers = sum(number_of(value, decimal) is not None for value in present)
        others = [value for value in present if _OTHER_NUMBERS[decimal].fullmatch(value)]
        if others and num_numbers + len(others) >= _MIN_NUMBER_SHARE * len(present):
            if decimal == ".":
                sign, fix = "comma", "if it stands before decimals, give --dataset_option=decimal=, (if not, remove it)"
            elif all(map(_POINTS_IN_THOUSANDS.fullmatch, others)) and any("," in value for value in present):
                sign = "point between thousands"
                fix = f"remove such points, here in all columns: {_without_points(path, self._dialect)}"
            else:
                sign = "point"
                fix = "this run reads a decimal comma (decimal=,): write a comma, or leave out the option"
            raise DataError(
                f"{path}: column {name!r} has numbers with a {sign}, such as {others[0]}; {fix}; if they are words,"
                f" give --dataset_option=columns={name}:category"
            )
        return NUMBER if present and num_numbers >= _MIN_NUMBER_SHARE * len(present) else CATEGORY

    def _check_words(self, path: pathlib.Path, name: str, words: Counter[str]) -> None:
        if len(words) > self._max_words and len(self._vocabulary(words)) > self._max_words:
            raise DataError(
                f"{path}: column {name!r} has more than {self._max_words} different words; leave it out with"
                f" --dataset_option=columns={name}:ignore, hash it with columns={name}:hash, or raise"
                " --dataset_option=num_buckets"
            )

    def _add_labels(self, path: pathlib.Path, chunk: Chunk, chosen: Sequence[int]) -> None:
        labels = chunk.columns[self._label]
        for at, value in enumerate(labels):
            if self._dialect.is_missing(value):
                raise DataError(
                    f"{path}: {chunk.place(at)}: the label {self._label!r} is missing; remove the {chunk.unit}"
                )
            self._place_of.setdefault(value, f"{path}: {chunk.place(at)}")
        self._classes.update(labels[at] for at in chosen)
        if len(self._classes) > MAX_CLASSES:
            raise DataError(
                f"{path}: the label {self._label!r} has more than {MAX_CLASSES} different values, such as"
                f" {', '.join(sorted(self._classes)[:3])}; it must name one of a few classes"
                f"{'; csv and parquet predict no number (regression)' if self._are_numbers(self._classes) else ''}"
            )

    def _vocabulary(self, words: Counter[str]) -> tuple[str, ...]:
        known = [(word, count) for word, count in words.items() if not self._dialect.is_missing(word)]
        return tuple(word for word, _ in sorted(known, key=lambda pair: (-pair[1], pair[0])))


def is_boolean(word: str) -> bool:
    """Returns whether a word stands for a Boolean: JSON and Parquet have true, Python has True, spreadsheets TRUE."""
    return word.lower() in ("true", "false")


def numbers_in(path: pathlib.Path, chunk: Chunk, name: str, dialect: Dialect) -> np.ndarray:
    """Returns a column of a chunk as float64 [rows]; NaN = missing.

    Raises:
        DataError: A value is a text.
    """
    values = chunk.columns[name]
    if isinstance(values, np.ndarray):
        return values
    numbers = numbers_of(values, dialect.decimal)
    if numbers is None:
        numbers = [math.nan] * len(values)
        for at, value in enumerate(values):
            if dialect.is_missing(value):
                continue
            number = number_of(value, dialect.decimal)
            if number is None:
                other = f"this run reads a decimal {_DECIMALS[dialect.decimal]}, and no sign between thousands; "
                fix = other if _OTHER_NUMBERS[dialect.decimal].fullmatch(value) else ""
                fix += (
                    "correct it, or leave it empty if it is missing"
                    if dialect.trained_names
                    else f"correct it, give --dataset_option=missing={value} if it means a missing value, or"
                    f" --dataset_option=columns={name}:category"
                )
                raise DataError(
                    f"{path}: {chunk.place(at)}: column {name!r} holds numbers, but this value is {value!r}; {fix}"
                )
            numbers[at] = number
    return np.array(numbers, np.float64)


def _without_points(path: pathlib.Path, dialect: Dialect) -> str:
    """Returns a command that removes the points between thousands from a file whose numbers have decimal commas."""
    mark = r"\t" if dialect.delimiter == "\t" else f"[{dialect.delimiter}]"
    start, end = f'(^|{mark})"?[-+]?[1-9][0-9]*', rf'[0-9]{{3}}(\.[0-9]{{3}})*(,[0-9]+)?"?\r?({mark}|$)'
    return f"sed -E -i ':a; s/({start})\\.({end})/\\1\\3/; ta' {shlex.quote(str(path))}"


class _Moments:
    """Mean, standard deviation and range of numbers that come in parts.

    Source: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
    Variances", 1979.
    """

    def __init__(self) -> None:
        self.count, self.mean, self._squares = 0, 0.0, 0.0
        self.least, self.largest = math.inf, -math.inf

    def add(self, numbers: np.ndarray) -> None:
        """Adds numbers, float64 [n]; NaN = missing."""
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            return
        mean, squares = float(numbers.mean()), float(numbers.var() * len(numbers))
        self.least, self.largest = min(self.least, float(numbers.min())), max(self.largest, float(numbers.max()))
        total = self.count + len(numbers)
        shift = mean - self.mean
        self._squares += squares + shift**2 * self.count * len(numbers) / total
        self.mean += shift * len(numbers) / total
        self.count = total

    @property
    def deviation(self) -> float:
        """Standard deviation of the numbers so far, as of a whole population."""
        return math.sqrt(self._squares / self.count) if self.count else 0.0


def _sort_names(names: Counter[str]) -> list[str]:
    numbers = numbers_of(names)
    if numbers is None:
        return sorted(names)
    return [name for _, name in sorted(zip(numbers, names, strict=True))]
