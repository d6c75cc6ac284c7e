"""Clicks on advertisements in the form of the Criteo sets: the Kaggle challenge's, and the terabyte logs'.

    <label> TAB <13 whole numbers> TAB <26 hashes>          40 columns, with tabs between them

The label is 1 for a click. The numbers, most of them counts, may be negative, and the hashes are 32 bits in 8
hexadecimal digits; each of both may be missing, an empty column then. Files of one's own may have other ids in place of
the hashes.

Source: "Display Advertising Challenge", Criteo Labs and Kaggle, 2014; "Criteo 1TB Click Logs dataset", Criteo AI Lab.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.data.pipeline.line_files import LineSource, NamedFiles, head
from ps_trainer.errors import DataError
from ps_trainer.options import option

NUM_NUMBERS, NUM_HASHES = 13, 26
_HASH_DIGITS = 8
_ENOUGH_IDS = 100  # (10/16)^(8 * 100): no hashes have digits alone
_SAID_SHARE = 0.01  # of the categories that share an id, from which on it is said
_LABEL_AND_NUMBERS = rf"[01](\t(-?\d{{1,18}})?){{{NUM_NUMBERS}}}"
LINE = rf"{_LABEL_AND_NUMBERS}(\t([0-9a-fA-F]{{{_HASH_DIGITS}}})?){{{NUM_HASHES}}}"
TEXT_LINE = rf"{_LABEL_AND_NUMBERS}(\t[^\t]*){{{NUM_HASHES}}}"
CATEGORIES = ("hex", "text")
MAX_BUCKETS = 2**31


class Criteo(LineSource):
    """Clicks with 13 numbers and 26 categories, in the format of the Criteo sets, from --data_dir.

    Batches: "dense" float32 [B, 13], log(1 + max(x, 0)) of each number, 0 where it is missing; "ids" int64 [B, 26], of
    each hash 1 + hash mod (`num_buckets` - 1), 0 where it is missing; "label" int64 [B], 0 or 1. With `categories=text`
    the hash is TensorFlow's, of whatever text there is. Different categories may share an id: how many do at the
    beginning of the first file is logged, and a larger `num_buckets` makes them fewer. Files may be packed by
    gzip. The test file of the Kaggle challenge has no labels, so that without `test_files` a part of the training lines
    is tested on.

    Args:
        options: the names of the files, and the number of buckets.
        data_dir: their folder.

    Raises:
        DataError: no folder, a missing or empty file, or decimal ids that are to be read as hexadecimal.
    """

    num_classes = 2

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(NamedFiles):
        """Options of `Criteo`."""

        train_files: tuple[str, ...] = option(("train.txt",), "names of the files to train on, with commas")
        num_buckets: int = option(
            2**12, "ids per categorical column, that of missing ones among them", least=2, most=MAX_BUCKETS
        )
        categories: str = option(
            "hex", "hex: hashes of 8 hexadecimal digits; text: any, such as decimal ids", choices=CATEGORIES
        )

    def __init__(self, options: Options, *, data_dir: str | None = None):
        train, test = options.find("criteo", data_dir)
        self._num_buckets, self._is_text = options.num_buckets, options.categories == "text"
        what = "texts" if self._is_text else f"hashes of {_HASH_DIGITS} hexadecimal digits"
        fix = "" if self._is_text else " (other ids, such as decimal ones: --dataset_option=categories=text)"
        form = f"0 or 1, {NUM_NUMBERS} whole numbers and {NUM_HASHES} {what} with tabs between{fix}"
        pattern = TEXT_LINE if self._is_text else LINE
        super().__init__(train, test, pattern=pattern, form=form, test_every=options.test_every)
        if not self._is_text and has_decimal_ids(train[0].path):
            raise DataError(
                f"{train[0].path}: no category at its beginning has a digit a to f, so these are decimal ids;"
                " read them by --dataset_option=categories=text"
            )
        if said := sharing(train[0].path, options.num_buckets):
            logging.warning("%s", said)

    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        kinds = [tf.constant([0], tf.int64), *[tf.constant([0.0])] * NUM_NUMBERS, *[tf.constant([""])] * NUM_HASHES]
        columns = tf.io.decode_csv(line_B, kinds, field_delim="\t", use_quote_delim=False)
        numbers_BN = tf.stack(columns[1 : 1 + NUM_NUMBERS], axis=1)
        hashes_BN = tf.stack(columns[1 + NUM_NUMBERS :], axis=1)
        if self._is_text:
            buckets_BN = tf.strings.to_hash_bucket_fast(hashes_BN, self._num_buckets - 1)
        else:
            buckets_BN = tf.math.floormod(_from_hexadecimal(hashes_BN), self._num_buckets - 1)
        ids_BN = tf.where(tf.equal(hashes_BN, ""), tf.zeros_like(buckets_BN), 1 + buckets_BN)
        return {"dense": tf.math.log1p(tf.maximum(numbers_BN, 0)), "ids": ids_BN, "label": columns[0]}


def write(path: pathlib.Path, labels: np.ndarray, numbers: np.ndarray, hashes: np.ndarray) -> None:
    """Writes a file.

    Args:
        path: of the file.
        labels: int [n], 0 or 1.
        numbers: float [n, 13], whole ones, and NaN where one is missing.
        hashes: int [n, 26], less than 2**32, and -1 where one is missing.
    """
    with path.open("w", encoding="ascii") as file:
        for label, row_numbers, row_hashes in zip(labels.tolist(), numbers.tolist(), hashes.tolist(), strict=True):
            columns: Iterable[str] = [
                str(label),
                *("" if number != number else str(int(number)) for number in row_numbers),
                *("" if value < 0 else f"{value:0{_HASH_DIGITS}x}" for value in row_hashes),
            ]
            file.write("\t".join(columns) + "\n")


def has_decimal_ids(path: pathlib.Path) -> bool:
    """Whether the categories at the beginning of a file are decimal ids: of 100 hashes some have a letter."""
    rows = [line.split(b"\t")[-NUM_HASHES:] for line in head(path).split(b"\n")[:-1]]
    ids = {column for row in rows for column in row} - {b""}
    return len(ids) >= _ENOUGH_IDS and all(column.isdigit() for column in ids)


def sharing(path: pathlib.Path, num_buckets: int) -> str:
    """What is to be said of categories that share an id with another one, in words; "" where few can.

    Looks at the beginning of the file, of which it takes the column with the most categories: among so many, each drawn
    into one of the buckets, the share 1 − (1 − 1 / buckets)^(categories − 1) has company, whatever the hash.
    """
    rows = [line.split(b"\t") for line in head(path).split(b"\n")[:-1]]
    columns = zip(*(row[-NUM_HASHES:] for row in rows if len(row) > NUM_NUMBERS + NUM_HASHES), strict=True)
    most = max((len(set(column) - {b""}) for column in columns), default=0)
    share = 1 - (1 - 1 / (num_buckets - 1)) ** max(0, most - 1)
    if share < _SAID_SHARE:
        return ""
    return (
        f"{path}: {most:,} categories in a column of the first {len(rows):,} lines alone: with"
        f" num_buckets={num_buckets} about {share:.0%} of them share an id with another one, and of more lines more"
        " do; a larger --dataset_option=num_buckets=… keeps them apart"
    )


def logarithms(numbers: np.ndarray) -> np.ndarray:
    """What `Criteo` makes of numbers, NaN where one is missing."""
    return np.log1p(np.maximum(np.nan_to_num(numbers), 0))


def buckets(hashes: np.ndarray, num_buckets: int) -> np.ndarray:
    """What `Criteo` makes of hashes, -1 where one is missing."""
    return np.where(hashes < 0, 0, 1 + hashes % (num_buckets - 1))


def _from_hexadecimal(text: tf.Tensor) -> tf.Tensor:
    """Up to eight hexadecimal digits as an int64, of the shape of `text`."""
    digits = tf.strings.substr(
        tf.strings.join(["0" * _HASH_DIGITS, tf.strings.lower(text)]), -_HASH_DIGITS, _HASH_DIGITS
    )
    codes = tf.cast(tf.io.decode_raw(digits, tf.uint8), tf.int64)
    values = tf.where(codes >= ord("a"), codes - (ord("a") - 10), codes - ord("0"))
    return tf.reduce_sum(values * [16**place for place in reversed(range(_HASH_DIGITS))], axis=-1)
