"""Stochastic rounding of float32 numbers to a 16-bit type."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import static_size

# Low bits of a float32 number that the type has no place for.
_DROPPED_BITS = {tf.bfloat16: 16, tf.float16: 13}
_SMALLEST_NORMAL = 2.0**-14  # of float16


def round_at_random(values: tf.Tensor, dtype: tf.DType, seed: tf.Tensor) -> tf.Tensor:
    """Rounds each value to one of its two neighbours in `dtype`, so that the mean over the draws is the value.

    Adding a uniform random number below the last place that remains, and dropping the bits after that place, rounds
    away from 0 with a probability equal to the part that is dropped.

    Args:
        values: Vector of floating-point values.
        dtype: bfloat16 or float16.
        seed: Seed of the draw, int64 [2].

    Returns:
        float32 vector, which a cast to `dtype` does not change further. Infinite numbers and NaN remain. A number whose
        neighbour lies beyond the range of `dtype` may get that neighbour, so saturate the cast.
    """
    exact = tf.cast(values, tf.float32)
    dropped = _DROPPED_BITS[dtype]
    if dtype == tf.float16:
        # Below the smallest normal number the neighbours are as far apart as just above it.
        is_subnormal = tf.cast(tf.abs(exact) < _SMALLEST_NORMAL, tf.float32)
        offset = tf.sign(exact) * (is_subnormal * _SMALLEST_NORMAL)
        rounded = _round_bits(exact + offset, dropped, seed) - offset
    else:
        rounded = _round_bits(exact, dropped, seed)
    # The sum of bits overflows for some NaN, among them the one that GPUs compute.
    return tf.where_v2(tf.math.is_nan(exact), exact, rounded)


def _round_bits(values: tf.Tensor, dropped: int, seed: tf.Tensor) -> tf.Tensor:
    """Rounds float32 values to multiples of 2**dropped in the last place."""
    # Unsigned, because a GPU keeps int32 tensors in the host's memory.
    bits = tf.bitcast(values, tf.uint32) + _random_bits(values, dropped, seed)
    return tf.bitcast(tf.bitwise.bitwise_and(bits, tf.constant(2**32 - 2**dropped, tf.uint32)), tf.float32)


def _random_bits(values: tf.Tensor, num_bits: int, seed: tf.Tensor) -> tf.Tensor:
    """Draws a whole number below 2**num_bits, at most 16 bits, for each value; uint32 vector."""
    size = static_size(values)
    count = tf.size(values) if size is None else size
    # Each draw of 32 bits serves two values: the draws are most of the cost.
    draws = tf.random.stateless_uniform([(count + 1) // 2], seed, minval=None, maxval=None, dtype=tf.uint32)
    halves = tf.cast(tf.reshape(tf.bitcast(draws, tf.uint16), [-1])[:count], tf.uint32)
    return tf.bitwise.right_shift(halves, tf.constant(16 - num_bits, tf.uint32)) if num_bits < 16 else halves
