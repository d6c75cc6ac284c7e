"""Gradient transform `error_feedback`: sends later what a lossy transform leaves out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Codec, Encoded, Scope, Stage, Transform, encode_all
from ps_trainer.options import option


class ErrorFeedback(Transform):
    """Adds the part that was not sent so far to the next gradient; wraps every transform after it.

        p_t = g_t + e_t        send C(p_t)        e_{t+1} = p_t − C(p_t)        e_0 = 0

    So everything that was sent plus the residual e is the sum of all gradients.

    Source: Seide et al. 2014 (quantisation with error feedback); Karimireddy et al. 2019, Algorithm 2 (EF-SGD).
    Bytes: those of C. State: e, as large as the dense gradients; the worker itself also decodes what it sends. Biased
    in a single step. Later steps compensate for the bias if C is a contraction: top_k, random_k with scale=false,
    threshold, cast, one_bit, sign:scaled=true, power_sgd. Around an unbiased C of large variance (terngrad, qsgd with
    few levels) the residual can grow; use such a C alone.

    Departs from Karimireddy: the residual contains gradients, not learning rate times gradient, because only the ps
    knows the learning rate. The two differ while a schedule changes it. Only transforms that need no feedback (cast,
    sign, qsgd, terngrad) encode rows of tables, and without it: the residual of a row that no batch touches would never
    be sent.

    A run with top_k, threshold, one_bit, sign:scaled=true, power_sgd or random_k:scale=false has error_feedback before
    them, also if you do not write it; enabled=false leaves it out. A run does not add it if another transform rules it
    out: dgc, which has its own, or sign, terngrad, qsgd with few levels and random_k with scale=true, around which the
    residual can grow.
    """

    name = "error_feedback"
    stage = Stage.FEEDBACK

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `ErrorFeedback`."""

        enabled: bool = option(True, "false leaves it out where a run has it by itself")

    def around(self, inner: Sequence[Codec]) -> Codec:
        """Returns the codec that encodes by `inner` and feeds its error back."""
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
        # The worker decodes its own message, so the residual is exactly what the ps does not receive.
        scope.state.update(residual, corrected - encoded.decode(encoded.values, encoded.side))
        return encoded
