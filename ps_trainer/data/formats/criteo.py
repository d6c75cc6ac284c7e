"""Clicks on advertisements in the format of the Criteo datasets (Kaggle challenge and terabyte logs).

    <label> TAB <13 whole numbers> TAB <26 hashes>          40 columns, separated by tabs

The label is 1 for a click. The numbers, most of them counts, may be negative. The hashes have 32 bits, written as 8
hexadecimal digits. A missing number or hash is an empty column. Files from elsewhere may have other ids instead of
hashes.

Source: "Display Advertising Challenge", Criteo Labs and Kaggle, 2014; "Criteo 1TB Click Logs dataset", Criteo AI Lab.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.line_source import LineSource, NamedFiles, head
from ps_trainer.errors import DataError
from ps_trainer.options import option

NUM_NUMBERS, NUM_HASHES = 13, 26
_HASH_DIGITS = 8
_OTHER_IDS = " (other ids, such as decimal ones: --dataset_option=categories=text)"
_ENOUGH_IDS = 100  # all of 100 hashes are without a letter with the probability (10/16)^(8 * 100), about 0
_MIN_SHARE_TO_WARN = 0.01  # of categories that share an id
_LABEL_AND_NUMBERS = rf"[01](\t(-?\d{{1,18}})?){{{NUM_NUMBERS}}}"
LINE = rf"{_LABEL_AND_NUMBERS}(\t([0-9a-fA-F]{{{_HASH_DIGITS}}})?){{{NUM_HASHES}}}"
TEXT_LINE = rf"{_LABEL_AND_NUMBERS}(\t[^\t]*){{{NUM_HASHES}}}"
CATEGORIES = ("hex", "text")
"""Forms of the categories."""

MAX_BUCKETS = 2**31
"""Largest number of ids per column: half of all 32-bit hashes, so the remainder of a hash still spreads evenly."""


class Criteo(LineSource):
    """Clicks with 13 numbers and 26 categories, in the format of the Criteo datasets, from --data_dir.

    Batches:

    * "dense" float32 [B, 13]: log(1 + max(x, 0)) of each number, 0 for a missing one.
    * "ids" int64 [B, 26]: 1 + hash mod (`num_buckets` - 1) of each hash, 0 for a missing one. With `categories=text`,
      TensorFlow hashes the text of the column.
    * "label" int64 [B]: 0 or 1.

    Different categories may share an id. The constructor logs how many do at the beginning of the first file; a larger
    `num_buckets` makes them fewer. Files may be compressed with gzip. The test file of the Kaggle challenge has no
    labels, so without `test_files` a part of the training lines is for testing.

    Args:
        options: Names of the files, the number of buckets, and the form of the categories.
        data_dir: Folder of the files.
        facts: Facts about the files.

    Raises:
        DataError: The folder or a file is missing, a file is empty, or ids are decimal that should be hexadecimal.
    """

    num_classes = 2
    takes_facts = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(NamedFiles):
        """Options of `Criteo`."""

        train_files: tuple[str, ...] = option(("train.txt",), "names of the files to train on")
        num_buckets: int = option(
            2**12, "ids per categorical column, including the id of missing values", least=2, most=MAX_BUCKETS
        )
        categories: str = option(
            "hex", "form of the categories; hex: 8 hexadecimal digits, text: anything", choices=CATEGORIES
        )

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        train, test = options.find("criteo", data_dir, self.facts)
        self._num_buckets, self._is_text = options.num_buckets, options.categories == "text"
        what = "texts" if self._is_text else f"hashes of {_HASH_DIGITS} hexadecimal digits"
        fix = "" if self._is_text else _OTHER_IDS
        form = f"0 or 1, {NUM_NUMBERS} whole numbers and {NUM_HASHES} {what}, separated by tabs{fix}"
        pattern = TEXT_LINE if self._is_text else LINE
        super().__init__(train, test, pattern=pattern, form=form, test_every=options.test_every)
        if self.facts.is_recorded:
            return  # a model was trained with these files, which may be gone
        if not self._is_text and has_decimal_ids(train[0].path):
            raise DataError(
                f"{train[0].path}: no category at its beginning has a digit a to f, so these are decimal ids;"
                " read them with --dataset_option=categories=text"
            )
        if warning := collision_warning(train[0].path, options.num_buckets):
            logging.warning("%s", warning)

    def _to_predict(self, path: pathlib.Path) -> Criteo:
        other = super()._to_predict(path)
        other._form = self._form.removesuffix(_OTHER_IDS)
        return other

    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        kinds = [tf.constant([0], tf.int64), *[tf.constant([0.0])] * NUM_NUMBERS, *[tf.constant([""])] * NUM_HASHES]
        # Without quotes: a category may contain one, and `decode_csv` would fail or join columns.
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
        path: Path of the file.
        labels: int [n], 0 or 1.
        numbers: float [n, 13], whole numbers; NaN = missing.
        hashes: int [n, 26], less than 2**32; -1 = missing.
    """
    with path.open("w", encoding="ascii") as file:
        for label, row_numbers, row_hashes in zip(labels.tolist(), numbers.tolist(), hashes.tolist(), strict=True):
            columns: Iterable[str] = [
                str(label),
                *(
                    "" if number != number else str(int(number)) for number in row_numbers
                ),  # only NaN differs from itself
                *("" if value < 0 else f"{value:0{_HASH_DIGITS}x}" for value in row_hashes),
            ]
            file.write("\t".join(columns) + "\n")


def has_decimal_ids(path: pathlib.Path) -> bool:
    """Returns whether the categories at the beginning of a file are decimal ids: 100 or more, and none has a letter."""
    rows = [line.split(b"\t")[-NUM_HASHES:] for line in head(path).split(b"\n")[:-1]]
    ids = {column for row in rows for column in row} - {b""}
    return len(ids) >= _ENOUGH_IDS and all(column.isdigit() for column in ids)


def collision_warning(path: pathlib.Path, num_buckets: int) -> str:
    """Warns of categories that share an id with another one; "" if they are few.

    Looks at the beginning of the file, and there at the column with the most categories. A hash puts each of them into
    one of the buckets at random. So the share 1 − (1 − 1 / buckets)^(categories − 1) is expected to share its bucket.
    """
    rows = [line.split(b"\t") for line in head(path).split(b"\n")[:-1]]
    columns = zip(*(row[-NUM_HASHES:] for row in rows if len(row) > NUM_NUMBERS + NUM_HASHES), strict=True)
    most = max((len(set(column) - {b""}) for column in columns), default=0)
    share = 1 - (1 - 1 / (num_buckets - 1)) ** max(0, most - 1)
    if share < _MIN_SHARE_TO_WARN:
        return ""
    return (
        f"{path}: the first {len(rows):,} lines alone have {most:,} categories in a column; with"
        f" num_buckets={num_buckets} about {share:.0%} of them share an id with another category, and more lines"
        " increase this share; raise --dataset_option=num_buckets to keep categories apart"
    )


def logarithms(numbers: np.ndarray) -> np.ndarray:
    """Computes the "dense" values that `Criteo` makes of numbers; NaN = missing."""
    return np.log1p(np.maximum(np.nan_to_num(numbers), 0))


def buckets(hashes: np.ndarray, num_buckets: int) -> np.ndarray:
    """Computes the "ids" that `Criteo` makes of hashes; -1 = missing."""
    return np.where(hashes < 0, 0, 1 + hashes % (num_buckets - 1))


def _from_hexadecimal(text: tf.Tensor) -> tf.Tensor:
    """Converts strings of up to eight hexadecimal digits to int64, with the shape of `text`."""
    # TensorFlow's ops parse decimal numbers only, so the digits are decoded from their bytes.
    digits = tf.strings.substr(
        tf.strings.join(["0" * _HASH_DIGITS, tf.strings.lower(text)]), -_HASH_DIGITS, _HASH_DIGITS
    )
    codes = tf.cast(tf.io.decode_raw(digits, tf.uint8), tf.int64)
    values = tf.where(codes >= ord("a"), codes - (ord("a") - 10), codes - ord("0"))
    return tf.reduce_sum(values * [16**place for place in reversed(range(_HASH_DIGITS))], axis=-1)
