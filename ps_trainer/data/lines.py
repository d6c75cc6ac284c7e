"""Datasets whose examples are lines of text files: streamed, checked and parsed by TensorFlow's C++."""

from __future__ import annotations

import abc
import gzip
import pathlib
import zlib
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.data.base import DataSource, Shard
from ps_trainer.errors import DataError

SHUFFLED_LINES = 2**17
"""Lines among which the next one is drawn: all of a smaller shard, a sliding window over a larger one."""

_CHUNK_BYTES = 2**20
_SHOWN_CHARACTERS = 80


class TextFile(NamedTuple):
    """A file of lines, plain or packed by gzip (told by its first bytes).

    Attributes:
        path: absolute.
        num_lines: lines with examples: without the header, without empty lines at the end.
        num_header_lines: lines before them.
        is_packed: whether it is unpacked when it is read.
    """

    path: pathlib.Path
    num_lines: int
    num_header_lines: int
    is_packed: bool


class LineSource(DataSource):
    """Examples that are lines of text files.

    A subclass says what a line looks like by `pattern`, and makes tensors of a batch of lines by `_parse`. A line
    that does not match ends the run, or the evaluation, with an error that names file and line. Files are read anew in
    each epoch: they may be larger than the memory.

    Args:
        train: files of the training examples, at least one.
        test: files of the test examples; empty = of each training file the lines 1, 1 + `test_every`, … instead.
        test_every: see `test`.
        pattern: RE2, which must match a whole line.
        form: the form of a line in words, for messages.

    Raises:
        DataError: there is no example to train on.
    """

    max_shuffled = SHUFFLED_LINES

    def __init__(
        self,
        train: Sequence[TextFile],
        test: Sequence[TextFile],
        *,
        pattern: str,
        form: str,
        test_every: int = 10,
    ):
        self._files = [("train", file) for file in train] + [("test", file) for file in test]
        self._test_every = 0 if test else test_every
        self._pattern, self._form = pattern, form
        if self.num_train_examples < 1:
            raise DataError(f"{train[0].path}: its only line is a test example; give more lines, or a test file")

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return self._num_lines("train") - (self._num_held_out() if self._test_every else 0)

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return self._num_held_out() if self._test_every else self._num_lines("test")

    @abc.abstractmethod
    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        """Lines, all of which match the pattern, as a batch for the model.

        Args:
            line_B: string [B].
        """

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        numbers = [number for number, (of, _) in enumerate(self._files) if of == split or self._test_every]
        lines = self._lines(numbers[0])
        for number in numbers[1:]:
            lines = lines.concatenate(self._lines(number))
        if self._test_every:
            lines = lines.filter(lambda record: tf.equal(tf.equal(record["at"] % self._test_every, 0), split == "test"))
        return lines.shard(shard.count, shard.index)

    def _lines(self, number: int) -> tf.data.Dataset:
        """The lines of a file: "line"; "file", its number; "at", the line's, from 0 after the header."""
        file = self._files[number][1]
        lines = tf.data.TextLineDataset(str(file.path), compression_type="GZIP" if file.is_packed else "")
        lines = lines.skip(file.num_header_lines).take(file.num_lines)
        return lines.enumerate().map(lambda at, line: {"line": line, "file": number, "at": at})

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        line_B = batch["line"]
        is_right_B = tf.strings.regex_full_match(line_B, self._pattern)
        with tf.control_dependencies([self._assert(is_right_B, batch, f"not {self._form}")]):
            return self._parse(tf.identity(line_B))

    def _assert(self, is_right_B: tf.Tensor, batch: dict[str, tf.Tensor], problem: str) -> tf.Operation:
        """Fails where a line is not right, naming the first one."""
        first = tf.argmin(tf.cast(is_right_B, tf.int32))
        paths = tf.constant([str(file.path) for _, file in self._files])
        header = tf.constant([file.num_header_lines for _, file in self._files], tf.int64)
        file, line = batch["file"][first], batch["line"][first]
        number = batch["at"][first] + tf.gather(header, file) + 1
        shown = tf.strings.substr(line, 0, tf.minimum(_SHOWN_CHARACTERS, tf.strings.length(line)))
        place = [tf.gather(paths, file), ": line ", tf.strings.as_string(number), f": {problem}: ", shown]
        return tf.debugging.Assert(tf.reduce_all(is_right_B), [tf.strings.join(place)])

    def _num_lines(self, split: str) -> int:
        return sum(file.num_lines for of, file in self._files if of == split)

    def _num_held_out(self) -> int:
        return sum(-(-file.num_lines // self._test_every) for _, file in self._files)


def text_file(path: pathlib.Path, *, num_header_lines: int = 0) -> TextFile:
    """Looks at a whole file: how many lines it has, and whether it can be unpacked.

    Args:
        path: of the file.
        num_header_lines: lines before the first example.

    Raises:
        DataError: it cannot be read or unpacked, or it has no line after the header.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        with (gzip.open if is_packed else open)(path, "rb") as file:
            num_lines = _count_lines(file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be unpacked ({error}): fetch it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if num_lines <= num_header_lines:
        after = f" after the header of {num_header_lines}" if num_header_lines else ""
        raise DataError(f"{path}: {num_lines} lines, none{after} to read; is it the right file?")
    return TextFile(path.resolve(), num_lines - num_header_lines, num_header_lines, is_packed)


def _count_lines(file: BinaryIO) -> int:
    """Lines of a file, however it ends; empty ones at its end are none."""
    before, after, has_text = 0, 0, False  # newlines before and after the last text so far
    while chunk := file.read(_CHUNK_BYTES):
        length = len(chunk.rstrip(b"\r\n"))
        if length:
            before += after + chunk.count(b"\n", 0, length)
            after, has_text = 0, True
        after += chunk.count(b"\n", length)
    return before + has_text
