"""Gradient transform `terngrad`: sends two bits per element."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients import bits as bits_lib
from ps_trainer.gradients.base import Codec, Encoded, Feedback, Scope, Stage
from ps_trainer.gradients.scale import concatenate_vectors, scale_and_concatenate, size_of
from ps_trainer.options import option


class TernGrad(Codec):
    """Ternary gradients: sends −s, 0 or s, drawn at random so that the element is the mean.

        C(g)_i = s · sign(g_i) · b_i        P(b_i = 1) = |g_i| / s        s = max_j |g_j| of the model variable
        before that, with sigma=c:  g_i ← max(−cσ, min(cσ, g_i))        σ = standard deviation of the variable's g

    Source: Wen et al. 2017, "gradient ternarizing", "layer-wise ternarizing" and "gradient clipping" (c = 2.5).
    Bytes: 1/4 per element (2 bits, four elements to a byte) and 4 per model variable. State: a step count.
    Unbiased without sigma; with sigma biased, but with much less variance.

    Departs from the paper: each worker has its own scale, and a layer is a model variable. Rows of tables, and elements
    that a transform before has selected, count as one variable.
    """

    name = "terngrad"
    stage = Stage.PACK
    acts_on_rows = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `TernGrad`."""

        sigma: float | None = option(None, "standard deviations at which to clip; the paper uses 2.5", above=0)

    @property
    def feedback(self) -> Feedback:
        return Feedback.HARMFUL

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        size, count = size_of(values)
        dtype = values.dtype
        parts = [self._clip(part) for part in scope.split(values)]
        scales = tf.stack([tf.reduce_max(tf.abs(part)) for part in parts])
        chances = concatenate_vectors([tf.math.divide_no_nan(tf.abs(part), scales[i]) for i, part in enumerate(parts)])
        random = tf.random.stateless_uniform(tf.shape(values), scope.state.seed(), dtype=dtype)
        # Strictly less, because the draw is in [0, 1): an element of chance 0 is never sent, one of chance 1 always.
        is_kept = random < chances
        is_positive = values > 0
        # Two bits for each element: (sent and positive, sent and negative).
        pairs = tf.stack([is_kept & is_positive, is_kept & ~is_positive], axis=1)

        def decode(packed: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
            flags = bits_lib.unpack(packed, 2 * (size if size is not None else side[1][0]))
            pairs = tf.cast(tf.reshape(flags, [-1, 2]), dtype)
            signs = pairs[:, 0] - pairs[:, 1]
            # `split` needs the static size, which the unpacked message may not have.
            signs.set_shape([size])
            return scale_and_concatenate(scope.split(signs), side[0])

        return Encoded(bits_lib.pack(tf.reshape(pairs, [-1])), (scales, *count), decode)

    def _clip(self, part: tf.Tensor) -> tf.Tensor:
        if self.options.sigma is None:
            return part
        bound = tf.constant(self.options.sigma, part.dtype) * tf.math.reduce_std(part)
        return tf.clip_by_value(part, -bound, bound)
