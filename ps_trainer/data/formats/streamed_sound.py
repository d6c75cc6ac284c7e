"""WAV files that a program wrote to a pipe: their headers hold a number in place of the size, which was not known yet.

ffmpeg writes 0xFFFFFFFF; sox and espeak write 0x7FFFF000 for the samples, and a little more for the file.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

_LEAST_BYTES = 0x7F000000
"""Least size that stands for an unknown one; TensorFlow decodes no sound as large as that."""

_FILE_SIZE = 4  # place of the size of the file
_FIRST_CHUNK = 12  # place of the first chunk
_CHUNK_HEADER = 8  # bytes of the name and the size of a chunk


def is_streamed(start: bytes, num_bytes: int) -> bool:
    """Returns whether the sizes of a file are unknown, so that its samples last to its end.

    Args:
        start: First bytes of the file, 8 or more.
        num_bytes: Size of the samples by the header.
    """
    of_file = int.from_bytes(start[_FILE_SIZE:][:4], "little")
    return min(of_file, num_bytes) >= _LEAST_BYTES


def decode(content: tf.Tensor) -> tf.Tensor:
    """Decodes a WAV file of one channel with 16 bits, string [], to float32 [samples].

    `decode_wav` alone refuses sizes that are not true.
    """
    return tf.cond(
        _number_at(content, tf.constant(_FILE_SIZE, tf.int64)) >= _LEAST_BYTES,
        lambda: _decode_to_the_end(content),
        lambda: tf.audio.decode_wav(content, desired_channels=1).audio[:, 0],
    )


def _decode_to_the_end(content: tf.Tensor) -> tf.Tensor:
    def is_other(at: tf.Tensor) -> tf.Tensor:
        return tf.not_equal(tf.strings.substr(content, at, 4), "data")

    def skip(at: tf.Tensor) -> tf.Tensor:
        size = _number_at(content, at + 4)
        return at + _CHUNK_HEADER + size + size % 2  # a chunk begins at an even place

    at = tf.while_loop(is_other, skip, [tf.constant(_FIRST_CHUNK, tf.int64)])
    first = at + _CHUNK_HEADER
    rest = tf.cast(tf.strings.length(content), tf.int64) - first
    num_samples = tf.minimum(_number_at(content, at + 4), rest) // 2
    return tf.cast(tf.io.decode_raw(tf.strings.substr(content, first, 2 * num_samples), tf.int16), tf.float32) / 2**15


def _number_at(content: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
    """Returns the number of 4 bytes at a place, int64 []."""
    bytes_4 = tf.io.decode_raw(tf.strings.substr(content, at, 4), tf.uint8)
    return tf.reduce_sum(tf.cast(bytes_4, tf.int64) * [1, 2**8, 2**16, 2**24])
