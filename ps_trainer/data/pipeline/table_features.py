"""The tensors of a batch of table rows: numbers, and numbers of words, in one of three forms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.table_columns import CATEGORY, HASH, NUMBER, Columns, is_boolean
from ps_trainer.data.pipeline.table_options import ColumnOptions
from ps_trainer.data.pipeline.unfamiliar_input import UnfamiliarInput

_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"


class TableFeatures:
    """Turns the texts of columns into the tensors of a form; `Csv` describes the forms.

    Args:
        columns: Facts about the columns.
        options: Form, scaling, and number of buckets of hashed words.

    Attributes:
        numbers: Names of the columns of numbers.
        categories: Names of the columns of categories, hashed ones included.
        sizes: Number of words of each column of categories, word 0 included, by name.
    """

    def __init__(self, columns: Columns, options: ColumnOptions):
        self._columns, self._options, self._dialect = columns, options, options.dialect()
        self._number = _NUMBER.replace(r"\.", re.escape(self._dialect.decimal))
        self._known = {name: frozenset(_numbers_of(words)) for name, words in columns.vocabularies.items()}
        self.numbers = columns.of_kind(NUMBER)
        self.categories = [name for name, kind in columns.kinds.items() if kind in (CATEGORY, HASH)]
        self.sizes = {name: 1 + len(words) for name, words in columns.vocabularies.items()}
        self.sizes.update(dict.fromkeys(columns.of_kind(HASH), options.num_buckets))

    def tensors(self, column_values: Mapping[str, tf.Tensor], num_rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the tensors of the chosen form.

        Args:
            column_values: Text of each column, string [B], by name; a column of numbers may be float64 [B], with NaN
                for a missing value.
            num_rows: B, int32 scalar.
        """
        numbers_BN = self._scale_numbers(column_values) if self.numbers else tf.zeros([num_rows, 0])
        if self._options.form == "columns":
            dense_BN = numbers_BN if self.numbers else tf.zeros([num_rows, 1])
            return {"dense": dense_BN, "ids": self._number_words(column_values)}
        if self._options.form == "sparse":
            return self._sparse(numbers_BN, self._number_words(column_values) if self.categories else None)
        parts = [numbers_BN] if self.numbers else []
        if self.categories:
            words_BC = self._number_words(column_values)
            # Word 0 stands for missing and unknown ones and gets no 1.
            parts += [tf.one_hot(words_BC[:, at] - 1, self.sizes[name] - 1) for at, name in enumerate(self.categories)]
        return {"image": tf.concat(parts, axis=1)[:, tf.newaxis, tf.newaxis, :]}

    def names_of_ids(self) -> list[str]:
        """Returns what each id of the form `sparse` stands for: a column of numbers, or a word of another column."""
        names = list(self.numbers)
        for column in self.categories:
            words = self._columns.vocabularies.get(column) or map(str, range(1, self.sizes[column]))
            names += [f"{column}: {word}" for word in ("missing or unknown", *words)]
        return names

    def count_unfamiliar(self, name: str, values: Sequence[str] | np.ndarray, unfamiliar: UnfamiliarInput) -> None:
        """Counts the values of a column that are unlike those of the training rows; hashed words are not known.

        A number is far outside if its distance from their range exceeds the width of the range.

        Args:
            name: Name of the column.
            values: Numbers, float64 [rows], NaN = missing; or words.
            unfamiliar: Counts to add to.
        """
        if isinstance(values, np.ndarray):
            if name in self._columns.ranges:
                least, largest = self._columns.ranges[name]
                present, width = values[~np.isnan(values)], largest - least
                far = present[(present < least - width) | (present > largest + width)]
                kind = f"numbers of column {name!r} far outside of the training rows' {least:g} to {largest:g}"
                unfamiliar.add(kind, Counter(f"{number:g}" for number in far), len(present))
        elif (known := self._known.get(name)) is not None:
            words = [word for word in values if not self._dialect.is_missing(word)]
            new = Counter(word for word in words if word not in known)
            unfamiliar.add(f"values of column {name!r} that no training row has, read as missing", new, len(words))

    def from_texts(self, texts: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the tensors of texts that nothing has checked before.

        If a column of numbers holds another text, or the columns have different lengths, the session's call fails, and
        the message names the columns.

        Args:
            texts: Text of each column of numbers and categories, string [B], by name.
        """
        stripped = {name: tf.strings.strip(text_B) for name, text_B in texts.items()}
        sizes = [tf.size(text_B) for text_B in texts.values()]
        told = f"the columns have different numbers of texts ({', '.join(texts)}):"
        checks = [tf.debugging.Assert(tf.reduce_all(tf.equal(sizes, sizes[0])), [told, *sizes])]
        for name in self.numbers:
            text_B = stripped[name]
            is_wrong_B = tf.logical_not(self._is_missing(text_B) | tf.strings.regex_full_match(text_B, self._number))
            checks.append(
                tf.debugging.Assert(
                    tf.logical_not(tf.reduce_any(is_wrong_B)),
                    [f"column {name!r}: not a number:", tf.boolean_mask(text_B, is_wrong_B)],
                )
            )
        with tf.control_dependencies(checks):
            checked = {name: tf.identity(text_B) for name, text_B in stripped.items()}
        return self.tensors(checked, tf.size(next(iter(checked.values()))))

    def _sparse(self, numbers_BN: tf.Tensor, words_BC: tf.Tensor | None) -> dict[str, tf.Tensor]:
        count = len(self.numbers)
        ids = [tf.zeros_like(numbers_BN, tf.int64) + tf.range(count, dtype=tf.int64)]
        values = [numbers_BN]
        if words_BC is not None:
            firsts = [
                count + sum(self.sizes[name] for name in self.categories[:at]) for at in range(len(self.categories))
            ]
            ids.append(words_BC + tf.constant(firsts, tf.int64))
            values.append(tf.ones_like(words_BC, tf.float32))
        return {"ids": tf.concat(ids, axis=1), "values": tf.concat(values, axis=1)}

    def _scale_numbers(self, column_values: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the numbers, float32 [B, N]; missing ones become the mean."""
        given_BN = tf.stack([column_values[name] for name in self.numbers], axis=1)
        means = tf.constant([self._columns.means[name] for name in self.numbers], tf.float64)
        # In float64, because a column such as a time in seconds varies by little of its size.
        if given_BN.dtype == tf.string:
            is_number_BN = tf.strings.regex_full_match(given_BN, self._number)
            text_BN = tf.where(is_number_BN, given_BN, tf.fill(tf.shape(given_BN), "0"))
            if self._dialect.decimal != ".":
                text_BN = tf.strings.regex_replace(text_BN, self._dialect.decimal, ".")
            numbers_BN = tf.strings.to_number(text_BN, tf.float64)
        else:
            is_number_BN, numbers_BN = tf.logical_not(tf.is_nan(given_BN)), given_BN
        numbers_BN = tf.where(is_number_BN, numbers_BN, tf.zeros_like(numbers_BN) + means)
        if self._options.normalize:
            scales = tf.constant([self._columns.scales[name] for name in self.numbers], tf.float64)
            numbers_BN = (numbers_BN - means) / scales
        return tf.cast(numbers_BN, tf.float32)

    def _number_words(self, column_values: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the number of each word in its column, int64 [B, C]; 0 = missing or unknown."""
        keys, numbers = [], []
        for at, name in enumerate(self.categories):
            for word, number in _numbers_of(self._columns.vocabularies.get(name, ())).items():
                keys.append(f"{at}:{word}")
                numbers.append(number)
        columns = [
            tf.strings.join([f"{at}:", column_values[name]]) if self._columns.kinds[name] == CATEGORY else None
            for at, name in enumerate(self.categories)
        ]
        known = [column for column in columns if column is not None]
        known_numbers = iter(
            tf.unstack(number_table(keys, numbers).lookup(tf.stack(known, axis=1)), num=len(known), axis=1)
            if known
            else []
        )
        words = [
            next(known_numbers) if column is not None else self._hash_word(name, column_values[name])
            for name, column in zip(self.categories, columns, strict=True)
        ]
        return tf.stack(words, axis=1)

    def _hash_word(self, name: str, word_B: tf.Tensor) -> tf.Tensor:
        is_missing_B, trained = self._is_missing(word_B), self._columns.booleans.get(name, ())
        for word, number in _numbers_of(trained).items():
            # As the training rows have it, because an older version recorded nothing and hashed each word as it is.
            word_B = tf.where(tf.equal(word_B, word), tf.fill(tf.shape(word_B), trained[number - 1]), word_B)
        hashed_B = 1 + tf.strings.to_hash_bucket_fast(word_B, self._options.num_buckets - 1)
        return tf.where(is_missing_B, tf.zeros_like(hashed_B), hashed_B)

    def _is_missing(self, text_B: tf.Tensor) -> tf.Tensor:
        """Returns which texts stand for a missing value, bool [B]."""
        missing = ["", *sorted(self._dialect.missing)]
        return tf.reduce_any(tf.equal(text_B[:, tf.newaxis], missing), axis=1)


def number_table(keys: Sequence[str], numbers: Sequence[int]) -> tf.lookup.StaticHashTable:
    """Builds a table from words to numbers; an unknown word has the number 0."""
    with tf.control_dependencies(None):  # a check of the texts must not hold up the table
        # With one key more, as TensorFlow refuses an empty table: columns without any value have no words.
        every_key, every_number = tf.constant([*keys, ""]), tf.constant([*numbers, 0], tf.int64)
        known = tf.lookup.KeyValueTensorInitializer(every_key, every_number)
        return tf.lookup.StaticHashTable(known, 0)


def _numbers_of(vocabulary: Sequence[str]) -> dict[str, int]:
    """Returns the number of each word; Booleans have theirs in each usual case."""
    numbers = {word: number for number, word in enumerate(vocabulary, 1)}
    booleans = {word.lower(): number for word, number in numbers.items()}
    if len(booleans) == len(numbers) and all(map(is_boolean, booleans)):
        numbers |= {case(word): number for word, number in booleans.items() for case in (str, str.title, str.upper)}
    return numbers
