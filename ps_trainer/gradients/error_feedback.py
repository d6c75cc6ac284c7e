"""Gradient transform `error_feedback`: what a lossy transform leaves out is sent later."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Codec, Encoded, Scope, Stage, Transform, encode_all


class ErrorFeedback(Transform):
    """Adds what was not sent so far to the next gradient; wraps every transform after it.

        p_t = g_t + e_t        send C(p_t)        e_{t+1} = p_t − C(p_t)        e_0 = 0

    so that the sum of what was sent and the residual e are the sum of all gradients.

    Source: Seide et al. 2014 (quantisation with error feedback); Karimireddy et al. 2019, Algorithm 2 (EF-SGD).
    Bytes: those of C. State: e, as large as the dense gradients; the worker decodes what it sends once more
    itself. Biased in a single step; the bias is made up for later when C is a contraction: top_k, random_k with
    scale=false, threshold, cast, one_bit, sign:scaled=true, power_sgd. Around an unbiased C of large variance
    (terngrad, qsgd with few levels) the residual can grow: such a C is meant to stand alone.

    Departs from Karimireddy: the residual is of gradients, not of learning rate times gradient, as the
    learning rate is known to the ps only; the two differ while a schedule changes it. Rows of tables take no
    part and are not coded: the residual of a row that no batch touches would never be sent.
    """

    name = "error_feedback"
    stage = Stage.FEEDBACK

    def around(self, inner: Sequence[Codec]) -> Codec:
        """The codec that encodes by `inner` and feeds its error back."""
        return _Feedback(inner)


class _Feedback(Codec):
    name = ErrorFeedback.name
    stage = Stage.FEEDBACK

    def __init__(self, inner: Sequence[Codec]):
        super().__init__()
        self._inner = inner

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        residual = scope.state.variable("residual", values.shape, values.dtype)
        corrected = values + residual.read_value()
        encoded = encode_all(self._inner, corrected, scope)
        scope.state.update(residual, corrected - encoded.decode(encoded.values, encoded.side))
        return encoded
