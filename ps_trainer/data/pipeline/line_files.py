"""Datasets whose examples are lines of text files: streamed, checked and parsed by TensorFlow's C++."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import gzip
import pathlib
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.counted_files import CountedFile, FileSource
from ps_trainer.data.pipeline.data_source import folder_of
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

SHUFFLED_LINES = 2**17
"""Lines among which the next one is drawn: all of a smaller shard, a sliding window over a larger one."""

_CHUNK_BYTES = 2**20
_HEAD_BYTES = 2**16
_SHOWN_CHARACTERS = 80


class LineSource(FileSource):
    """Examples that are lines of text files.

    A subclass says what a line looks like by `pattern`, and makes tensors of a batch of lines by `_parse`. A line
    that does not match ends the run, or the evaluation, with an error that names file and line.

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
    record_name = "line"

    def __init__(
        self,
        train: Sequence[CountedFile],
        test: Sequence[CountedFile],
        *,
        pattern: str,
        form: str,
        test_every: int = 10,
    ):
        self._pattern, self._form = pattern, form
        super().__init__(train, test, test_every=test_every)

    @abc.abstractmethod
    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        """Lines, all of which match the pattern, as a batch for the model.

        Args:
            line_B: string [B].
        """

    def _open(self, path: tf.Tensor, compression: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TextLineDataset(path, compression_type=compression).map(lambda line: {"line": line})

    def _counted(self, path: pathlib.Path) -> CountedFile:
        return text_file(path, num_header_lines=self._files[0][1].num_header_lines)

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        line_B = batch["line"]
        is_right_B = tf.strings.regex_full_match(line_B, self._pattern)
        with tf.control_dependencies([self._assert(is_right_B, batch, f"not {self._form}")]):
            return self._parse(tf.identity(line_B))

    def _assert(self, is_right_B: tf.Tensor, batch: dict[str, tf.Tensor], problem: str) -> tf.Operation:
        """Fails where a line is not right, naming the first one."""
        first = tf.argmin(tf.cast(is_right_B, tf.int32))
        line = batch["line"][first]
        shown = tf.strings.substr(line, 0, tf.minimum(_SHOWN_CHARACTERS, tf.strings.length(line)))
        shown = tf.strings.unicode_transcode(shown, "UTF-8", "UTF-8")  # other bytes would hide the message in Python
        place = [self._place(batch["file"][first], batch["at"][first]), f": {problem}: ", shown]
        return tf.debugging.Assert(tf.reduce_all(is_right_B), [tf.strings.join(place)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedFiles:
    """Options of a dataset whose files the user names."""

    train_files: tuple[str, ...] = option((), "names of the files to train on, with commas")
    test_files: tuple[str, ...] = option((), "names of the files to test on; none: a part of the training files")
    test_every: int = option(10, "without test_files, of so many lines one is a test example", least=2)

    def __post_init__(self) -> None:
        if not self.train_files:
            raise OptionError("train_files is not given; name the files, such as train_files=a9a")

    def find(self, dataset: str, data_dir: str | None) -> tuple[list[CountedFile], list[CountedFile]]:
        """The files to train on and to test on, looked at.

        Args:
            dataset: its name, for messages.
            data_dir: their folder.

        Raises:
            DataError: no folder, or a missing or empty file.
        """
        names = [*self.train_files, *self.test_files]
        needs = f"dataset {dataset} needs --data_dir=<folder> with {', '.join(names)}"
        folder = folder_of(data_dir, needs)
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise DataError(f"{folder} has no {', '.join(missing)}; {needs}")
        train, test = ([text_file(folder / name) for name in files] for files in (self.train_files, self.test_files))
        return train, test


def text_file(path: pathlib.Path, *, num_header_lines: int = 0) -> CountedFile:
    """Looks at a whole file: how many lines it has, and whether it is packed by gzip and can be unpacked.

    Args:
        path: of the file.
        num_header_lines: lines before the first example.

    Raises:
        DataError: it cannot be read or unpacked, or it has no line after the header.
    """
    with unpacked(path) as (file, is_packed):
        num_lines = _count_lines(file)
    if num_lines <= num_header_lines:
        after = f" after the header of {num_header_lines}" if num_header_lines else ""
        raise DataError(f"{path}: {num_lines} lines, none{after} to read; is it the right file?")
    return CountedFile(path.resolve(), num_lines - num_header_lines, num_header_lines, is_packed)


@contextlib.contextmanager
def unpacked(path: pathlib.Path) -> Iterator[tuple[BinaryIO, bool]]:
    """Opens a file that may be packed by gzip, which its first bytes tell.

    Gives:
        The bytes, unpacked, and whether they had to be.

    Raises:
        DataError: it cannot be opened, or, while it is read, cannot be read or unpacked.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        with (gzip.open if is_packed else open)(path, "rb") as file:
            yield file, is_packed
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be unpacked ({error}): fetch it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def head(path: pathlib.Path) -> bytes:
    """The first 64 KB of a file, unpacked where it is packed by gzip."""
    with unpacked(path) as (file, _):
        return file.read(_HEAD_BYTES)


def first_line(path: pathlib.Path) -> str:
    """The first line of a text file; "" where it is no text."""
    line = head(path).partition(b"\n")[0].removesuffix(b"\r")
    try:
        return "" if b"\0" in line else line.decode("utf-8")
    except UnicodeDecodeError:
        return ""


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
