"""Gradient transform `one_bit`: sends a bit per element and two values per model variable."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients import bits as bits_lib
from ps_trainer.gradients.base import Codec, Encoded, Feedback, Scope, Stage
from ps_trainer.gradients.scale import concatenate_vectors, size_of


class OneBit(Codec):
    """1-bit quantisation: the sign of each element, and the means of the elements of either sign.

        C(g)_i = mean{g_j : g_j ≥ 0} if g_i ≥ 0, else mean{g_j : g_j < 0}        j over the same model variable

    Source: Seide et al. 2014 (1-bit SGD); the means are the values of least squared error.
    Bytes: 1/8 per element and 8 per model variable. State: none. Biased, but with zero total error: the sum of the
    elements does not change. It needs error_feedback before it, as in the paper; a run adds it.

    Departs from Seide: a pair of values per model variable, where the paper has one per column of a weight matrix. Rows
    of tables, and elements that a transform before has selected, count as one variable.
    """

    name = "one_bit"
    stage = Stage.PACK
    acts_on_rows = True

    @property
    def feedback(self) -> Feedback:
        return Feedback.NEEDED

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        size, count = size_of(values)
        is_positive = values >= 0
        pairs = []
        for part in scope.split(values):
            chosen = tf.cast(part >= 0, part.dtype)
            pairs.append(_mean(part, chosen))
            pairs.append(_mean(part, 1 - chosen))

        def decode(packed: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
            means = side[0]
            flags = scope.split(bits_lib.unpack(packed, size if size is not None else side[1][0]))
            return concatenate_vectors(
                [tf.where_v2(flag, means[2 * i], means[2 * i + 1]) for i, flag in enumerate(flags)]
            )

        return Encoded(bits_lib.pack(is_positive), (tf.stack(pairs), *count), decode)


def _mean(part: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """Builds the mean of the chosen elements (a mask of ones and zeros); 0 if none is chosen."""
    return tf.math.divide_no_nan(tf.reduce_sum(part * chosen), tf.reduce_sum(chosen))
