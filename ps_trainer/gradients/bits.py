"""Packs booleans eight to a byte, lowest bit first."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

_WEIGHTS = tuple(1 << bit for bit in range(8))


def pack(bits: tf.Tensor) -> tf.Tensor:
    """Packs a bool vector of n elements into a uint8 vector of ⌈n/8⌉ bytes; zeros fill the last byte."""
    size = bits.shape.num_elements()
    missing = -(tf.size(bits) if size is None else size) % 8
    padded = tf.pad(tf.cast(bits, tf.uint8), [[0, missing]])
    # Each weight occurs at most once in a sum, so a byte cannot overflow.
    return tf.reduce_sum(tf.reshape(padded, [-1, 8]) * tf.constant(_WEIGHTS, tf.uint8), axis=1)


def unpack(packed: tf.Tensor, size: int | tf.Tensor) -> tf.Tensor:
    """Unpacks the first `size` booleans from the result of `pack`."""
    masked = tf.bitwise.bitwise_and(packed[:, tf.newaxis], tf.constant(_WEIGHTS, tf.uint8))
    return tf.reshape(tf.not_equal(masked, tf.constant(0, tf.uint8)), [-1])[:size]
