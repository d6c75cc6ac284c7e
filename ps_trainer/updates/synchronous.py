"""Update rule `sync`: the first R gradients of each step are averaged into one update, and the workers wait for it."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.base import RuleContext, RunPlan, TrainStep, UpdateRule
from ps_trainer.updates.gradient_collector import build_step
from ps_trainer.updates.group_policy import GroupPolicy
from ps_trainer.updates.options import SyncOptions


class Sync(UpdateRule):
    """Synchronous SGD: one update from the average of R workers' gradients of the same step, behind a barrier.

        w_{t+1} = w_t − η_t · (1/R) Σ_{i in the first R} g_i(w_t)        R = replicas_to_aggregate

    Source: Chen et al. 2016, "Revisiting Distributed Synchronous SGD", section 3.1; with R < num_workers section 3.2,
    algorithms 3 (worker) and 4 (parameter server).

    Worker: 1. note the version of the parameters, read them; 2. compute the gradient; 3. push it; 4. if it was
    in time, wait for the update that it is part of, else go on.
    ps: 1. drop a gradient of an older version, and count it; 2. add the others up; 3. with the R-th, apply the
    average, count the update, and let the R workers go on. Steps 1 to 3 are one exclusive section per ps task, so an
    update is divided by the number of gradients that are in it, which are the same on all ps tasks.

    With R = num_workers, n workers with batch b equal one process with batch n·b, and the staleness is 0. With fewer
    it is `backup` with num_workers − R backup workers.

    How `tf.train.SyncReplicasOptimizer` differs: its workers share one queue of tokens, num_workers of them per
    update, and a gradient counts for the step of the token that its worker took. So a fast worker can take a slow
    one's token, be counted twice in an update, and be late for the next one. Here a worker has one turn per step.
    Its accumulators, one per variable, each fire at their own R-th gradient, so with R < num_workers two variables
    may be updated from different workers' gradients. Here all are updated from the same.

    `global_step` counts updates. Gradients are averaged: a learning rate for batch size R · `batch_size` is expected
    (linear scaling: R times the single-process one).

    With fewer than R live workers an update is made from all that are left. A worker that is done is not waited for.
    One that is lost is, while fewer than `min_workers` would be left: the others wait where they are, and go on when it
    has rejoined.

    Memory on the ps: parameters, slots, and a sum of the gradients' size (rows of tables: those pushed, O(R · rows)).
    Traffic per step and worker: O(parameters) each way, of which a share 1 − R/num_workers is in vain when workers are
    equally fast.
    """

    Options = SyncOptions
    waits_for_others = True

    def __init__(self, options: SyncOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        self._options.check_cluster(plan.num_workers)

    def min_workers(self, num_workers: int) -> int:
        return self._options.min_workers or self._options.replicas_to_aggregate or num_workers

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        required = self._options.replicas_to_aggregate or context.num_workers
        policy = GroupPolicy(
            required=lambda clock: tf.constant(required, tf.int64),
            counts_workers=True,
            is_fresh_only=True,
            waits=True,
        )
        return build_step(store, gradients, context, policy, "sync")
