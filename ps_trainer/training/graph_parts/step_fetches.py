"""The tensors and ops that a worker fetches in one step, built for each phase of its update rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.training.graph_parts import combined_result
from ps_trainer.training.graph_parts.worker_state_saver import OwnVariables
from ps_trainer.updates.base import Phase, TrainStep


class StepFetches(NamedTuple):
    """Graph nodes that one step runs; the session returns their values under the same names.

    Attributes:
        global_step: `Phase.global_step`.
        staleness: `Phase.staleness`.
        loss: Loss of the step's own batch, float scalar on the worker.
        times: Times in seconds since the epoch at which the gradient was computed and the update was applied. Empty
            unless steps are logged (`step_log.py`).
        counts: Pushes of this worker, as `PushCounts.build` returns them. Empty for a worker without its own state.
        targets: Ops to run with the step. They return no values.
    """

    global_step: Any
    staleness: Any
    loss: Any
    times: Sequence[Any]
    counts: Sequence[Any]
    targets: Sequence[Any]


def build(
    store: ParameterStore,
    step: TrainStep,
    loss: tf.Tensor,
    count_ops: Sequence[Sequence[tf.Operation]],
    *,
    timed: Sequence[Gradient] | None,
    own: OwnVariables | None,
) -> list[StepFetches]:
    """Builds the fetches of each phase in the default graph.

    Args:
        store: Parameter store.
        step: Step as the update rule built it.
        loss: Loss of the step's batch.
        count_ops: For each phase, the ops that count its batch.
        timed: Gradients whose time is logged; None if steps are not logged.
        own: Variables of this worker that are saved beside the checkpoints; None if there are none.
    """
    fetches = []
    with tf.device(store.worker_device):
        computed = None if timed is None else _time_after([gradient.value for gradient in timed])
        for phase, batch_ops in zip(step.phases, count_ops, strict=True):
            # The second time also waits for the first: a task that holds the parameters itself may be faster with the
            # update than with taking that time.
            times = [] if computed is None else [computed, _time_after([phase.global_step, computed])]
            counts = own.push_counts.build(phase) if own is not None else []
            if _is_only_pull(store, step, phase):
                # A fetch from a ps task is a message. An op on the worker can read the counts from a combined one.
                counts = [tf.identity(count) for count in counts]
            targets = [*phase.targets, *_pull_ops(store, step, phase, counts), *batch_ops]
            if not phase.is_local:  # the variables of these ops are on the ps tasks
                targets += tf.get_collection(tf.GraphKeys.UPDATE_OPS)
            if own is not None and counts:
                # Built last: the copies wait for every op of the phase that reads or changes the worker's own state.
                targets.append(own.after_pushes.build([phase.global_step, phase.staleness, loss, *targets]))
            fetches.append(StepFetches(phase.global_step, phase.staleness, loss, times, counts, targets))
    return fetches


def _pull_ops(store: ParameterStore, step: TrainStep, phase: Phase, counts: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Builds the ops that bring the parameters of the next step to the worker, with the step's result if possible."""
    if store.keeps_replica:
        return []
    if phase.applied is None:
        return store.pull.build_hold()
    snapshot = store.read(phase.applied) if phase.pulled is None else store.combine_snapshots(phase.pulled)
    arrived: Mapping[str, tf.Tensor] = {}
    if _is_only_pull(store, step, phase):
        results = [phase.global_step, phase.staleness, *counts]
        arrived = combined_result.combine(store, snapshot, results)
    return store.pull.build_pull(snapshot, step.on_pull, arrived)


def _is_only_pull(store: ParameterStore, step: TrainStep, phase: Phase) -> bool:
    """Returns whether this phase alone pulls; phases may share the ops of their result, which can read one message."""
    pulls = [other for other in step.phases if other.applied is not None]
    return not store.keeps_replica and len(pulls) == 1 and pulls[0] is phase


def _time_after(values: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Returns the time at which all values have been computed, in seconds since the epoch."""
    with tf.control_dependencies([getattr(value, "values", value) for value in values]):
        return tf.timestamp()
