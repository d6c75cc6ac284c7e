"""Rows of a delimited text file (CSV), read with Python's `csv` module and checked.

`tf.io.decode_csv` reads the same rows in the input pipeline. It is stricter about quotes than Python's module, so this
file rejects what the two would read differently.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.data.pipeline import joined_lines
from ps_trainer.data.pipeline.line_source import conversion, head, open_unpacked
from ps_trainer.errors import DataError, did_you_mean

SPACES = " \t\n\v\f\r"
"""Characters that `tf.strings.strip` removes; `str.strip` without an argument removes others as well."""

MAX_NUMBER = 2.0**128
"""Least size of a number that is infinite as float32, the type of the numbers in a batch."""

_CHUNK_ROWS = 2**14
_PARQUET, _PARQUET_SUFFIXES = b"PAR1", (".parquet", ".pq")
_OTHER_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
_NUMBER_CHARACTERS = re.compile(r"[-+.eE0-9]*")
_WITH_POINTS = str.maketrans(",.", ".,")  # so that a point becomes what no number has
_SHOWN_CHARACTERS = 60
_SHOWN_NAMES = 30
_OLD_LINE_ENDS = r"lines end with carriage returns; convert the file, for example with tr '\r' '\n'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    """The syntax of the lines of a table's file.

    Attributes:
        delimiter: Character between two values.
        has_quotes: Whether double quotes may surround a value, so that it can contain the delimiter and line ends. A
            line end there becomes a space.
        has_header: Whether the first line holds the names of the columns.
        checks_header: Whether a header with a number as a name is rejected.
        missing: Words for a missing value; an empty value is always missing.
        decimal: Character before the decimals of a number, a point or a comma.
        trained_names: Names that the first line of a file to predict for may hold: those of the training files, and
            those without the label. Empty for the files of a training, about which messages name options. A trained
            model needs the options that it was trained with.
    """

    delimiter: str = ","
    has_quotes: bool = True
    has_header: bool = True
    checks_header: bool = True
    missing: frozenset[str] = frozenset()
    decimal: str = "."
    trained_names: tuple[Sequence[str], ...] = ()

    @property
    def of_csv_module(self) -> dict[str, Any]:
        """The arguments of Python's `csv.reader` and `csv.writer`."""
        return {
            "delimiter": self.delimiter,
            "quoting": csv.QUOTE_MINIMAL if self.has_quotes else csv.QUOTE_NONE,
        }

    def is_missing(self, value: str) -> bool:
        """Returns whether a value, without spaces around it, stands for a missing one."""
        return not value or value in self.missing


class Chunk(NamedTuple):
    """Successive rows of a file, by column.

    Attributes:
        first: Number of the first row, from 0; the header does not count.
        first_in_file: Number of the first row, from 1; the header counts.
        columns: The values of each column by its name: texts without spaces around them; or, if the file itself says
            that they are numbers, float64 [rows], NaN = missing.
        unit: Word for a line in messages.
        joins: Rows that take several lines, as `joined_lines.line_of` wants them.
    """

    first: int
    first_in_file: int
    columns: Mapping[str, list[str] | np.ndarray]
    unit: str = "line"
    joins: Sequence[int] = ()

    def place(self, at: int) -> str:
        """Names a row of the chunk, for messages."""
        return f"{self.unit} {joined_lines.line_of(self.first_in_file + at, self.joins)}"


def header_of(path: pathlib.Path, dialect: Dialect) -> list[str]:
    """Returns the names of a file's columns; without a header they are "0", "1" and so on.

    Args:
        path: Path of the file, plain or compressed with gzip.
        dialect: How the lines are written.

    Raises:
        DataError: The file cannot be read, is empty, has another delimiter, or its header is none.
    """
    if is_parquet(path):
        fix = "read it with --dataset=parquet, which has the same options"
        raise DataError(f"{path} is a Parquet file; {'write it as CSV' if dialect.trained_names else fix}")
    first = next(_rows(path, dialect, []), None)
    if first is None:
        raise DataError(f"{path}: the file is empty; give a file with one line for each example")
    if any("\0" in name for name in first):
        raise DataError(f"{path}: line 1 is not text; write the table as CSV, for example save the sheet as CSV")
    _check_delimiter(path, first, dialect)
    if not dialect.has_header:
        return [str(number) for number in range(len(first))]
    names = [name.strip(SPACES) for name in first]
    numbers = [name for name in names if number_of(name, dialect.decimal) is not None]
    if numbers and dialect.checks_header:
        fix = (
            "for a file without a header give --dataset_option=header=false; if these are names,"
            " --dataset_option=header=true"
        )
        if trained := dialect.trained_names:
            known = next((known for known in trained if len(known) == len(names)), trained[0])
            line = format_line(known, dialect).decode()
            fix = f"put the names of the training files into a line before it: {line}"
        raise DataError(f"{path}: line 1 should hold the names of the columns, but {numbers[0]!r} is a number; {fix}")
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise DataError(f"{path}: line 1 names the column {twice[0]!r} twice; rename one of them")
    return names


def is_parquet(path: pathlib.Path) -> bool:
    """Returns whether a file begins as Parquet files do, or is empty and has such a name; a missing file does not."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_PARQUET))
        return start == _PARQUET or (not start and path.suffix.lower() in _PARQUET_SUFFIXES)
    except OSError:
        return False


def chunks(path: pathlib.Path, dialect: Dialect, names: Sequence[str]) -> Iterator[Chunk]:
    """Yields all rows of a file.

    Args:
        path: Path of the file, plain or compressed with gzip.
        dialect: How the lines are written.
        names: Names of the columns, from `header_of`.

    Raises:
        DataError: A row has more or fewer values than there are names, or the file has no row.
    """
    joins: list[int] = []
    rows = _rows(path, dialect, joins)
    in_file = 1
    if dialect.has_header:
        next(rows)
        in_file = 2
    number = 0
    while part := list(itertools.islice(rows, _CHUNK_ROWS)):
        for at, row in enumerate(part):
            if len(row) != len(names):
                line = joined_lines.line_of(in_file + at, joins)
                raise DataError(
                    f"{path}: line {line} has {len(row)} values, but there are {len(names)} columns"
                    f" ({format_names(names)}): {_cut(dialect.delimiter.join(row))}"
                )
        columns: dict[str, list[str] | np.ndarray] = {
            name: [v.strip(SPACES) for v in values] for name, values in zip(names, zip(*part, strict=True), strict=True)
        }
        yield Chunk(number, in_file, columns, joins=joins)
        number, in_file = number + len(part), in_file + len(part)
    if not number:
        raise DataError(f"{path}: the file has a header and no row; is it the right file?")


def number_of(value: str, decimal: str = ".") -> float | None:
    """Returns a value as a number, or None for a text.

    Unlike `float`, it takes "nan", "inf" and "1_000" for texts, and "1e39", which is infinite as float32.

    Args:
        value: Text of the value.
        decimal: Character before the decimals, a point or a comma. With a comma, "3.5" is a text.
    """
    numbers = numbers_of([value], decimal)
    return None if numbers is None else numbers[0]


def numbers_of(values: Iterable[str], decimal: str = ".") -> list[float] | None:
    """Returns values as numbers, or None if one of them is a text; much faster than `number_of` for each."""
    values = list(values) if decimal == "." else [value.translate(_WITH_POINTS) for value in values]
    if not _NUMBER_CHARACTERS.fullmatch("".join(values)):
        return None
    try:
        numbers = list(map(float, values))
    except ValueError:
        return None
    return numbers if max(map(abs, numbers), default=0.0) < MAX_NUMBER else None


def num_values(line: str, dialect: Dialect) -> int:
    """Counts the values of a line."""
    return len(next(csv.reader([line], **dialect.of_csv_module), []))


def format_line(values: Sequence[str], dialect: Dialect) -> bytes:
    """Returns a line of some values.

    Raises:
        DataError: The dialect has no quotes, and a value would need them.
    """
    text = io.StringIO()
    try:
        csv.writer(text, lineterminator="", **dialect.of_csv_module).writerow(values)
    except csv.Error as error:
        raise DataError(f"{dialect.delimiter.join(values)} cannot be written as a line: {error}") from error
    return text.getvalue().encode(errors="surrogatepass")


def columns_of(rows: Sequence[Mapping[str, Any]], dialect: Dialect, *, have_line_ends: bool) -> dict[str, list[str]]:
    """Returns the values of each column of some rows as the texts that a file of the table would have.

    Args:
        rows: Values of each row by the names of their columns, as JSON has them; None = missing.
        dialect: How numbers are written.
        have_line_ends: Whether values keep their line ends; in a file of lines each is read as a space.

    Raises:
        DataError: The rows have different columns, or a value is a list or an object.
    """
    names = list(rows[0])
    for number, row in enumerate(rows):
        if set(row) != set(names):
            raise DataError(f"instance {number} has other columns than instance 0, which has {format_names(names)}")
        if nested := [name for name in names if isinstance(row[name], list | Mapping)]:
            raise DataError(
                f"instance {number}: column {nested[0]!r} holds {_cut(str(row[nested[0]]))}; give one value: a text, a"
                " number, true, false or null"
            )

    def read(text: str) -> str:
        return (text if have_line_ends else joined_lines.as_line(text)).strip(SPACES)

    return {read(name): [read(_text_of(row[name], dialect)) for row in rows] for name in names}


def format_names(names: Sequence[str]) -> str:
    """Lists names of columns for a message, the first ones of many."""
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def unknown_column(path: pathlib.Path, name: str, names: Sequence[str], option: str) -> DataError:
    """Makes the error for a column that the file does not have; `option` is the option that names it."""
    return DataError(
        f"{path} has no column {name!r}; {did_you_mean(name, names)}columns: {format_names(names)};"
        f" set --dataset_option={option}"
    )


def _rows(path: pathlib.Path, dialect: Dialect, joins: list[int]) -> Iterator[list[str]]:
    """Yields the rows of a file as lists of values, without the empty lines at the end.

    Args:
        path: Path of the file.
        dialect: How the lines are written.
        joins: List that gets the rows that take several lines, as `joined_lines.line_of` wants them.
    """
    num_empty = 0
    number = 0
    with open_unpacked(path) as (file, _):
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="\n")  # type: ignore[type-var]  # typeshed wants read1, which both files have
        lines = _check_lines(path, text, dialect, joins) if dialect.has_quotes else text
        try:
            reader = csv.reader(lines, **dialect.of_csv_module)
            for number, row in enumerate(reader, 1):
                if not row:
                    num_empty += 1
                    continue
                if num_empty:
                    raise DataError(f"{path}: line {joined_lines.line_of(number, joins) - 1} is empty; remove it")
                yield row
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: line {_line_not_utf_8(path)}: not UTF-8 ({error.reason}); convert the file, for example with"
                f" {conversion(head(path))}"
            ) from error
        except csv.Error as error:
            # Python's advice about carriage returns is an argument of `open`.
            cause = _OLD_LINE_ENDS if "new-line" in str(error) else error
            line = joined_lines.line_of(number + 1, joins)
            raise DataError(f"{path}: line {line} cannot be read: {cause}") from error


def _line_not_utf_8(path: pathlib.Path) -> int:
    """Returns the number of the first line that is not UTF-8, from 1; a reader decodes many lines at once."""
    with open_unpacked(path) as (file, _):
        return 1 + sum(1 for _ in itertools.takewhile(_is_utf_8, file))


def _is_utf_8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_lines(path: pathlib.Path, lines: Iterable[str], dialect: Dialect, joins: list[int]) -> Iterator[str]:
    """Yields the rows of a file, each as one line; rejects quotes that do not surround a whole value."""
    mark = re.escape(dialect.delimiter)
    value = rf'(?:"(?:[^"]|"")*"|[^"{mark}]*)'
    well_formed = re.compile(rf"{value}(?:{mark}{value})*\r?\n?")
    lines = iter(lines)
    for number, line in enumerate(lines, 1):
        row = line
        if '"' in line and not well_formed.fullmatch(line):
            row, num_joined = joined_lines.join(line, lines)
            if not well_formed.fullmatch(row):
                is_open = row.count('"') % 2
                problem = "no quote ends this value" if is_open else "be doubled inside of it"
                fix = "; if quotes are ordinary characters, give --dataset_option=quotes=false"
                raise DataError(
                    f"{path}: line {joined_lines.line_of(number, joins)}: a quote must surround a whole value, and"
                    f" {problem}: {_cut(line)}{'' if dialect.trained_names else fix}"
                )
            joins.extend([number] * num_joined)
        if '"' in row and "\r" in row[:-2]:
            row = re.sub('"[^"]*"', lambda quoted: joined_lines.as_line(quoted[0]), row)
        yield row


def _check_delimiter(path: pathlib.Path, first: list[str], dialect: Dialect) -> None:
    """Raises DataError if a file has one column only, and its first line contains another usual delimiter."""
    if len(first) > 1:
        return
    counts = {mark: first[0].count(mark) for mark in _OTHER_DELIMITERS if mark != dialect.delimiter}
    mark = max(counts, key=lambda mark: counts[mark])
    wanted = _OTHER_DELIMITERS.get(dialect.delimiter, repr(dialect.delimiter))
    if counts[mark]:
        found = _OTHER_DELIMITERS[mark]
        fix = f"put a {wanted} between values" if dialect.trained_names else f"give --dataset_option=delimiter={found}"
        raise DataError(f"{path}: line 1 has no {wanted}, but {counts[mark]} times {found}; {fix}")


def _text_of(value: Any, dialect: Dialect) -> str:
    """Returns a Boolean as JSON writes it, not with a capital letter, and a number with the table's decimal sign."""
    if value is None:
        return ""
    if isinstance(value, float):
        return str(value).replace(".", dialect.decimal)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cut(text: str) -> str:
    text = text.rstrip("\r\n")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
