"""MovieLens ratings, read from the file of the 100K, 1M, 10M, 20M, 25M or 32M dataset in `--data_dir`.

    u.data         100K               user, item, rating, seconds, separated by tabs
    ratings.dat    1M, 10M            the same, separated by "::"
    ratings.csv    20M, 25M, 32M      a header, then the same, separated by commas; ratings are 0.5, 1.0, … 5.0

Other ratings in one of these forms may lack the seconds, and may have names in place of the numbers of users and items.

Source: F. M. Harper, J. A. Konstan, "The MovieLens Datasets: History and Context", ACM Transactions on Interactive
Intelligent Systems 5(4), 2015; the README file of each dataset.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import pathlib
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.file_source import CountedFile
from ps_trainer.data.pipeline.frequency_vocabulary import UNKNOWN
from ps_trainer.data.pipeline.line_source import LineSource, first_line, open_unpacked, text_file
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.data.pipeline.table_features import number_table
from ps_trainer.data.pipeline.table_rows import SPACES
from ps_trainer.errors import DataError
from ps_trainer.options import option

MAX_NAME_BYTES = 2**27
"""Largest total size of the names of users and items, which become part of the graph."""

_ID, _RATING, _SECONDS = r"\d{1,9}", r"-?\d{1,6}(\.\d+)?", r"\d{1,18}"
_UNIT_SEPARATOR = "\x1f"  # takes the place of a separator of two characters
_HEADER = "userId,movieId,rating,timestamp"
_HEADERS = {("userid", "movieid"), ("userid", "itemid"), ("user", "movie"), ("user", "item")}
"""Names of the first two columns, in lower case, by which any file of ratings of names may begin."""
_KNOWN_NAMES = (
    {"user", "users", "userid"},
    {"item", "items", "itemid", "movie", "movieid", "product", "productid", "book", "bookid"},
    {"rating", "ratings", "score", "stars"},
)
"""Names of the columns of users, items and ratings, in lower case and without signs between words."""


class _Format(NamedTuple):
    file_name: str
    separator: str
    separator_name: str
    num_header_lines: int
    name: str  # pattern of a user or item that is not a number


FORMATS = (
    _Format("u.data", "\t", "tabs", 0, r"[^\t]+"),
    _Format("ratings.dat", "::", "double colons", 0, r"(?:[^:]|:[^:])+"),
    _Format("ratings.csv", ",", "commas", 1, r'(?:"(?:[^"]|"")+"|[^",]+)'),
)


class MovieLens(LineSource):
    """Ratings of films by people, from the MovieLens file in --data_dir: u.data, ratings.dat or ratings.csv.

    Batches: "user" and "item" int64 [B], as numbered in the file, from 1; "rating" float32 [B], 0.5..5. The datasets
    have no separate test examples. The first line and every `test_every`-th after it are test examples.

    Files of your own may hold other ratings, such as -10..10 or 1..100, and may lack the seconds at the end of a line.
    With `ids=text`, users and items may have names, which get their numbers in the order of the file, from 1; 0 stands
    for one that the file does not have. The run records the names, so lines to predict for have them, too.

    Args:
        options: Share of the test examples, and what names users and items.
        data_dir: Folder with one of the three files, or the folder above it, if its name is like `ml-100k`.
        facts: Facts about the file.

    Attributes:
        num_users: Largest number of a user, plus 1.
        num_items: Largest number of a film, plus 1.
        mean_rating: Mean of the training ratings, with six digits.
        rating_scale: Standard deviation of the training ratings, with six digits; 1 if they are equal.
        user_vocabulary: Names of the users by number, with `ids=text`; None otherwise.
        item_vocabulary: Names of the items by number, with `ids=text`; None otherwise.

    Raises:
        DataError: The folder is missing, has none of the files or several, or the file has no ratings. The names have
            too many bytes. The header of `ratings.csv` names the columns in another order than user, item, rating.
    """

    takes_facts = True
    reads_rows = True
    row_columns = ("user", "item")
    user_vocabulary: RecordedWords | None = None
    item_vocabulary: RecordedWords | None = None
    _headers: Collection[tuple[str, ...]] = ()  # with names in place of numbers
    mean_rating: float | None = None
    rating_scale: float | None = None

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `MovieLens`."""

        test_every: int = option(10, "every n-th line is a test example", least=2)
        ids: str = option(
            "number", "what users and items have: numbers, from 1, or names of any form", choices=("number", "text")
        )

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        self._format, path = _find(data_dir, self.facts)
        separator, num_header_lines = self._format.separator, self._format.num_header_lines
        self._id = _ID if options.ids == "number" else self._format.name
        super().__init__(
            [text_file(path, num_header_lines=num_header_lines, facts=self.facts)],
            [],
            pattern=separator.join([self._id, self._id, _RATING]) + f"({separator}({_SECONDS})?)?",
            form=f"user, item, rating and perhaps seconds, separated by {self._format.separator_name}{_hint(options)}",
            test_every=options.test_every,
        )
        if num_header_lines and not self.facts.is_recorded and re.fullmatch(self._pattern, first_line(path)):
            raise _no_header(path, "user,item,rating")
        if num_header_lines and not self.facts.is_recorded:
            _check_order(path)
        if not self.facts.lacks("rating_scale"):
            settings = [separator, self._id, options.test_every]
            self.mean_rating, self.rating_scale = self.facts.find(
                "rating_scale", [path], settings, lambda: _find_scale(path, self._format, self._id, options.test_every)
            )
        if options.ids == "number":
            largest = self.facts.find("largest_ids", [path], separator, lambda: _largest_ids(path, self._format))
            self.num_users, self.num_items = (1 + number for number in largest)
            return
        # As a fact of a single file, it may differ when a run continues.
        header = self.facts.remember("file header", None, lambda: first_line(path) if path.is_file() else "")
        self._headers = {*_HEADERS, _folded(header)}
        users, items = self.facts.find("names", [path], separator, lambda: _different_names(path, self._format))
        self.user_vocabulary, self.item_vocabulary = (
            RecordedWords("word", (UNKNOWN["word"], *names)) for names in (users, items)
        )
        self.num_users, self.num_items = 1 + len(users), 1 + len(items)

    def _to_predict(self, path: pathlib.Path) -> MovieLens:
        # Rating and seconds may be missing, also one of them; the 0 in place of the rating does not reach a prediction.
        other, separator = super()._to_predict(path), self._format.separator
        other._pattern = separator.join([self._id] * 2) + f"({separator}({_RATING})?({separator}({_SECONDS})?)?)?"
        other._form = (
            f"user and item, perhaps followed by rating and seconds, separated by {self._format.separator_name}"
        )
        return other

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        if self.num_header_lines:
            first = first_line(path)
            if _folded(first) not in self._headers:
                _check_order(path, to_predict=True)
            # A row without a rating looks like names of columns, so these must be known.
            if _folded(first) not in self._headers if self._headers else re.fullmatch(self._pattern, first):
                raise _no_header(path, "user,item")
        if self.user_vocabulary is not None and self.item_vocabulary is not None:
            users, items = _count_names(path, self._format)
            self._count_unfamiliar("users", users, self.user_vocabulary)
            self._count_unfamiliar("items", items, self.item_vocabulary)
        return super()._count_file(path)

    def _header_lines_of(self, records: Sequence[str]) -> list[bytes]:
        del records
        return [_HEADER.encode()][: self.num_header_lines]  # the training file may be gone

    def row_texts(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        """Returns the line of each row, which has a name or a number under "user" and "item", as the file has them."""
        names = [[self._name_in(row, column, number) for column in self.row_columns] for number, row in enumerate(rows)]
        if self.user_vocabulary is not None and self.item_vocabulary is not None:
            users, items = (Counter(name.strip(SPACES) for name in one) for one in zip(*names, strict=True))
            self._count_unfamiliar("users", users, self.user_vocabulary)
            self._count_unfamiliar("items", items, self.item_vocabulary)
        return {"line": [self._format.separator.join(map(self._quoted, pair)) for pair in names]}

    def _name_in(self, row: Mapping[str, Any], column: str, number: int) -> str:
        """Returns the name or number in a column of row `number`."""
        if column not in row:
            raise DataError(f"instance {number} has no {column!r}; its columns: {', '.join(row)}; add it")
        value, text = row[column], str(row[column])
        if type(value) not in (str, int) or "\n" in text or not re.fullmatch(self._id, self._quoted(text), re.ASCII):
            wanted = "a number, from 1" if self.user_vocabulary is None else "a name as in the training file"
            raise DataError(f"instance {number}: column {column!r} holds {value!r}; give {wanted}")
        return text

    def _quoted(self, name: str) -> str:
        """Returns a name as a line has it: in a file with commas, quotes may surround it."""
        needs_quotes = self._format.separator == "," and re.search('[",]', name)
        return '"' + name.replace('"', '""') + '"' if needs_quotes else name

    def _count_unfamiliar(self, noun: str, names: Counter[str], vocabulary: RecordedWords) -> None:
        known = frozenset(vocabulary.tokens)
        unknown = {name: number for name, number in names.items() if name not in known}
        self.unfamiliar.add(f"{noun} without a training line, read as unknown", unknown, names.total())

    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        has_names, separator = self.user_vocabulary is not None, self._format.separator
        kind = tf.constant([""]) if has_names else tf.constant([0], tf.int64)
        # `decode_csv` takes only one character as its separator. The one at the end gives each line a third column.
        is_csv = separator == ","
        if not is_csv:
            line_B = tf.strings.regex_replace(line_B, separator, _UNIT_SEPARATOR)
        mark = separator if is_csv else _UNIT_SEPARATOR
        user_B, item_B, rating_B = tf.io.decode_csv(
            tf.strings.join([line_B, mark]),
            [kind, kind, tf.constant([0.0])],
            field_delim=mark,
            use_quote_delim=is_csv,
            select_cols=[0, 1, 2],
        )
        ids = [(user_B, self.user_vocabulary), (item_B, self.item_vocabulary)]
        user_B, item_B = (name_B if words is None else _number(name_B, words) for name_B, words in ids)
        return {"user": user_B, "item": item_B, "rating": rating_B}


def write_u_data(path: pathlib.Path, users: np.ndarray, items: np.ndarray, ratings: np.ndarray) -> None:
    """Writes ratings in the form of the 100K dataset, with four decimals and 0 seconds.

    Args:
        path: Path of the file.
        users: int [n], number of the user of each rating.
        items: int [n], number of the item of each rating.
        ratings: float [n], 0 .. 9.9999.
    """
    with path.open("w", encoding="ascii") as file:
        file.writelines(
            f"{user}\t{item}\t{rating:.4f}\t0\n" for user, item, rating in zip(users, items, ratings, strict=True)
        )


def names_both(path: pathlib.Path, form: _Format) -> bool:
    """Returns whether the header of a file clearly names users and items; true for a form without a header."""
    columns = [_simple(name) for name in _row(first_line(path))[:2]]
    return not form.num_header_lines or all(map(set.__contains__, _KNOWN_NAMES, columns))


def has_names(path: pathlib.Path, form: _Format) -> bool:
    """Returns whether the first rating of a file has names in place of the numbers of a user and an item."""
    with open_unpacked(path) as (file, _):
        first = next(_names(_lines(file, form), form), ())
    return not all(re.fullmatch(_ID, name) for name in first)


def _hint(options: MovieLens.Options) -> str:
    """Returns how to read users and items that are no numbers, for a message."""
    return " (names in place of numbers need --dataset_option=ids=text)" if options.ids == "number" else ""


def _folded(header: str) -> tuple[str, ...]:
    """Returns the names of the first two columns in a line of names, in lower case."""
    return tuple(name.lower() for name in next(_names([header], FORMATS[-1]), ()))


def _row(line: str) -> list[str]:
    """Returns the values of a line with commas; none if it cannot be read."""
    try:
        return [value.strip(SPACES) for value in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def _simple(name: str) -> str:
    return re.sub("[ _-]", "", name.lower())


def _check_order(path: pathlib.Path, *, to_predict: bool = False) -> None:
    """Raises DataError if the header of a file clearly names its columns in another order than user, item, rating.

    In a file to predict for, only users and items count.
    """
    header = first_line(path)
    names = _row(header)
    places: dict[int, int] = {}
    for wanted, known in enumerate(_KNOWN_NAMES):
        found = [at for at, name in enumerate(names) if _simple(name) in known]
        if len(found) == 1 and wanted < len(names):
            places[wanted] = found[0]
    others = (at for at in range(len(names)) if at not in places.values())
    order = [places[at] if at in places else next(others) for at in range(len(names))]
    num_checked = 2 if to_predict else 3
    if order[:num_checked] == [*range(len(names))][:num_checked]:
        return
    right = ",".join(names[at] for at in order[: 2 if to_predict else None])
    said = f"{path}: its columns are {header}, but dataset movielens reads them in the order {right}; exchange them"
    if to_predict:
        raise DataError(f"{said} in each line, the first one included")
    old, new = (shlex.quote(f"{path}{end}") for end in ("", ".new"))
    exchange = (
        "import csv, sys; sys.stdin.reconfigure(encoding='utf-8-sig'); sys.stdout.reconfigure(encoding='utf-8');"
        f" csv.writer(sys.stdout, lineterminator='\\n').writerows([row[at] for at in {order}] for row in"
        " csv.reader(sys.stdin) if row)"
    )
    raise DataError(f'{said}: gzip -cdf {old} | python -c "{exchange}" > {new} && mv {new} {old}')


def _no_header(path: pathlib.Path, example: str) -> DataError:
    return DataError(
        f"{path}: line 1 should hold the names of the columns, but is {first_line(path)}; put such a line before it,"
        f" for example {example}"
    )


def _number(name_B: tf.Tensor, words: RecordedWords) -> tf.Tensor:
    """Returns the numbers of names, int64 [B]; 0 = unknown."""
    return number_table(words.tokens[1:], range(1, len(words.tokens))).lookup(tf.strings.strip(name_B))


def _lines(file: io.BufferedIOBase, form: _Format) -> Iterator[str]:
    """Returns the lines of an open file after its header; other bytes than UTF-8 are left to the pipeline."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="\n")  # type: ignore[type-var]  # typeshed wants read1, which both files have
    return itertools.islice(text, form.num_header_lines, None)


def _names(lines: Iterable[str], form: _Format) -> Iterator[tuple[str, str]]:
    """Yields user and item of each line; lines that have fewer columns are left to the pipeline."""
    for line in lines:
        try:
            row = next(csv.reader([line]), []) if form.separator == "," else line.rstrip("\r\n").split(form.separator)
        except csv.Error:  # such as a null character
            continue
        names = [name.strip(SPACES) for name in row[:2]]
        if len(names) == 2 and all(names):
            yield names[0], names[1]


def _count_names(path: pathlib.Path, form: _Format) -> tuple[Counter[str], Counter[str]]:
    """Counts the lines of each user and of each item, in the order of the file."""
    users: Counter[str] = Counter()
    items: Counter[str] = Counter()
    with open_unpacked(path) as (file, _):
        for user, item in _names(_lines(file, form), form):
            users[user] += 1
            items[item] += 1
    return users, items


def _different_names(path: pathlib.Path, form: _Format) -> list[list[str]]:
    """Returns the names of users and of items in the order of the file, so that lines added later change no number.

    Raises:
        DataError: The names have too many bytes.
    """
    found = [list(names) for names in _count_names(path, form)]
    num_bytes = sum(len(name.encode()) for names in found for name in names)
    if num_bytes > MAX_NAME_BYTES:
        raise DataError(
            f"{path}: the names of users and items have {num_bytes} bytes, but at most {MAX_NAME_BYTES} are allowed,"
            " because they become part of the graph; write numbers in their place"
        )
    return found


def _largest_ids(path: pathlib.Path, form: _Format) -> list[int]:
    """Returns the largest numbers of a user and of an item; lines that are not ratings are left to the pipeline."""
    line = re.compile(f"(?:\ufeff)?{re.escape(form.separator).join([f'({_ID})', f'({_ID})', ''])}".encode())
    largest = [0, 0]
    with open_unpacked(path) as (file, _):
        for found in filter(None, map(line.match, file)):
            largest = [max(one, int(number)) for one, number in zip(largest, found.groups(), strict=True)]
    return largest


def _find_scale(path: pathlib.Path, form: _Format, name: str, test_every: int) -> tuple[float, float]:
    """Returns mean and standard deviation of the training ratings, with six digits; 1 in place of a deviation of 0.

    Lines that are not ratings are left to the pipeline.
    """
    line = re.compile(form.separator.join([f"(?:{name})", f"(?:{name})", f"({_RATING})"]))
    with open_unpacked(path) as (file, _):
        found = (line.match(text) for at, text in enumerate(_lines(file, form)) if at % test_every)
        ratings = np.fromiter((float(match[1]) for match in found if match), np.float64)
    mean, scale = (float(f"{value:.6g}") for value in (ratings.mean(), ratings.std())) if len(ratings) else (0.0, 0.0)
    return mean, scale or 1.0


def _find(data_dir: str | None, facts: Facts) -> tuple[_Format, pathlib.Path]:
    needs = f"dataset movielens needs --data_dir=<folder> with {' or '.join(form.file_name for form in FORMATS)}"
    folder = facts.folder(data_dir, needs)
    found = [
        (form, path) for form in FORMATS for path in [folder / form.file_name, *folder.glob(f"ml-*/{form.file_name}")]
    ]
    found = [(form, path) for form, path in found if facts.has_file(path)]
    if not found:
        raise DataError(f"{folder} has none of these files; {needs}")
    if len(found) > 1:
        paths = ", ".join(str(path) for _, path in found)
        raise DataError(f"{folder} has several datasets: {paths}; give the folder of one")
    return found[0]
