"""Update rule `sync`: the average of the first R gradients of each step makes one update, for which workers wait."""

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

    Worker: 1. read the version of the parameters, then the parameters; 2. compute the gradient; 3. push it; 4. wait
    for the update that contains the gradient, or continue at once if the gradient was too late.
    ps: 1. drop a gradient of an older version, and count it; 2. add up the others; 3. with the R-th, apply the
    average, count the update, and let the R workers continue. Steps 1 to 3 are one exclusive section per ps task. So an
    update is divided by the number of gradients in it, which are the same ones on all ps tasks. Between hosts, parts of
    a ps task's parameters take turns like ps tasks: it updates and sends one while gradients of others still arrive.

    With R = num_workers, n workers with batch b equal one process with batch n·b, and the staleness is 0. With a
    smaller R the rule is `backup` with num_workers − R backup workers.

    How `tf.train.SyncReplicasOptimizer` differs: its workers share one queue with num_workers tokens per update. A
    gradient counts for the step of the token that its worker took. So a fast worker can take a slow worker's token,
    count twice in an update, and be late for the next one. Here a worker gives at most one gradient to an update.
    TensorFlow's accumulators, one per variable, each fire at their own R-th gradient. So with R < num_workers two
    variables may be updated from different workers' gradients. Here all variables are updated from the same ones.
    `sync_replicas` runs that class, without the tokens for anybody.

    `global_step` counts updates. Gradients are averaged, so the rule expects a learning rate for batch size
    R · `batch_size` (linear scaling: R times the single-process rate).

    With fewer than R live workers, the gradients of all live workers make an update. Updates do not wait for a worker
    that is done. A lost worker is waited for only while fewer than `min_workers` remain; the others then wait within
    their step, and continue when it has rejoined.

    Memory on the ps: parameters, slots, and a sum of the gradients' size (of tables the pushed rows, O(R · rows)).
    Traffic per step and worker: O(parameters) each way. A share 1 − R/num_workers of it carries dropped gradients if
    all workers are equally fast.
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
