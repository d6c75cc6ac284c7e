"""Packs several vectors into one message of bytes, because each tensor that travels costs a separate message.

A message of several vectors is a uint8 vector:

    int32 sizes of all vectors of dynamic size but the last | vectors of static size | those of dynamic size

Static sizes are not sent, because both tasks know them from the graph. A single vector travels unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import static_size

_COUNT_DTYPE = tf.int32


def pack(parts: Sequence[tf.Tensor]) -> tuple[tf.Tensor, Callable[[tf.Tensor], list[tf.Tensor]]]:
    """Packs vectors into one message.

    Args:
        parts: Vectors of any numeric dtypes.

    Returns:
        The message, and a function that builds the vectors from it, with ops in the device scope of the call.
    """
    if len(parts) == 1:
        return parts[0], lambda message: [message]
    fixed = [i for i, part in enumerate(parts) if static_size(part) is not None]
    dynamic = [i for i, part in enumerate(parts) if static_size(part) is None]
    # The last vector of dynamic size takes all bytes that remain, so its size does not travel.
    counts = [tf.reshape(tf.size(parts[i], out_type=_COUNT_DTYPE), [1]) for i in dynamic[:-1]]
    message = tf.concat([_to_bytes(part) for part in [*counts, *(parts[i] for i in [*fixed, *dynamic])]], axis=0)
    kinds = [(part.dtype, static_size(part)) for part in parts]

    def unpack(message: tf.Tensor) -> list[tf.Tensor]:
        reader = _Reader(message)
        counts = [reader.take(_COUNT_DTYPE, 1)[0] for _ in dynamic[:-1]]
        found = {i: reader.take(*kinds[i]) for i in fixed}
        # Not strict: without a vector of dynamic size the None, for "all the rest", has no partner.
        found |= {i: reader.take(kinds[i][0], count) for i, count in zip(dynamic, [*counts, None], strict=False)}
        return [found[i] for i in range(len(kinds))]

    return message, unpack


def num_bytes(message: tf.Tensor) -> int | tf.Tensor:
    """Returns the size of a tensor in bytes: a number if its shape is static, otherwise an int64 scalar."""
    size = message.shape.num_elements()
    return (tf.size(message, out_type=tf.int64) if size is None else size) * message.dtype.size


class _Reader:
    """Reads vectors from a message, from its beginning to its end."""

    def __init__(self, message: tf.Tensor):
        self._message = message
        self._position: int | tf.Tensor = 0

    def take(self, dtype: tf.DType, count: int | tf.Tensor | None) -> tf.Tensor:
        """Reads the next `count` elements, or all remaining ones if `count` is None."""
        stop = None if count is None else self._position + count * dtype.size
        taken = self._message[self._position : stop]
        self._position = stop
        return _from_bytes(taken, dtype)


def _to_bytes(part: tf.Tensor) -> tf.Tensor:
    return part if part.dtype == tf.uint8 else tf.reshape(tf.bitcast(part, tf.uint8), [-1])


def _from_bytes(data: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if dtype == tf.uint8:
        return data
    # `tf.bitcast` takes the bytes of a number from the last dimension, which it needs only for longer types.
    return tf.bitcast(tf.reshape(data, [-1, dtype.size] if dtype.size > 1 else [-1]), dtype)
