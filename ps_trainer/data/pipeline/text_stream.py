"""Reads running text in pieces that cut no word, and makes windows of ids, all in TensorFlow's C++."""

from __future__ import annotations

import codecs
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.line_source import check_start, open_unpacked
from ps_trainer.errors import DataError

_BLOCK_IDS = 2**14
_CHUNK_BYTES = 2**16
_LAST_CUT = {"char": r"(?s)^.*", "word": r"(?s)^.*[ \n]"}
"""Pattern of the part that a piece may keep, by unit.

In RE2 "." matches whole UTF-8 characters only, so a cut character is left over.
"""


class Document(NamedTuple):
    """A text in UTF-8: a file, plain or compressed with gzip, or bytes in memory.

    Attributes:
        path: Path of the file; None if the text is in `text`.
        num_bytes: Size of the unpacked text.
        is_packed: Whether the file is compressed with gzip.
        text: Bytes of a text without a file; they become part of the graph.
    """

    path: pathlib.Path | None
    num_bytes: int
    is_packed: bool = False
    text: bytes = b""

    def chunks(self) -> Iterator[bytes]:
        """Yields the bytes in order, for Python.

        Raises:
            DataError: The file cannot be read or unpacked, or is not UTF-8; the message gives the position.
        """
        if self.path is None:
            yield self.text
            return
        # Incremental, because the end of a chunk may cut a character.
        decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
        with open_unpacked(self.path) as (file, _):
            while True:
                chunk = file.read(_CHUNK_BYTES)
                num_pending = len(decoder.getstate()[0])
                try:
                    decoder.decode(chunk, final=not chunk)
                except UnicodeDecodeError as error:
                    at = position - num_pending + error.start
                    raise DataError(f"{self.path}: byte {at}: not UTF-8 ({error.reason}); convert the file") from error
                if not chunk:
                    return
                yield chunk
                position += len(chunk)

    def pieces(self, unit: str) -> tf.data.Dataset:
        """Returns scalar strings which, joined, are the text. None of them ends within a character or a word.

        Args:
            unit: Unit that the pieces do not cut, "char" or "word".
        """
        if self.path is None:
            return tf.data.Dataset.from_tensors(tf.constant(self.text))
        # FixedLengthRecordDataset drops a shorter record at the end, so a second dataset reads the rest of the file.
        num_before = (self.num_bytes - 1) // _CHUNK_BYTES * _CHUNK_BYTES
        chunks = self._bytes(self.num_bytes - num_before, header_bytes=num_before).map(lambda chunk: (chunk, True))
        if num_before:
            before = self._bytes(_CHUNK_BYTES, footer_bytes=self.num_bytes - num_before)
            chunks = before.map(lambda chunk: (chunk, False)).concatenate(chunks)

        def cut(left: tf.Tensor, chunk: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            text, is_last = left + chunk[0], chunk[1]
            rest = tf.strings.regex_replace(text, _LAST_CUT[unit], "", replace_global=False)
            rest = tf.where_v2(is_last, "", rest)
            return rest, tf.strings.substr(text, 0, tf.strings.length(text) - tf.strings.length(rest))

        return chunks.scan(tf.constant(""), cut)

    def _bytes(self, record_bytes: int, **places: int) -> tf.data.Dataset:
        packing = "GZIP" if self.is_packed else ""
        return tf.data.FixedLengthRecordDataset(str(self.path), record_bytes, compression_type=packing, **places)


def document(path: pathlib.Path, facts: Facts | None = None) -> Document:
    """Makes a `Document` of a file; reads all of it to check it and to count its bytes, unless `facts` know it.

    Raises:
        DataError: The file cannot be read or unpacked, is not UTF-8 by its start, or is empty.
    """

    def count() -> list[Any]:
        check_start(path)
        num_bytes = 0
        with open_unpacked(path) as (file, is_packed):
            while chunk := file.read(2**20):
                num_bytes += len(chunk)
        if not num_bytes:
            raise DataError(f"{path}: the file is empty; is it the right file?")
        return [str(path.resolve()), num_bytes, is_packed]

    resolved, *rest = (facts or Facts()).of_file(path, "bytes", count)
    return Document(pathlib.Path(resolved), *rest)


def windows(ids: tf.data.Dataset, *, length: int, stride: int, before: list[int]) -> tf.data.Dataset:
    """Cuts a stream of ids into windows, int32 [length]; ids at the end that do not fill a window are left out.

    Args:
        ids: Vectors int32 of any lengths; joined, they are the stream.
        length: Number of ids in a window, more than `stride`.
        stride: Number of ids from the start of one window to the start of the next.
        before: The `length - stride` ids at the beginning of the first window, which ends after `stride` ids of the
            stream.
    """
    blocks = _blocks(ids, length, stride, before, padding=None)
    return blocks.map(lambda window, _: window).unbatch()


def padded_windows(
    ids: tf.data.Dataset, *, length: int, stride: int, before: list[int], padding: int
) -> tf.data.Dataset:
    """Cuts a stream of ids into windows like `windows`, but keeps all ids and fills the last window with `padding`.

    Returns:
        (window, number): int32 [length], and int32 [], how many of the last `stride` ids are from the stream.
    """
    return _blocks(ids, length, stride, before, padding).unbatch()


def padded_windows_of(
    ids: tf.Tensor, *, length: int, stride: int, before: list[int], padding: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Builds the ops from the ids of a whole text, int32 [N], to what `padded_windows` gives, all at once."""
    return _cut(tf.concat([before, ids], axis=0), tf.size(ids), length, stride, padding)


def _cut(
    joined: tf.Tensor, size: tf.Tensor, length: int, stride: int, padding: int | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts `length - stride` ids and `size` more ones into windows; returns them and their counts of ids."""
    if padding is not None:
        joined = tf.concat([joined, tf.fill([tf.math.floormod(-size, stride)], padding)], axis=0)
    starts = tf.range(-(-size // stride) if padding is not None else size // stride) * stride
    places = starts[:, tf.newaxis] + tf.range(length)
    return tf.ensure_shape(tf.gather(joined, places), [None, length]), tf.minimum(size - starts, stride)


def _blocks(ids: tf.data.Dataset, length: int, stride: int, before: list[int], padding: int | None) -> tf.data.Dataset:
    """Returns windows, int32 [n, length], and their counts of ids from the stream, int32 [n], many at a time."""
    overlap = length - stride

    def cut(last: tf.Tensor, block: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        joined = tf.concat([last, block], axis=0)
        return joined[-overlap:], _cut(joined, tf.size(block), length, stride, padding)

    block_ids = stride * max(1, _BLOCK_IDS // stride)  # only the last block is shorter, and no window follows it
    return ids.rebatch(block_ids).scan(tf.constant(before, tf.int32), cut)
