"""Datasets whose examples are lines of text files: streamed, checked and parsed by TensorFlow's C++."""

from __future__ import annotations

import abc
import codecs
import contextlib
import dataclasses
import gzip
import io
import pathlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import joined_lines
from ps_trainer.data.pipeline.data_folder import missing_files
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.file_source import LINES, CountedFile, FileSource
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

SHUFFLED_LINES = 2**17
"""Size of the shuffle buffer in lines; a smaller shard is shuffled as a whole."""

UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OTHER_PACKING = {rb"BZh[1-9]1AY&SY": "bzip2", rb"\xfd7zXZ\0": "xz", rb"\x28\xb5\x2f\xfd": "zstd"}  # by the start
_CHUNK_BYTES = 2**20
_HEAD_BYTES = 2**16
_SHOWN_CHARACTERS = 80


class LineSource(FileSource):
    """Examples that are lines of text files.

    A subclass gives the `pattern` of a line, and turns a batch of lines into tensors in `_parse`. A line that does not
    match ends the run or the evaluation with an error that names file and line.

    Args:
        train: Files of the training examples, at least one.
        test: Files of the test examples. If empty, lines 1, 1 + `test_every`, … of each training file are the test
            examples.
        pattern: Regular expression (RE2) that must match a whole line.
        form: Form of a line in words, for messages.
        test_every: Distance between two test examples of a training file. Unused if `test` has files.

    Raises:
        DataError: No example is left for training.
    """

    max_shuffled = SHUFFLED_LINES
    record_name = "line"
    reads_lines = True
    text_inputs = ("line",)

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
        """Turns lines that match the pattern into a batch for the model.

        Args:
            line_B: string [B], lines without their ends.
        """

    def _open(self, path: tf.Tensor, compression: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TextLineDataset(path, compression_type=compression).map(lambda line: {"line": line})

    def from_texts(self, texts: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Builds the ops from lines in the form that `read` reads, string [B] under "line", to a batch."""
        return self._to_predict(LINES)._decoder_of(CountedFile(LINES, 0)).decode(texts["line"])

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        return text_file(path, num_header_lines=self._files[0][1].num_header_lines)

    def _header_lines_of(self, records: Sequence[str]) -> list[bytes]:
        del records
        return head(self._files[0][1].path).split(b"\n")[: self.num_header_lines]

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        line_B = without_mark(batch["line"])
        is_right_B = tf.strings.regex_full_match(line_B, self._pattern)
        with tf.control_dependencies([self._assert(is_right_B, batch | {"line": line_B}, f"not {self._form}")]):
            return self._parse(tf.identity(line_B))

    def _assert(self, is_right_B: tf.Tensor, batch: dict[str, tf.Tensor], problem: str) -> tf.Operation:
        """Builds an op that fails if a line is wrong; its message names the first wrong line."""
        first = tf.argmin(tf.cast(is_right_B, tf.int32))  # of equal values `argmin` returns the first
        line = batch["line"][first]
        shown = tf.strings.substr(line, 0, tf.minimum(_SHOWN_CHARACTERS, tf.strings.length(line)))
        # Python cannot decode an error message that is not UTF-8, and would hide all of it.
        shown = tf.strings.unicode_transcode(shown, "UTF-8", "UTF-8")
        place = [self._place(batch["file"][first], batch["at"][first]), f": {problem}: ", shown]
        return tf.debugging.Assert(tf.reduce_all(is_right_B), [tf.strings.join(place)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedFiles:
    """Options of a dataset whose files the user names."""

    train_files: tuple[str, ...] = option((), "names of the files to train on")
    test_files: tuple[str, ...] = option((), "names of the files to test on; default: a part of the training files")
    test_every: int = option(10, "without test_files, every n-th line of the files is a test example", least=2)

    def __post_init__(self) -> None:
        if not self.train_files:
            raise OptionError("train_files is not given; name the files, for example train_files=a9a")

    def find(
        self, dataset: str, data_dir: str | None, facts: Facts | None = None
    ) -> tuple[list[CountedFile], list[CountedFile]]:
        """Checks the files to train on and the files to test on, and counts their lines.

        Args:
            dataset: Name of the dataset, for messages.
            data_dir: Folder of the files.
            facts: Facts about the files.

        Raises:
            DataError: The folder or a file is missing, or a file is empty.
        """
        facts = facts or Facts()
        names = [*self.train_files, *self.test_files]
        needs = f"dataset {dataset} needs --data_dir=<folder> with {', '.join(names)}"
        folder = facts.folder(data_dir, needs)
        missing = [name for name in names if not facts.has_file(folder / name)]
        if missing:
            raise missing_files(folder, names, missing, needs)
        train, test = (
            [self.count_file(folder / name, facts) for name in files] for files in (self.train_files, self.test_files)
        )
        return train, test

    def count_file(self, path: pathlib.Path, facts: Facts) -> CountedFile:
        """Checks a file, and counts its examples."""
        return text_file(path, facts=facts)


def without_mark(line: tf.Tensor) -> tf.Tensor:
    """Leaves out the byte order mark, which some programs write at the start of a file: string, any shape."""
    return tf.strings.regex_replace(line, "^\ufeff", "")


def text_file(path: pathlib.Path, *, num_header_lines: int = 0, facts: Facts | None = None) -> CountedFile:
    """Reads a whole text file, plain or compressed with gzip, and counts its lines.

    Args:
        path: Path of the file.
        num_header_lines: Number of lines before the first example.
        facts: Facts about files, in place of reading this one.

    Raises:
        DataError: The file cannot be read or unpacked, is not UTF-8 by its start, or has no line after the header.
    """

    def count() -> list[Any]:
        check_start(path)
        with open_unpacked(path) as (file, is_packed):
            num_lines, num_joined = _count_lines(file)
        if num_lines <= num_header_lines:
            after = f" after the header of {num_header_lines}" if num_header_lines else ""
            raise DataError(f"{path}: the file has {num_lines} lines and no example{after}; is it the right file?")
        return [str(path.resolve()), num_lines - num_header_lines, num_header_lines, is_packed, num_joined]

    resolved, *counts = (facts or Facts()).of_file(path, ["lines", num_header_lines], count)
    return CountedFile(pathlib.Path(resolved), *counts)


@contextlib.contextmanager
def open_unpacked(path: pathlib.Path) -> Iterator[tuple[io.BufferedIOBase, bool]]:
    """Opens a file, and unpacks it while it is read if its first two bytes are those of gzip.

    Yields:
        The unpacked bytes as a file, and whether the file is compressed.

    Raises:
        DataError: The file cannot be opened, or cannot be read or unpacked later, in the `with` block.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        with (gzip.open if is_packed else open)(path, "rb") as file:
            yield file, is_packed
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be unpacked ({error}); download it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def check_start(path: pathlib.Path) -> None:
    """Raises DataError if the first bytes of a text file show that it is UTF-16, or compressed with another program."""
    start = head(path)
    if (packing := packing_of(start)) is not None:
        raise DataError(f"{path}: compressed with {packing}; unpack it, or compress it with gzip")
    if start.startswith(UTF_16_MARKS):
        raise DataError(f"{path}: line 1: not UTF-8 but UTF-16; convert the file, for example with {conversion(start)}")


def packing_of(start: bytes) -> str | None:
    """Returns the program other than gzip that has compressed a file, by its first bytes; None if there is none."""
    return next((name for mark, name in _OTHER_PACKING.items() if re.match(mark, start)), None)


def conversion(start: bytes) -> str:
    """Returns a command that converts a file to UTF-8, by its first bytes."""
    return f"iconv -f {'UTF-16' if start.startswith(UTF_16_MARKS) else 'WINDOWS-1252'} -t UTF-8"


def head(path: pathlib.Path) -> bytes:
    """Reads the first 64 KiB of a file, unpacked if it is compressed with gzip."""
    with open_unpacked(path) as (file, _):
        return file.read(_HEAD_BYTES)


def first_line(path: pathlib.Path) -> str:
    """Reads the first line of a text file without its byte order mark; "" if the line is not text in UTF-8."""
    # A line with "\0" is binary data, even if it is valid UTF-8.
    line = head(path).partition(b"\n")[0].removesuffix(b"\r").removeprefix(codecs.BOM_UTF8)
    try:
        return "" if b"\0" in line else line.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def first_lines(path: pathlib.Path, number: int) -> list[str]:
    """Reads the first lines of a text file, at most `number`; none if they are not text in UTF-8.

    The mark that some programs write at the start of a file is left out.
    """
    data = head(path)
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    # The last piece is empty after a final newline, and may be half a line at the end of what was read.
    if data.endswith(b"\n") or len(data) == _HEAD_BYTES:
        lines = lines[:-1]
    try:
        texts = [line.removesuffix(b"\r").decode("utf-8") for line in lines[:number]]
    except UnicodeDecodeError:
        return []
    return [] if any("\0" in text for text in texts) else texts


def _count_lines(file: io.BufferedIOBase) -> tuple[int, int]:
    """Counts the lines of a file, and the line ends inside double quotes.

    The last line may have a newline at its end or not, and empty lines at the end do not count.
    """
    # Newlines before and after the last text so far: those after it count only if more text follows.
    before, after, has_text = 0, 0, False
    num_joined, is_open = 0, False
    while chunk := file.read(_CHUNK_BYTES):
        length = len(chunk.rstrip(b"\r\n"))
        if length:
            before += after + chunk.count(b"\n", 0, length)
            after, has_text = 0, True
        after += chunk.count(b"\n", length)
        num_inside, is_open = joined_lines.count(chunk, is_open=is_open)
        num_joined += num_inside
    return before + has_text, num_joined
