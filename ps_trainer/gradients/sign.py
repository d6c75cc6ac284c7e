"""Gradient transform `sign`: sends a bit per element."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients import bits as bits_lib
from ps_trainer.gradients.base import Codec, Encoded, Feedback, Scope, Stage
from ps_trainer.gradients.scale import scale_and_concatenate, size_of
from ps_trainer.options import option


class Sign(Codec):
    """Sends the sign of each element, by itself or times the mean magnitude.

        C(g)_i = sign(g_i)                          scaled=false
        C(g)_i = sign(g_i) · ‖g‖₁ / d               scaled=true; g of one model variable with d elements

    Source: Bernstein et al. 2018 (signSGD), Algorithm 1; scaled with error_feedback before it: Karimireddy et
    al. 2019, Algorithm 1 (EF-signSGD).
    Bytes: 1/8 per element; with scaled=true 4 more per model variable. State: none. Biased; a run adds
    error_feedback before it with scaled=true.

    Unscaled, each step moves each element by the learning rate, so use a small one (as for Adam). Departs from the
    papers: sign(0) is +1, because a bit has only two values. The workers do not vote by majority; the update rule
    applies or averages their signs. Rows of tables, and elements that a transform before has selected, count as one
    variable.
    """

    name = "sign"
    stage = Stage.PACK
    acts_on_rows = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Sign`."""

        scaled: bool = option(False, "multiply by the mean magnitude of the model variable's elements")

    @property
    def feedback(self) -> Feedback:
        return Feedback.NEEDED if self.options.scaled else Feedback.HARMFUL

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        size, count = size_of(values)
        dtype = values.dtype
        scales: tuple[tf.Tensor, ...] = ()
        if self.options.scaled:
            scales = (tf.stack([tf.reduce_mean(tf.abs(part)) for part in scope.split(values)]),)

        def decode(packed: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
            flags = bits_lib.unpack(packed, size if size is not None else side[-1][0])
            signs = tf.where_v2(flags, tf.constant(1, dtype), tf.constant(-1, dtype))
            return scale_and_concatenate(scope.split(signs), side[0]) if scales else signs

        return Encoded(bits_lib.pack(values >= 0), (*scales, *count), decode)
