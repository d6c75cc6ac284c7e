"""Gradient transform `dgc`: Deep Gradient Compression."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.gradients.base import Codec, Encoded, Scope, Stage, Transform
from ps_trainer.gradients.clip import clipped
from ps_trainer.gradients.scale import joined
from ps_trainer.gradients.sparsify import INDEX_DTYPE, keep, num_kept
from ps_trainer.options import option

_WARMUP_STAGES = 4
_MIN_SAMPLED = 10  # sampled elements above the threshold: fewer would make it a guess
_MIN_SAMPLE = 1000  # below that the whole variable costs next to nothing
_MAX_EXCESS = 2  # so many times the wanted number are sent before they are selected once more


class Dgc(Codec):
    """Top-k of a locally accumulated momentum, with the threshold from a sample.

        u ← momentum · u + g        v ← v + u
        chosen = {i : |v_i| ≥ the ratio-quantile from above of |v|}        send v at the chosen
        u_i, v_i ← 0 for the chosen i (momentum factor masking)

    Source: Lin et al. 2018, Algorithm 4: sparsification (§3.1), momentum correction and local clipping (§3.2),
    momentum factor masking and warm-up (§3.3), the threshold from a sample (§5).

    Per model variable, on the worker: 1. optionally clip the worker's gradient to clip_norm / √num_workers;
    2. update u and v; 3. draw `sample` of |v| at random (but at least 1000 elements and 10 / ratio;
    a smaller variable as a whole) and take the threshold from that; 4. choose what reaches it, and where that
    is more than twice the wanted number, the wanted number of largest among it; 5. send value and index; 6. set
    u and v to 0 there.
    During the first `warmup_steps` sends the ratio goes down in four equal stages: ratio^(1/5), ^(2/5), ^(3/5),
    ^(4/5), which for ratio=0.001 are the paper's 25 %, 6.25 %, 1.6 % and 0.4 %.

    Bytes: 8 per sent element and 4 per message; on average about 8 · ratio per element, at most 16 · ratio.
    State: u and v, each as large as the dense gradients, and a step count. Biased in a step; what is not sent
    is kept in v. It is error feedback of its own, so error_feedback before it is refused.

    The momentum is here, so the ps runs plain sgd: with a momentum there as well it is refused
    (`parse.check_optimizer`). The learning rate is that of momentum SGD.

    Departs from the paper: a layer is a model variable (or the part of it that a ps task holds); values that
    reach the threshold are sent, not only those above it, so that the exact number is sent where all of a variable is
    sampled. Rows of tables pass unchanged, without momentum.
    """

    name = "dgc"
    stage = Stage.SELECT

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Dgc`."""

        ratio: float = option(0.001, "share of the elements that is sent after the warm-up", above=0, most=1)
        momentum: float = option(0.9, "momentum factor", least=0, below=1)
        warmup_steps: int = option(0, "sends of a worker over which the ratio goes down to `ratio`", least=0)
        sample: float = option(0.01, "share of a variable's elements that the threshold is taken from", above=0, most=1)
        clip_norm: float | None = option(None, "norm of the gradient of all workers to clip at", above=0)

    @property
    def has_momentum(self) -> bool:
        return self.options.momentum > 0

    def check(self, before: Sequence[Transform]) -> None:
        if any(transform.stage == Stage.FEEDBACK for transform in before):
            raise OptionError(
                "--gradient_transform dgc after error_feedback: dgc keeps what it does not send itself, and would"
                " keep it twice; leave error_feedback out"
            )

    def reduce(self, values: list[tf.Tensor], num_workers: int) -> list[tf.Tensor]:
        """See `Transform.reduce`: local gradient clipping."""
        if self.options.clip_norm is None:
            return values
        return clipped(values, self.options.clip_norm / math.sqrt(num_workers))

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
        indices = joined(chosen)
        masked = indices[:, tf.newaxis], tf.zeros_like(indices, values.dtype)
        scope.state.update(velocity, tf.tensor_scatter_nd_update(u, *masked))
        scope.state.update(residual, tf.tensor_scatter_nd_update(v, *masked))
        return keep(v, indices)

    def ratios(self) -> list[float]:
        """The share that is sent in each stage of the warm-up and after it."""
        last = self.options.ratio
        return [last ** (stage / (_WARMUP_STAGES + 1)) for stage in range(1, _WARMUP_STAGES + 1)] + [last]

    def _choose(self, magnitudes: tf.Tensor, scope: Scope, purpose: str) -> tf.Tensor:
        """Indices of about the largest elements, int32."""
        size = magnitudes.shape.num_elements()
        wanted_sample = max(_MIN_SAMPLE, self.options.sample * size, _MIN_SAMPLED / self.options.ratio)
        num_sampled = min(size, math.ceil(wanted_sample))
        sampled = magnitudes
        if num_sampled < size:
            seed = scope.state.seed(purpose)
            at = tf.random.stateless_uniform([num_sampled], seed, minval=0, maxval=size, dtype=INDEX_DTYPE)
            sampled = tf.gather(magnitudes, at)
        threshold = tf.math.top_k(sampled, self._wanted(num_sampled, scope)).values[-1]
        reached = tf.where_v2((magnitudes >= threshold) & (magnitudes > 0))[:, 0]
        wanted, found = self._wanted(size, scope), tf.size(reached)
        best = tf.math.top_k(tf.gather(magnitudes, reached), tf.where_v2(found > _MAX_EXCESS * wanted, wanted, found))
        return tf.cast(tf.gather(reached, best.indices), INDEX_DTYPE)

    def _wanted(self, size: int, scope: Scope) -> int | tf.Tensor:
        """How many of `size` elements are to be sent in this step."""
        counts = [num_kept(ratio, size) for ratio in self.ratios()]
        if not self.options.warmup_steps:
            return counts[-1]
        stage = scope.state.step() * _WARMUP_STAGES // self.options.warmup_steps
        return tf.gather(tf.constant(counts, INDEX_DTYPE), tf.minimum(stage, _WARMUP_STAGES))
