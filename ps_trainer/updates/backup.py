"""Update rule `backup`: a barrier over the first N of the gradients of N + b workers in each step."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.base import RuleContext, RunPlan, TrainStep, UpdateRule
from ps_trainer.updates.gradient_collector import build_step
from ps_trainer.updates.group_policy import GroupPolicy
from ps_trainer.updates.options import BackupOptions


class Backup(UpdateRule):
    """Synchronous SGD with b backup workers: the first N of N + b gradients of a step make the update.

        w_{t+1} = w_t − η_t · (1/N) Σ_{i in the first N} g_i(w_t)        N = num_workers − backup_workers

    Source: Chen et al. 2016, "Revisiting Distributed Synchronous SGD", section 3.2, algorithms 3 (worker) and 4
    (parameter server).

    Worker: 1. read the version of the parameters, then the parameters; 2. compute the gradient; 3. push it; 4. wait
    for the update that contains the gradient, or continue at once if the gradient was too late.
    ps: 1. drop a gradient of an older version, and count it; 2. add up the others; 3. with the N-th, apply the average,
    count the update, and let the N workers continue.

    A worker gives at most one gradient to an update. An update has at most N gradients, the same ones for every
    parameter on all ps tasks. `sync` with replicas_to_aggregate=N is the same rule; its description says how
    TensorFlow's token queue differs.

    `global_step` counts updates. Gradients are averaged, so the rule expects a learning rate for batch size N ·
    `batch_size` (linear scaling: N times the single-process rate). An update does not wait for workers that are *done*,
    with no data left. If fewer than N workers have data, their gradients make the update. If fewer than N workers are
    left because others are *lost*, the run waits for those to rejoin, and ends if they do not.

    Memory on the ps: parameters, slots, and a sum of the gradients' size (of tables the pushed rows, O(N · rows)).
    Traffic per step and worker: O(parameters) each way. A share b/(N + b) of it carries dropped gradients if all
    workers are equally fast.

    Departures from the paper: an update does not cancel the computation of a late worker. The ps drops the late
    gradient when it arrives, and the worker continues with the newest parameters. The moving average of the parameters
    is left out.
    """

    Options = BackupOptions
    waits_for_others = True

    def __init__(self, options: BackupOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        self._options.check_cluster(plan.num_workers)

    def min_workers(self, num_workers: int) -> int:
        return num_workers - self._options.backup_workers

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        required = self.min_workers(context.num_workers)
        policy = GroupPolicy(
            required=lambda clock: tf.constant(required, tf.int64),
            counts_workers=True,
            is_fresh_only=True,
            waits=True,
        )
        return build_step(store, gradients, context, policy, "backup")
