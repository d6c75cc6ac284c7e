"""Update rule `backup`: a true barrier over the first N of N + b workers' gradients of each step."""

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

    Worker: 1. note the version of the parameters, read them; 2. compute the gradient; 3. push it; 4. if it was
    in time, wait for the update that it is part of, else go on.
    ps: 1. drop a gradient of an older version, and count it; 2. add the others up; 3. with the N-th, apply
    the average, count the update, and let the N workers go on.

    A worker has one turn per step. No more than N gradients are in an update, and they are the same N for every
    parameter, on all ps tasks. `sync` with replicas_to_aggregate=N is the same rule; its docstring says how
    TensorFlow's token queue differs.

    `global_step` counts updates. Gradients are averaged: a learning rate for batch size N · `batch_size` is
    expected (linear scaling: N times the single-process one). Workers that are *done*, with no data left, are not
    waited for: when fewer than N have some, updates are made from the gradients of all those. With fewer than N
    workers left because others are *lost*, the run waits for them to come back, and ends if they do not.

    Memory on the ps: parameters, slots, and a sum of the gradients' size (rows of tables: those pushed,
    O(N · rows)). Traffic per step and worker: O(parameters) each way, of which a share b/(N + b) is in vain when
    workers are equally fast.

    Departures from the paper: a worker's computation is not cancelled by an update that it is late for; its
    gradient is dropped when it comes, and the worker goes on with the newest parameters then. The moving average
    of the parameters is left out.
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
