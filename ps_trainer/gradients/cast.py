"""Gradient transform `cast`: sends 16-bit numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Codec, Encoded, Scope, Stage
from ps_trainer.gradients.rounding import round_at_random
from ps_trainer.options import option

_DTYPES = {"bfloat16": tf.bfloat16, "float16": tf.float16}
_NEAREST, _STOCHASTIC = "nearest", "stochastic"


class Cast(Codec):
    """Rounds values to 16 bits for the transfer; the ps converts them back to the gradient's own type.

        C(g)_i = the number nearest to g_i in bfloat16 (8 bits of precision) or float16 (11 bits), ties to even
        with rounding=stochastic, and a ≤ |g_i| < b the neighbours of |g_i| in that type:
        C(g)_i = sign(g_i) · b with probability (|g_i| − a) / (b − a), else sign(g_i) · a

    Source: rounding of IEEE 754; Micikevicius et al. 2018 (arXiv:1710.03740) for training in such types; Gupta et
    al. 2015 (arXiv:1502.02551) for stochastic rounding.
    Bytes: 2 per element. State: none; with rounding=stochastic a step count. Biased only by rounding to nearest: the
    relative error is at most 2⁻⁹ (bfloat16) or 2⁻¹² (float16, normal numbers). With rounding=stochastic unbiased, with
    an error of at most twice that.

    Values outside of float16's range (±65504) are sent as the end of the range. Values below 3e-8 are sent as 0 in
    float16; with rounding=stochastic some of them are sent as 6e-8, so that their mean is right. bfloat16 has the range
    of float32. TensorFlow's own `enable_bfloat16_sendrecv` truncates instead of rounding, on every edge.
    """

    name = "cast"
    stage = Stage.PACK
    acts_on_rows = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Cast`."""

        dtype: str = option("bfloat16", "type of the numbers that are sent", choices=tuple(_DTYPES))
        rounding: str = option(
            _NEAREST, "to the nearest number, or at random to one of two neighbours", choices=(_NEAREST, _STOCHASTIC)
        )

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        dtype, sent_dtype = values.dtype, _DTYPES[self.options.dtype]
        if self.options.rounding == _STOCHASTIC:
            values = round_at_random(values, sent_dtype, scope.state.seed())

        def decode(values: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
            return tf.cast(values, dtype)

        # A plain cast would turn values beyond the range of float16 into infinity.
        return Encoded(tf.saturate_cast(values, sent_dtype), (), decode)
