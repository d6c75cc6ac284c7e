"""Your own update rule: a gradient that is too stale moves the parameters half as far."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.options import option
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.apply import count_update
from ps_trainer.updates.base import RuleContext, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.counted_step import PsStepOps, build_counted_phase, build_counted_step


class HalfWhenStale(UpdateRule):
    """Asynchronous SGD that halves the learning rate of a gradient whose staleness exceeds a bound.

        w_{t+1} = w_t − η · g(w_{t−τ})         if τ ≤ bound
        w_{t+1} = w_t − η/2 · g(w_{t−τ})       otherwise

    Worker: 1. read each ps task's clock and parameters; 2. compute the gradient; 3. push it; 4. wait until every ps
    task has applied its part.
    ps: 1. enter the exclusive section; 2. compute τ; 3. apply; 4. count; 5. read the next parameters.

    `global_step` counts gradients applied.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `HalfWhenStale`."""

        bound: int = option(4, "largest staleness that keeps the full learning rate", least=0, shared=True)

    def __init__(self, options: Options):
        self._bound = options.bound

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        counts = []
        for ps, part in enumerate(grouped_by_ps(context.push.send(gradients), store.num_ps)):
            context.applier.create_slots(ps, [gradient.piece for gradient in part])
            counts.append(self._apply(store, ps, part, context))
        return TrainStep([build_counted_phase(store, counts, context.push.targets)])

    def _apply(self, store: ParameterStore, ps: int, part: Sequence[Gradient], context: RuleContext) -> PsStepOps:
        def apply(clock_read: tf.Tensor, *values: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
            staleness = store.clocks[ps].read_value() - clock_read
            factor = tf.where(staleness > self._bound, 0.5, 1.0)
            pairs = [(gradient.piece, value) for gradient, value in zip(part, values, strict=True)]
            apply_op = context.applier.apply(ps, pairs, rate_factor=factor)
            with tf.control_dependencies([apply_op, staleness]):
                return tf.stack([count_update(store.clocks[ps]) + 1, staleness])

        # One section for each ps task, so no other worker's update falls between the clock and the apply.
        return build_counted_step(store, context, ps, part, apply)
