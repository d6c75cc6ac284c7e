"""Gradient transform `qsgd`: sends a byte per element, rounded at random to one of two neighbouring levels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Codec, Encoded, Feedback, Scope, Stage
from ps_trainer.gradients.scale import size_of
from ps_trainer.options import option

_SIGN_BIT = 128
_MAX_LEVELS = _SIGN_BIT - 1
_NORMS = ("l2", "max")


class Qsgd(Codec):
    """Stochastic quantisation to `levels` magnitudes per bucket of elements.

        C(g)_i = ‖g‖ · sign(g_i) · ξ_i / s        ξ_i = ⌊a_i⌋ + 1 with probability a_i − ⌊a_i⌋, else ⌊a_i⌋
        a_i = s · |g_i| / ‖g‖        s = levels        ‖g‖ of the bucket that i lies in

    Source: Alistarh et al. 2017, §3.1 (with ‖·‖₂), and §4 for buckets and the maximum in place of the norm.
    Bytes: 1 per element (sign and seven bits) and 4 per bucket. State: a step count. Unbiased; the variance per
    bucket of d elements is at most min(d/s², √d/s) ‖g‖₂² with norm=l2.

    Departs from the paper: an element takes a byte whatever `levels` is, where the paper adds Elias coding. Buckets are
    cut along the site's vector, across model variables; for tables along the rows that are sent.
    """

    name = "qsgd"
    stage = Stage.PACK
    acts_on_rows = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Qsgd`."""

        levels: int = option(
            _MAX_LEVELS, "magnitudes above zero; a byte holds sign and seven bits", least=1, most=_MAX_LEVELS
        )
        bucket_size: int = option(512, "elements that share a norm", least=1)
        norm: str = option("l2", "l2, or max for the largest magnitude", choices=_NORMS)

    @property
    def feedback(self) -> Feedback:
        # With the variance below ‖g‖² the error shrinks from step to step.
        has_small_variance = self.options.bucket_size < self.options.levels**2
        return Feedback.POSSIBLE if has_small_variance else Feedback.HARMFUL

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        size, count = size_of(values)
        dtype, levels = values.dtype, tf.constant(self.options.levels, values.dtype)
        num_values = tf.size(values) if size is None else size
        buckets = self._in_buckets(tf.abs(values), num_values)
        norms = self._norms(buckets)
        expected = tf.reshape(tf.math.divide_no_nan(buckets, norms[:, tf.newaxis]) * levels, [-1])[:num_values]
        random = tf.random.stateless_uniform(tf.shape(values), scope.state.seed(), dtype=dtype)
        # ⌊a + u⌋ with u uniform in [0, 1) rounds up with the probability a − ⌊a⌋.
        # If the norm was rounded down, the quotient can exceed 1, and the result the largest level.
        magnitudes = tf.cast(tf.minimum(tf.floor(expected + random), levels), tf.uint8)
        packed = magnitudes + tf.cast(values < 0, tf.uint8) * tf.constant(_SIGN_BIT, tf.uint8)

        def decode(packed: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
            num_values = size if size is not None else side[1][0]
            sign = 1 - 2 * tf.cast(packed >= _SIGN_BIT, dtype)
            magnitudes = tf.bitwise.bitwise_and(packed, tf.constant(_SIGN_BIT - 1, tf.uint8))
            buckets = self._in_buckets(sign * tf.cast(magnitudes, dtype), num_values)
            return tf.reshape(buckets * (side[0] / self.options.levels)[:, tf.newaxis], [-1])[:num_values]

        return Encoded(packed, (norms, *count), decode)

    def _in_buckets(self, values: tf.Tensor, num_values: int | tf.Tensor) -> tf.Tensor:
        """Reshapes a vector into rows of one bucket each; zeros fill the last row."""
        bucket_size = self.options.bucket_size
        if isinstance(num_values, int):
            # A bucket that is longer than the vector would only be filled with zeros.
            bucket_size = max(1, min(bucket_size, num_values))
        return tf.reshape(tf.pad(values, [[0, -num_values % bucket_size]]), [-1, bucket_size])

    def _norms(self, buckets: tf.Tensor) -> tf.Tensor:
        if self.options.norm == "max":
            return tf.reduce_max(tf.abs(buckets), axis=1)
        return tf.sqrt(tf.reduce_sum(tf.square(buckets), axis=1))
