"""MovieLens ratings, read from the file of the 100K, 1M, 10M, 20M, 25M or 32M dataset in `--data_dir`.

    u.data         100K               user, item, rating, seconds, separated by tabs
    ratings.dat    1M, 10M            the same, separated by "::"
    ratings.csv    20M, 25M, 32M      a header, then the same, separated by commas; ratings are 0.5, 1.0, … 5.0

Source: F. M. Harper, J. A. Konstan, "The MovieLens Datasets: History and Context", ACM Transactions on Interactive
Intelligent Systems 5(4), 2015; the README file of each dataset.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.file_source import CountedFile
from ps_trainer.data.pipeline.line_source import LineSource, first_line, open_unpacked, text_file
from ps_trainer.errors import DataError
from ps_trainer.options import option

_ID, _RATING, _SECONDS = r"\d{1,9}", r"\d(\.\d+)?", r"\d{1,18}"

_NAMES = "userId,movieId,rating,timestamp"


class _Format(NamedTuple):
    file_name: str
    separator: str
    separator_name: str  # without quotes, before which TensorFlow's messages put backslashes
    num_header_lines: int


FORMATS = (
    _Format("u.data", "\t", "tabs", 0),
    _Format("ratings.dat", "::", "double colons", 0),
    _Format("ratings.csv", ",", "commas", 1),
)


class MovieLens(LineSource):
    """Ratings of films by people, from the MovieLens file in --data_dir: u.data, ratings.dat or ratings.csv.

    Batches: "user" and "item" int64 [B], as numbered in the file, from 1; "rating" float32 [B], 0.5..5. The datasets
    have no separate test examples. The first line and every `test_every`-th after it are test examples.

    Args:
        options: Share of the test examples.
        data_dir: Folder with one of the three files, or the folder above it, if its name is like `ml-100k`.
        facts: Facts about the file.

    Attributes:
        num_users: Largest number of a user, plus 1.
        num_items: Largest number of a film, plus 1.

    Raises:
        DataError: The folder is missing, has none of the files or several, or the file has no ratings.
    """

    takes_facts = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `MovieLens`."""

        test_every: int = option(10, "every n-th line is a test example", least=2)

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        self._format, path = _find(data_dir, self.facts)
        separator, num_header_lines = self._format.separator, self._format.num_header_lines
        super().__init__(
            [text_file(path, num_header_lines=num_header_lines, facts=self.facts)],
            [],
            pattern=separator.join([_ID, _ID, _RATING, _SECONDS]),
            form=f"user, item, rating and seconds, separated by {self._format.separator_name}",
            test_every=options.test_every,
        )
        largest = self.facts.find("largest_ids", [path], separator, lambda: _largest_ids(path, self._format))
        self.num_users, self.num_items = (1 + number for number in largest)

    def _to_predict(self, path: pathlib.Path) -> MovieLens:
        # Rating and seconds may be missing, also one of them; the 0 in place of the rating does not reach a prediction.
        other, separator = super()._to_predict(path), self._format.separator
        other._pattern = separator.join([_ID, _ID]) + f"({separator}({_RATING})?({separator}({_SECONDS})?)?)?"
        other._form = (
            f"user and item, perhaps followed by rating and seconds, separated by {self._format.separator_name}"
        )
        return other

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        if self.num_header_lines and re.fullmatch(self._pattern, first := first_line(path)):
            raise DataError(
                f"{path}: line 1 should hold the names of the columns, but is {first}; put {_NAMES} before it"
            )
        return super()._count_file(path)

    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        kinds = [tf.constant([0], tf.int64), tf.constant([0], tf.int64), tf.constant([0.0])]
        # `decode_csv` takes only one character as its separator. The one at the end gives each line a third column.
        line_B = tf.strings.join([tf.strings.regex_replace(line_B, self._format.separator, ","), ","])
        user_B, item_B, rating_B = tf.io.decode_csv(line_B, kinds, select_cols=[0, 1, 2])
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


def _largest_ids(path: pathlib.Path, form: _Format) -> list[int]:
    """Returns the largest numbers of a user and of an item; lines that are not ratings are left to the pipeline."""
    line = re.compile(re.escape(form.separator).join([f"({_ID})", f"({_ID})", ""]).encode())
    largest = [0, 0]
    with open_unpacked(path) as (file, _):
        for found in filter(None, map(line.match, file)):
            largest = [max(one, int(number)) for one, number in zip(largest, found.groups(), strict=True)]
    return largest


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
