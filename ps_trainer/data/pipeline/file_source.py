"""Datasets whose examples lie one after the other in files, with a known number of examples per file."""

from __future__ import annotations

import abc
import copy
import itertools
import pathlib
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.unfamiliar_input import UnfamiliarInput
from ps_trainer.errors import DataError

Source = TypeVar("Source", bound="FileSource")

_CHUNK_RECORDS = 64
"""Records that one call numbers and filters; a call of the function for each record would cost most of the time."""


class CountedFile(NamedTuple):
    """A file of examples.

    Attributes:
        path: Absolute path of the file.
        num_records: Number of examples in it.
        num_header_lines: Number of lines before the first example, in a file of lines.
        is_packed: Whether the file is compressed with gzip.
        num_joined: Number of line ends inside double quotes, in a file of lines. In a table the row goes on after them.
    """

    path: pathlib.Path
    num_records: int
    num_header_lines: int = 0
    is_packed: bool = False
    num_joined: int = 0


LINES = pathlib.Path("<lines>")
"""Stands for the file of lines that a `LineDecoder` gets, in messages."""


class LineDecoder(NamedTuple):
    """A decoder of the lines of a checked file.

    Attributes:
        form: All other values on which `decode` depends; with equal ones, its ops serve another file, too.
        decode: Function that builds the ops from lines without their ends, string [B], to a batch.
    """

    form: Hashable
    decode: Callable[[tf.Tensor], dict[str, tf.Tensor]]


class FileSource(DataSource):
    """Examples that lie in files. Each epoch reads the files again, so they may be larger than the memory.

    A subclass reads a file in `_open`. Its messages about a broken record name the place with `_place`.

    Args:
        train: Files of the training examples, at least one.
        test: Files of the test examples. If empty, records 1, 1 + `test_every`, … of each training file are the test
            examples.
        test_every: Distance between two test examples of a training file. Unused if `test` has files.

    Raises:
        DataError: No example is left for training.
    """

    record_name = "record"
    """Word for a record in messages."""

    def __init__(self, train: Sequence[CountedFile], test: Sequence[CountedFile], *, test_every: int = 10):
        self._files = [("train", file) for file in train] + [("test", file) for file in test]
        self._test_every = 0 if test else test_every
        self.num_header_lines = train[0].num_header_lines
        self.unfamiliar: UnfamiliarInput = UnfamiliarInput()
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
        """Returns the records of a file in order, as dicts of tensors.

        The result may begin with header lines and may have more records than the file's `num_records`; the caller cuts
        both off.

        Args:
            path: string [], path of the file.
            compression: string [], "GZIP" or "".
            file: int64 [], number of the file, for `_place`.
        """

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        """Returns the records of `_open` with two more int64 entries: "file" and "at", the numbers from 0 of both."""
        wanted = "train" if self._test_every else split
        numbers = [number for number, (of, _) in enumerate(self._files) if of == wanted]
        counts = [self._num_of(split, self._files[number][1].num_records) for number in numbers]
        # Shards count the examples of the whole split, so each file needs the number of examples in the files before.
        before = dict(zip(numbers, itertools.accumulate(counts, initial=0), strict=False))
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
        """Returns records of one file; `is_chosen` maps their numbers, int64 [n], to a mask of those kept, bool [n]."""
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

    def read(self, path: pathlib.Path, batch_size: int) -> tf.data.Dataset:
        """Returns every example of another file, in file order; the last batch may be smaller."""
        self._check_suffix(path)  # before a subclass reads a header
        return super(FileSource, self._to_predict(path)).read(path, batch_size)

    def _to_predict(self: Source, path: pathlib.Path) -> Source:
        """Returns a copy that reads a file to predict for, so that this dataset keeps nothing about the file.

        A subclass adapts the copy to the file. Messages of the copy name no option of the training: the trained model
        needs the options that it was trained with.
        """
        del path
        other = copy.copy(self)
        other._files = list(self._files)
        return other

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        # In the list, so that messages can name the file by its number; "other" belongs to no split.
        self._files.append(("other", self._count_file(path)))
        return self._records_of(tf.constant(len(self._files) - 1, tf.int64)).map(self._complete_for_prediction)

    def line_decoder(self, path: pathlib.Path) -> LineDecoder | None:
        """Checks a file of lines, and returns how to decode its lines without reading it again.

        Returns:
            None if the dataset cannot do that; `read` can.

        Raises:
            DataError: The file is empty, or a line is wrong. What only the ops see, they name as a line of `LINES`.
        """
        if not self.reads_lines:
            return None
        other = self._to_predict(path)
        file = other._count_file(path)
        if file.num_joined:
            raise DataError(
                f"{path}: a value in quotes has a line end, but each line must be a row; only a file may have it"
            )
        return other._decoder_of(file._replace(path=LINES))

    def _decoder_of(self, file: CountedFile) -> LineDecoder:
        """Returns how a copy for a file to predict for decodes the lines of the file."""
        self._files.append(("other", file))
        return LineDecoder(file.num_header_lines, self._decode_lines)

    def _decode_lines(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decodes lines of the last file, string [B]; the first one is the first after the header."""
        count = tf.size(line_B, out_type=tf.int64)
        records = {"line": line_B, "file": tf.fill([count], tf.constant(len(self._files) - 1, tf.int64))}
        return self._decode(self._complete_for_prediction(records | {"at": tf.range(count)}))

    def _complete_for_prediction(self, records: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Completes records of another file, one or many, which lack what only a model in training needs."""
        return records

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        """Checks a file that is not one of the dataset's own, and counts its records."""
        raise self._no_single_file(path)

    def _path(self, file: tf.Tensor) -> tf.Tensor:
        return tf.gather([str(file.path) for _, file in self._files], file)

    def _count(self, file: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.constant([file.num_records for _, file in self._files], tf.int64), file)

    def _header_lines(self, file: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.constant([file.num_header_lines for _, file in self._files], tf.int64), file)

    def _place(self, file: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
        """Names file and number of records, counted from 1: string, with the shape of `file` and `at`."""
        number = at + self._header_lines(file) + 1
        return tf.strings.join([self._path(file), f": {self.record_name} ", tf.strings.as_string(number)])

    def _num_records(self, split: str) -> int:
        return sum(file.num_records for of, file in self._files if of == split)

    def _num_held_out(self) -> int:
        return sum(self._num_of("test", file.num_records) for _, file in self._files)

    def _num_of(self, split: str, at: int | tf.Tensor) -> int | tf.Tensor:
        """Counts the examples of a split among the first `at` records of a file."""
        if not self._test_every:
            return at
        num_test = (at + self._test_every - 1) // self._test_every
        return num_test if split == "test" else at - num_test
