"""Running text as a stream: of pieces that cut no word, and of windows of ids; all in TensorFlow's C++."""

from __future__ import annotations

import codecs
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.line_files import unpacked
from ps_trainer.errors import DataError

_BLOCK_IDS = 2**14
_CHUNK_BYTES = 2**16
_LAST_CUT = {"char": r"(?s)^.*", "word": r"(?s)^.*[ \n]"}  # "." is whole characters of UTF-8 only


class Document(NamedTuple):
    """A text in UTF-8: a file, plain or packed by gzip, or bytes in memory.

    Attributes:
        path: of the file; None = `text` is it.
        num_bytes: unpacked.
        is_packed: whether the file is unpacked when it is read.
        text: the bytes, where there is no file; they become part of the graph.
    """

    path: pathlib.Path | None
    num_bytes: int
    is_packed: bool = False
    text: bytes = b""

    def chunks(self) -> Iterator[bytes]:
        """The bytes in order, for a look at all of them in Python.

        Raises:
            DataError: the file cannot be read or unpacked, or is not UTF-8; with the position.
        """
        if self.path is None:
            yield self.text
            return
        decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
        with unpacked(self.path) as (file, _):
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
        """The text as scalar strings that together are the text, none of which ends within a character or a word.

        Args:
            unit: what is not to be cut, "char" or "word".
        """
        if self.path is None:
            return tf.data.Dataset.from_tensors(tf.constant(self.text))
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


def document(path: pathlib.Path) -> Document:
    """A file's document.

    Raises:
        DataError: it cannot be read or unpacked, or it is empty.
    """
    num_bytes = 0
    with unpacked(path) as (file, is_packed):
        while chunk := file.read(2**20):
            num_bytes += len(chunk)
    if not num_bytes:
        raise DataError(f"{path}: no text in it; is it the right file?")
    return Document(path.resolve(), num_bytes, is_packed)


def windows(ids: tf.data.Dataset, *, length: int, stride: int, before: list[int]) -> tf.data.Dataset:
    """Windows int32 [length] on a stream of ids, one every `stride` ids; ids at the end that fill none are left out.

    Args:
        ids: vectors int32 of any lengths, which together are the stream.
        length: ids of a window, more than `stride`.
        stride: ids from one window's start to the next one's.
        before: `length - stride` ids, with which the first window begins, so that it ends after `stride` ids.
    """
    blocks = _blocks(ids, length, stride, before, padding=None)
    return blocks.map(lambda window, _: window).unbatch()


def padded_windows(
    ids: tf.data.Dataset, *, length: int, stride: int, before: list[int], padding: int
) -> tf.data.Dataset:
    """The same on all ids: the last window is filled up with `padding`.

    Returns:
        (window, number): int32 [length] and int32 [], how many of its last `stride` ids are the stream's.
    """
    return _blocks(ids, length, stride, before, padding).unbatch()


def _blocks(ids: tf.data.Dataset, length: int, stride: int, before: list[int], padding: int | None) -> tf.data.Dataset:
    """Windows int32 [n, length] and their numbers int32 [n], for many ids at a time; see `padded_windows`."""
    overlap = length - stride

    def cut(last: tf.Tensor, block: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        joined, size = tf.concat([last, block], axis=0), tf.size(block)
        if padding is not None:
            missing = tf.math.floormod(-size, stride)
            joined, size = tf.concat([joined, tf.fill([missing], padding)], axis=0), size + missing
        starts = tf.range(size // stride) * stride
        places = starts[:, tf.newaxis] + tf.range(length)
        numbers = tf.minimum(tf.size(block) - starts, stride)
        return joined[-overlap:], (tf.ensure_shape(tf.gather(joined, places), [None, length]), numbers)

    block_ids = stride * max(1, _BLOCK_IDS // stride)  # only the last block is shorter, and no window follows it
    return ids.rebatch(block_ids).scan(tf.constant(before, tf.int32), cut)
