"""Update rule `sync`: gradients of the same step are averaged into one update, by TensorFlow's token queue.

The graph of the rule is here; the chief's loop that runs it is in `sync_chief.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import Gradient, ParameterStore
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.base import RELEASED, Phase, RuleContext, RunPlan, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.options import SyncOptions as Options
from ps_trainer.updates.sync_chief import AggregationGraph, SyncChief


class Sync(UpdateRule):
    """Synchronous SGD: one update from the average of R gradients of the same step (token queue).

        w_{t+1} = w_t − η_t · (1/c) Σ g_i(w_t)    c ≥ R gradients that arrived, R = replicas_to_aggregate

    Source: the scheme of `tf.train.SyncReplicasOptimizer`; with R < num_workers Chen et al. 2016 (backup
    workers), in TensorFlow's form: a late gradient is dropped, but tokens are not bound to workers, so a
    fast worker can take a slow one's token and be counted twice.

    Worker: 1. read the clocks, then the parameters; 2. compute the gradient; 3. push it to an
    accumulator per piece, stamped with the worker's local step, where it is dropped if the stamp is older
    than the accumulator's step; 4. take a token from the queue on ps 0, which becomes the local step.
    ps, driven by the chief: 1. when every accumulator holds R gradients, take their sum and divide by
    their number (a table's rows too, so that a row that few workers touched moves as in one process);
    2. apply; 3. count the update on the clock; 4. put a token per live worker into the queue, worth the
    new global_step.

    No tokens exist at the start, so R = num_workers is a true barrier: staleness 0, and n workers with
    batch b equal one process with batch n·b. A worker that leaves is not waited for any more; one that is lost is,
    while fewer than `min_workers` are left, and all begin anew, from the state at hand, when it is back.

    `global_step` counts updates. Gradients are averaged: a learning rate for batch size
    R · `batch_size` is expected (linear scaling: R times the single-process one).

    Memory on the ps: parameters, slots and one accumulator of the parameters' size. Traffic per step and
    worker: O(parameters) each way, of which O(dropped/pushed) is in vain with backup workers.
    """

    Options = Options
    regroups = True
    waits_for_others = True

    def __init__(self, options: Options):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        """See `UpdateRule.check`."""
        self._options.check_cluster(plan.num_workers)

    def min_workers(self, num_workers: int) -> int:
        """See `UpdateRule.min_workers`."""
        return self._options.min_workers or self._options.replicas_to_aggregate or num_workers

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        """See `UpdateRule.build`."""
        by_ps = grouped_by_ps(context.push.send(gradients), store.num_ps)
        graph = AggregationGraph(store, by_ps, context.num_workers)
        local_steps, pushes = [], []
        for ps, part in enumerate(by_ps):
            with tf.device(store.ps_device(ps)):
                local_step = create_variable(f"sync/worker_{context.worker_index}/local_step_{ps}", [], "int64")
                local_steps.append(local_step)
                pushes.append(graph.push(ps, part, context.worker_index, local_step.read_value()))
        with tf.device(store.ps_device(0)):
            with tf.control_dependencies([pushes[0]]):
                token = graph.tokens.dequeue()
            with tf.control_dependencies([token]):
                clock = store.clocks[0].read_value()
            global_step = tf.where(token < 0, tf.constant(RELEASED, tf.int64), clock)
            progress = tf.stack([global_step, token - 1 - store.clock_reads[0]])
        advances = []
        for ps, local_step in enumerate(local_steps):
            # A push reads the local step, so it must come before the new one.
            with tf.device(store.ps_device(ps)), tf.control_dependencies([pushes[ps]]):
                advances.append(local_step.assign(token, read_value=False))
        service = None
        if context.is_chief:
            service = SyncChief(
                graph.build_chief(context.applier),
                self._options.replicas_to_aggregate or context.num_workers,
                context.num_workers,
                max_steps=context.max_steps,
            )
        with tf.device(store.worker_device):
            phase = Phase(progress[0], progress[1:], [*advances, *context.push.targets], advances, pushed=global_step)
        return TrainStep(
            [phase],
            join_op=_set_local_steps(store, local_steps),
            prepare_op=graph.prepare_op,
            state=graph.state,
            service=service,
        )


def _set_local_steps(store: ParameterStore, local_steps: Sequence[tf.Variable]) -> tf.Operation:
    assigns = []
    for ps, local_step in enumerate(local_steps):
        with tf.device(store.ps_device(ps)):
            assigns.append(local_step.assign(store.clocks[ps].read_value(), read_value=False))
    return tf.group(*assigns)
