"""Gradient transform `dgc`: Deep Gradient Compression."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.gradients.base import Codec, Encoded, Feedback, Scope, Stage, Transform
from ps_trainer.gradients.clip import clip_to_norm
from ps_trainer.gradients.scale import concatenate_vectors
from ps_trainer.gradients.sparsify import INDEX_DTYPE, keep, num_kept
from ps_trainer.options import option

_WARMUP_STAGES = 4
_MIN_SAMPLED = 10  # sampled elements above the threshold; with fewer the threshold is too inexact
_MIN_SAMPLE = 1000  # a variable below this size is cheap to sort as a whole
_MAX_EXCESS = 2  # if more than this multiple of the wanted number reach the threshold, the largest are selected


class Dgc(Codec):
    """Top-k of a locally accumulated momentum, with the threshold from a sample.

        u ← momentum · u + g        v ← v + u
        chosen = {i : |v_i| is among the largest share `ratio` of |v|}        send v at the chosen i
        u_i, v_i ← 0 for the chosen i (momentum factor masking)

    Source: Lin et al. 2018, Algorithm 4: sparsification (§3.1), momentum correction and local clipping (§3.2),
    momentum factor masking and warm-up (§3.3), the threshold from a sample (§5).

    Per model variable, on the worker: 1. optionally clip the worker's gradient to clip_norm / √num_workers;
    2. update u and v; 3. draw a share `sample` of |v| at random, but at least 1000 elements and 10 / ratio (a smaller
    variable as a whole), and compute the threshold from it; 4. choose the elements that reach the threshold; if they
    are more than twice the wanted number, choose the wanted number of largest among them; 5. send value and index;
    6. set u and v to 0 there.
    During the first `warmup_steps` sends the ratio decreases in four equal stages: ratio^(1/5), ^(2/5), ^(3/5), ^(4/5).
    For ratio=0.001 these are the paper's 25 %, 6.25 %, 1.6 % and 0.4 %.

    Bytes: 8 per sent element and 4 per message; on average about 8 · ratio per element, at most 16 · ratio.
    State: u and v, each as large as the dense gradients, and a step count. Biased in a step; v keeps everything that
    was not sent. This is already error feedback, so the transform rejects error_feedback before it.

    The transform applies momentum on the worker, so the ps runs plain sgd; momentum on the ps is rejected
    (`transform_list.check_optimizer`). It needs the learning rate of momentum SGD.

    Departs from the paper: a layer is a model variable (or the part of it that a ps task holds). Values equal to the
    threshold are sent as well, so that the exact number is sent if a whole variable is sampled. Rows of tables pass
    unchanged, without momentum.
    """

    name = "dgc"
    stage = Stage.SELECT

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Dgc`."""

        ratio: float = option(0.001, "share of the elements that are sent after the warm-up", above=0, most=1)
        momentum: float = option(0.9, "momentum factor", least=0, below=1)
        warmup_steps: int = option(0, "sends of a worker during which the ratio decreases to `ratio`", least=0)
        sample: float = option(0.01, "share of a variable's elements that give the threshold", above=0, most=1)
        clip_norm: float | None = option(None, "largest norm of the gradient of all workers", above=0)

    @property
    def feedback(self) -> Feedback:
        return Feedback.HARMFUL

    @property
    def has_momentum(self) -> bool:
        return self.options.momentum > 0

    def check(self, before: Sequence[Transform]) -> None:
        if any(transform.stage == Stage.FEEDBACK for transform in before):
            raise OptionError(
                "--gradient_transform dgc after error_feedback: dgc keeps the unsent part of gradients itself, so it"
                " would be kept twice; leave error_feedback out"
            )

    def reduce(self, values: list[tf.Tensor], num_workers: int) -> list[tf.Tensor]:
        """Clips the worker's gradient to its share of `clip_norm`."""
        if self.options.clip_norm is None:
            return values
        return clip_to_norm(values, self.options.clip_norm / math.sqrt(num_workers))

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        momentum = tf.constant(self.options.momentum, values.dtype)
        velocity = scope.state.variable("velocity", values.shape, values.dtype)
        residual = scope.state.variable("residual", values.shape, values.dtype)
        u = momentum * velocity.read_value() + values
        v = residual.read_value() + u
        chosen, offset = [], 0
        for i, part in enumerate(scope.split(v)):
            chosen.append(self._choose(tf.abs(part), scope, f"sample_{i}") + offset)
            offset += part.shape.num_elements()
        indices = concatenate_vectors(chosen)
        masked = indices[:, tf.newaxis], tf.zeros_like(indices, values.dtype)
        # Momentum factor masking (§3.3): otherwise the old momentum of a sent element would carry it on.
        scope.state.update(velocity, tf.tensor_scatter_nd_update(u, *masked))
        scope.state.update(residual, tf.tensor_scatter_nd_update(v, *masked))
        return keep(v, indices)

    def ratios(self) -> list[float]:
        """Returns the share that is sent in each stage of the warm-up and after it."""
        last = self.options.ratio
        return [last ** (stage / (_WARMUP_STAGES + 1)) for stage in range(1, _WARMUP_STAGES + 1)] + [last]

    def _choose(self, magnitudes: tf.Tensor, scope: Scope, purpose: str) -> tf.Tensor:
        """Returns the indices of the largest elements, approximately, int32."""
        size = magnitudes.shape.num_elements()
        wanted_sample = max(_MIN_SAMPLE, self.options.sample * size, _MIN_SAMPLED / self.options.ratio)
        num_sampled = min(size, math.ceil(wanted_sample))
        sampled = magnitudes
        if num_sampled < size:
            seed = scope.state.seed(purpose)
            # Drawn with repetition, at the cost of the sample. A draw without it would sort the whole variable.
            at = tf.random.stateless_uniform([num_sampled], seed, minval=0, maxval=size, dtype=INDEX_DTYPE)
            sampled = tf.gather(magnitudes, at)
        threshold = tf.math.top_k(sampled, self._num_wanted(num_sampled, scope)).values[-1]
        # Above 0, because a sample of zeros gives the threshold 0, which every element reaches.
        reached = tf.where_v2((magnitudes >= threshold) & (magnitudes > 0))[:, 0]
        wanted, found = self._num_wanted(size, scope), tf.size(reached)
        best = tf.math.top_k(tf.gather(magnitudes, reached), tf.where_v2(found > _MAX_EXCESS * wanted, wanted, found))
        return tf.cast(tf.gather(reached, best.indices), INDEX_DTYPE)

    def _num_wanted(self, size: int, scope: Scope) -> int | tf.Tensor:
        """Returns the number of elements of `size` to send in this step."""
        counts = [num_kept(ratio, size) for ratio in self.ratios()]
        if not self.options.warmup_steps:
            return counts[-1]
        stage = scope.state.step() * _WARMUP_STAGES // self.options.warmup_steps
        return tf.gather(tf.constant(counts, INDEX_DTYPE), tf.minimum(stage, _WARMUP_STAGES))
