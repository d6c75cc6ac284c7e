"""Datasets whose examples lie one after the other in files, of each of which it is known how many it has."""

from __future__ import annotations

import abc
import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource, Shard
from ps_trainer.errors import DataError

_CHUNK_RECORDS = 64
"""So many are numbered and chosen among at once: a call of a function for each is what costs."""


class CountedFile(NamedTuple):
    """A file of examples.

    Attributes:
        path: absolute.
        num_records: examples in it.
        num_header_lines: lines before them, where they are lines.
        is_packed: whether it is unpacked, by gzip, when it is read.
    """

    path: pathlib.Path
    num_records: int
    num_header_lines: int = 0
    is_packed: bool = False


class FileSource(DataSource):
    """Examples that lie in files, which are read anew in each epoch: they may be larger than the memory.

    A subclass reads a file by `_open`; where a record is broken, it names the place by `_place`.

    Args:
        train: files of the training examples, at least one.
        test: files of the test examples; empty = of each training file the records 1, 1 + `test_every`, … instead.
        test_every: see `test`.

    Raises:
        DataError: there is no example to train on.
    """

    record_name = "record"
    """What a record is called in messages."""

    def __init__(self, train: Sequence[CountedFile], test: Sequence[CountedFile], *, test_every: int = 10):
        self._files = [("train", file) for file in train] + [("test", file) for file in test]
        self._test_every = 0 if test else test_every
        if self.num_train_examples < 1:
            raise DataError(
                f"{train[0].path}: its only {self.record_name} is a test example;"
                f" give more {self.record_name}s, or a test file"
            )

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return self._num_records("train") - (self._num_held_out() if self._test_every else 0)

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return self._num_held_out() if self._test_every else self._num_records("test")

    @abc.abstractmethod
    def _open(self, path: tf.Tensor, compression: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        """The records of a file in order, dicts of tensors, with what precedes the first and follows the last.

        Args:
            path: string [].
            compression: string [], "GZIP" or "".
            file: int64 [], its number, for `_place`.
        """

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        """Records as `_open` gives them, with "file", its number, and "at", the record's, from 0; both int64."""
        wanted = "train" if self._test_every else split
        numbers = [number for number, (of, _) in enumerate(self._files) if of == wanted]
        counts = [self._num_of(split, self._files[number][1].num_records) for number in numbers]
        before = dict(zip(numbers, itertools.accumulate(counts, initial=0), strict=False))  # of that split
        firsts = [before.get(number, 0) for number in range(len(self._files))]

        def records_of(file: tf.Tensor) -> tf.data.Dataset:
            first = tf.gather(tf.constant(firsts, tf.int64), file)

            def is_chosen(at: tf.Tensor) -> tf.Tensor:
                is_mine = tf.equal((first + self._num_of(split, at)) % shard.count, shard.index)
                if not self._test_every:
                    return is_mine
                return is_mine & tf.equal(tf.equal(at % self._test_every, 0), split == "test")

            return self._records_of(file, is_chosen)

        return tf.data.Dataset.from_tensor_slices(tf.constant(numbers, tf.int64)).flat_map(records_of)

    def _records_of(
        self, file: tf.Tensor, is_chosen: Callable[[tf.Tensor], tf.Tensor] = lambda at: tf.ones_like(at, tf.bool)
    ) -> tf.data.Dataset:
        """Records of one file; `is_chosen` says of their numbers, int64 [n], which are wanted, bool [n]."""
        compression = tf.gather(["GZIP" if file.is_packed else "" for _, file in self._files], file)
        records = self._open(self._path(file), compression, file)
        chunks = records.skip(self._header_lines(file)).take(self._count(file)).batch(_CHUNK_RECORDS)

        def choose(number: tf.Tensor, chunk: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            size = tf.shape(next(iter(chunk.values())), out_type=tf.int64)[0]
            at = number * _CHUNK_RECORDS + tf.range(size)
            chosen = tf.where(is_chosen(at))[:, 0]
            kept = {name: tf.gather(value, chosen) for name, value in chunk.items()}
            return {**kept, "file": tf.fill(tf.shape(chosen), file), "at": tf.gather(at, chosen)}

        return chunks.enumerate().map(choose).unbatch()

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        self._files.append(("other", self._counted(path)))
        return self._records_of(tf.constant(len(self._files) - 1, tf.int64))

    def _counted(self, path: pathlib.Path) -> CountedFile:
        """A file beside those of the dataset, checked as they are."""
        raise self._no_single_file(path)

    def _path(self, file: tf.Tensor) -> tf.Tensor:
        return tf.gather([str(file.path) for _, file in self._files], file)

    def _count(self, file: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.constant([file.num_records for _, file in self._files], tf.int64), file)

    def _header_lines(self, file: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.constant([file.num_header_lines for _, file in self._files], tf.int64), file)

    def _place(self, file: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
        """File and number of records, counted from 1, in words: string, of the shape of `file` and `at`."""
        number = at + self._header_lines(file) + 1
        return tf.strings.join([self._path(file), f": {self.record_name} ", tf.strings.as_string(number)])

    def _num_records(self, split: str) -> int:
        return sum(file.num_records for of, file in self._files if of == split)

    def _num_held_out(self) -> int:
        return sum(self._num_of("test", file.num_records) for _, file in self._files)

    def _num_of(self, split: str, at: int | tf.Tensor) -> int | tf.Tensor:
        """How many of a file's records before the one of number `at` are examples of a split."""
        if not self._test_every:
            return at
        num_test = (at + self._test_every - 1) // self._test_every
        return num_test if split == "test" else at - num_test
