"""Update rule `staleness_aware`: a staler gradient has a smaller learning rate."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.apply import count_update
from ps_trainer.updates.base import RuleContext, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.counted_step import PsStepOps, build_counted_phase, build_counted_step


class StalenessAware(UpdateRule):
    """Asynchronous SGD that divides each gradient's learning rate by its staleness.

        w_{t+1} = w_t − (η_t / max(1, τ)) · g(w_{t−τ})          τ = staleness of this gradient on this ps task

    Source: staleness-dependent learning rate, Zhang, Gupta, Lian and Liu 2016 ("Staleness-aware async-SGD for
    distributed deep learning"): α₀/τ for a gradient of staleness τ > 0, α₀ for one of staleness 0.

    Worker: 1. read each ps task's clock, then its parameters; 2. compute the gradient; 3. push it; 4. continue
    when every ps task has applied its part.
    ps, in an exclusive section: 1. τ = clock now − clock that the worker read; 2. apply the gradient with the learning
    rate divided by max(1, τ); 3. count it on the clock; 4. read clock and dense parameters for the worker's next step.
    So the τ in the rate equals the reported staleness, the number of updates between pull and apply. The rows of tables
    are read when the batch asks for them, so they may be newer.

    `global_step` counts the applied gradients of all workers. The learning rate is per gradient, as of a single
    process with batch size `batch_size`; gradients are neither summed nor averaged. Because τ is about num_workers − 1,
    n workers move the parameters per unit of time about as far as one process does, with less noise. With few workers
    the learning rate may be higher than for `async`. With momentum or Adam the rule divides the rate of the step, and
    the gradient enters the averages undivided. A run with `max_steps` ends up to num_workers − 1 steps above it.

    Memory on the ps: parameters and slots. Traffic per step and worker: O(parameters) each way.

    Departures from the paper: there, c gradients make one update (n-softsync), each with its own rate. Here every
    gradient is an update, the paper's case c = 1. Each ps task has its own τ, because ps tasks apply updates in
    different orders.
    """

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        counts = []
        for ps, part in enumerate(grouped_by_ps(context.push.send(gradients), store.num_ps)):
            context.applier.create_slots(ps, [gradient.piece for gradient in part])
            counts.append(_apply_exclusively(store, ps, part, context))
        return TrainStep([build_counted_phase(store, counts, context.push.targets)])


def _apply_exclusively(store: ParameterStore, ps: int, part: Sequence[Gradient], context: RuleContext) -> PsStepOps:
    def apply(clock_read: tf.Tensor, *values: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
        staleness = store.clocks[ps].read_value() - clock_read
        factor = 1.0 / tf.cast(tf.maximum(staleness, 1), tf.float32)
        pairs = [(gradient.piece, value) for gradient, value in zip(part, values, strict=True)]
        apply_op = context.applier.apply(ps, pairs, rate_factor=factor)
        # The staleness among the controls serves a ps task without a gradient, whose apply does not wait for it.
        with tf.control_dependencies([apply_op, staleness]):
            return tf.stack([count_update(store.clocks[ps]) + 1, staleness])

    return build_counted_step(store, context, ps, part, apply)
