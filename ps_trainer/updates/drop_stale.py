"""Update rule `drop_stale`: the ps tasks drop gradients that are too old."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.updates.apply import Applier, count_update
from ps_trainer.updates.base import RuleContext, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.counted_step import build_counted_phase, build_counted_step
from ps_trainer.updates.options import DropStaleOptions

_DROPPED = -1


class DropStale(UpdateRule):
    """Asynchronous SGD that drops and counts gradients whose staleness exceeds a bound.

        w_{t+1} = w_t − η_t · g(w_{t−τ})   if τ ≤ staleness;   otherwise w and t do not change

    Source: `tf.contrib.opt.DropStaleGradientOptimizer` of TensorFlow 1.15.

    Worker: 1. read each ps task's clock, then its parameters; 2. compute the gradient; 3. push it; 4. continue,
    with new parameters, when every ps task has applied or dropped its part.
    ps 0, in an exclusive section: 1. τ = clock now − clock that the worker read; 2. if τ ≤ staleness, apply the
    gradient and count it on the clock; 3. read clock and dense parameters for the worker's next step; 4. send the
    decision to the other ps tasks. Other ps tasks, in exclusive sections as well: apply and count if ps 0 did, and
    read. So all ps tasks apply a gradient, or none does, and τ is the number of updates between pull and apply. The
    rows of tables are read when the batch asks for them, so they may be newer.

    `global_step` counts the applied gradients of all workers; a dropped one does not change it. Training always goes
    on: among the gradients of the newest parameters, the first to arrive is applied. The learning rate is per
    gradient, as of a single process with batch size `batch_size`; gradients are neither summed nor averaged. A run
    with `max_steps` ends up to num_workers − 1 steps above it.

    n workers of even speed have a staleness of about n − 1. A bound below that drops most of the work of some
    workers. Gradient transforms that keep a residual treat a dropped gradient as sent.

    Memory on the ps: parameters and slots. Traffic per step and worker: O(parameters) each way, also for a dropped
    gradient, and one number from ps 0 to each other ps task.

    Departures from TensorFlow 1.15: this rule reads the staleness and decides in one exclusive section; there, another
    update could fall in between. The order of updates may differ on other ps tasks than 0, so a gradient that is
    applied there may be staler than the bound. Drops are counted per worker (`gradients_dropped`), not in a variable.
    """

    Options = DropStaleOptions

    def __init__(self, options: DropStaleOptions):
        self._options = options

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        by_ps = grouped_by_ps(context.push.send(gradients), store.num_ps)
        for ps, part in enumerate(by_ps):
            context.applier.create_slots(ps, [gradient.piece for gradient in part])

        def decide(clock_read: tf.Tensor, *values: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
            is_fresh = store.clocks[0].read_value() - clock_read <= self._options.staleness
            return _apply_or_drop(is_fresh, clock_read, store, 0, _pairs(by_ps[0], values), context.applier)

        steps = [build_counted_step(store, context, 0, by_ps[0], decide)]
        with tf.device(store.ps_device(0)):
            # On ps 0, so that one bool travels to each other ps task, not the count.
            is_fresh = steps[0].count[1] >= 0
        for ps, part in enumerate(by_ps[1:], 1):

            def follow(
                clock_read: tf.Tensor,
                *arrived: tf.Tensor | tf.IndexedSlices,
                ps: int = ps,
                part: Sequence[Gradient] = part,
            ) -> tf.Tensor:
                *values, is_fresh = arrived
                return _apply_or_drop(is_fresh, clock_read, store, ps, _pairs(part, values), context.applier)

            steps.append(build_counted_step(store, context, ps, part, follow, is_fresh))
        return TrainStep([build_counted_phase(store, steps, context.push.targets)])


def _apply_or_drop(
    is_fresh: tf.Tensor,
    clock_read: tf.Tensor,
    store: ParameterStore,
    ps: int,
    pairs: Sequence[tuple[Piece, tf.Tensor | tf.IndexedSlices]],
    applier: Applier,
) -> tf.Tensor:
    """Builds the clock of the ps after the step, and the staleness or `_DROPPED`; int64 [2] on the ps."""
    clock = store.clocks[ps]

    def apply() -> tf.Tensor:
        with tf.control_dependencies([applier.apply(ps, pairs)]):
            before = count_update(clock)
        return tf.stack([before + 1, before - clock_read])

    def drop() -> tf.Tensor:
        return tf.stack([clock.read_value(), tf.constant(_DROPPED, tf.int64)])

    with tf.device(store.ps_device(ps)):
        return tf.cond(is_fresh, apply, drop)


def _pairs(
    part: Sequence[Gradient], values: Sequence[tf.Tensor | tf.IndexedSlices]
) -> list[tuple[Piece, tf.Tensor | tf.IndexedSlices]]:
    return [(gradient.piece, value) for gradient, value in zip(part, values, strict=True)]
