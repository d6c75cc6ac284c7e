"""Gradient transform `cast`: sends 16-bit numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Codec, Encoded, Scope, Stage
from ps_trainer.options import option

_DTYPES = {"bfloat16": tf.bfloat16, "float16": tf.float16}


class Cast(Codec):
    """Rounds values to 16 bits for the transfer; the ps converts them back to the gradient's own type.

        C(g)_i = the number nearest to g_i in bfloat16 (8 bits of precision) or float16 (11 bits), ties to even

    Source: rounding of IEEE 754; Micikevicius et al. 2018 (arXiv:1710.03740) for training in such types.
    Bytes: 2 per element. State: none. Biased only by rounding: the relative error is at most 2⁻⁹ (bfloat16) or 2⁻¹²
    (float16, normal numbers); error_feedback compensates for it.

    Values outside of float16's range (±65504) are sent as the end of the range, and values below 6e-8 as 0. bfloat16
    has the range of float32. TensorFlow's own `enable_bfloat16_sendrecv` truncates instead of rounding, on every edge.
    """

    name = "cast"
    stage = Stage.PACK
    acts_on_rows = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Cast`."""

        dtype: str = option("bfloat16", "type of the numbers that are sent", choices=tuple(_DTYPES))

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        dtype = values.dtype

        def decode(values: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
            return tf.cast(values, dtype)

        # A plain cast would turn values beyond the range of float16 into infinity.
        return Encoded(tf.saturate_cast(values, _DTYPES[self.options.dtype]), (), decode)
