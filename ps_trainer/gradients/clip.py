"""Gradient transforms `clip_norm` and `clip_value`: bound the gradient before any encoding."""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Stage, Transform
from ps_trainer.options import option


def clip_to_norm(values: list[tf.Tensor], norm: float) -> list[tf.Tensor]:
    """Scales `values` to a global norm of at most `norm`; the values may have different types."""
    # One type for `tf.global_norm`, and at least 32 bits, because squares of 16-bit values may overflow.
    dtype = tf.float64 if tf.float64 in {value.dtype for value in values} else tf.float32
    global_norm = tf.global_norm([tf.cast(value, dtype) for value in values])
    return tf.clip_by_global_norm(values, norm, use_norm=global_norm)[0]


class ClipNorm(Transform):
    """Scales the worker's whole gradient so that its global norm stays below a bound.

        g ← g · min(1, norm / ‖g‖₂)        ‖g‖₂ over everything that this worker sends, tables included

    Source: Pascanu et al. 2013, Algorithm 1; `tf.clip_by_global_norm`.
    Bytes: those of the values. State: none. Biased if it clips.

    If a batch looks up a row of a table several times, the row's gradients are summed first, so the norm is the
    whole gradient's. An infinite gradient becomes NaN, as in `tf.clip_by_global_norm`, and the loss check ends the run.
    """

    name = "clip_norm"
    stage = Stage.VALUE

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `ClipNorm`."""

        norm: float = option(1.0, "largest global norm of a worker's gradient", above=0)

    def reduce(self, values: list[tf.Tensor], num_workers: int) -> list[tf.Tensor]:
        return clip_to_norm(values, self.options.norm)


class ClipValue(Transform):
    """Clips every element of the gradient to ±value.

        g_i ← max(−value, min(value, g_i))

    Source: `tf.clip_by_value`; Graves 2013 (arXiv:1308.0850), for recurrent networks.
    Bytes: those of the values. State: none. Biased if it clips.
    """

    name = "clip_value"
    stage = Stage.VALUE

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `ClipValue`."""

        value: float = option(1.0, "largest magnitude of an element", above=0)

    def reduce(self, values: list[tf.Tensor], num_workers: int) -> list[tf.Tensor]:
        return [tf.clip_by_value(value, -self.options.value, self.options.value) for value in values]
