"""Update rules `k_sync`, `k_async`, `k_batch_sync` and `k_batch_async`: an update from the first k gradients.

Source of all four: Dutta et al. 2018, "Slow and Stale Gradients Can Win the Race", section 2; growing k: the
same, and Dutta et al. 2021 ("AdaSync"). How they differ:

                  which gradients count        a worker whose gradient is in goes on
    k_sync        of the newest parameters     with the update that it is part of; k workers
    k_batch_sync  of the newest parameters     at once, with another batch; k batches of any workers
    k_async       all                          with the update that it is part of; k workers
    k_batch_async all                          at once, with the newest parameters; k batches of any workers

All have in common:

        w_{t+1} = w_t − η_t · (1/k_t) Σ g_i(w_{t−τ_i})      τ_i = 0 in the two sync rules

    k_t = min(k + grow_by · ⌊t / grow_every⌋, max_k) with grow_every > 0, else k

`global_step` counts updates. Gradients are averaged: a learning rate for batch size k · `batch_size` is expected
(the papers use one rate for all k). Memory on the ps: parameters, slots, and a sum of the gradients' size (rows
of tables: those pushed, O(k · rows)). Traffic per step and worker: O(parameters) each way; in the sync rules
what late gradients carry is in vain, on average a share 1 − k/n of it when n workers are equally fast.

The two rules that count workers do not wait for those that are *done*, with no data left: when fewer than k have
some, updates are made from the gradients of all those. Workers that are *lost* are another matter: with fewer than k
of all workers left, the run waits for them to come back, and ends if they do not. Gradients of an update that is still
open when the run ends are not applied.

Departures from the papers: a computation is not cancelled, so a late gradient is dropped when it comes, and its
worker goes on with the newest parameters only then. k grows with the number of updates, where Dutta et al. 2021
derive it from the training loss. With several ps tasks the async rules form groups on each of them, of the same
number of gradients but not always the same ones, and `k_async` waits for the update on ps 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.base import RuleContext, RunPlan, TrainStep, UpdateRule
from ps_trainer.updates.gradient_collector import build_step
from ps_trainer.updates.group_policy import GroupPolicy
from ps_trainer.updates.options import KAsyncOptions, KBatchOptions, KSyncOptions


def k_at(options: KBatchOptions, clock: tf.Tensor, num_workers: int) -> tf.Tensor:
    """K of the update that follows `clock` (int64 scalar) others; int64 scalar."""
    if not options.grow_every:
        return tf.constant(options.k, tf.int64)
    grown = options.k + options.grow_by * (clock // options.grow_every)
    return tf.minimum(grown, options.largest_k(num_workers))


class _KRule(UpdateRule):
    """What the four rules share; the class attributes say which one it is."""

    Options: ClassVar[type[KBatchOptions]] = KBatchOptions
    waits_for_others = True
    name: ClassVar[str]
    counts_workers: ClassVar[bool] = False
    is_fresh_only: ClassVar[bool]

    def __init__(self, options: KBatchOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        self._options.check_cluster(plan.num_workers)

    def min_workers(self, num_workers: int) -> int:
        return self._options.k if self.counts_workers else 1

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        policy = GroupPolicy(
            required=lambda clock: k_at(self._options, clock, context.num_workers),
            counts_workers=self.counts_workers,
            is_fresh_only=self.is_fresh_only,
            waits=self.counts_workers,
        )
        return build_step(store, gradients, context, policy, self.name)


class KSync(_KRule):
    """K-sync SGD: an update from the first k workers' gradients of this step, the others' are dropped.

    Worker: 1. note the version of the parameters, read them; 2. compute the gradient; 3. push it; 4. if it was
    in time, wait for the update that it is part of, else go on.
    ps: 1. drop a gradient of an older version; 2. add the others up; 3. with the k-th, apply the average, count
    the update, and let the k workers go on.

    The same algorithm as `backup` with backup_workers = num_workers − k. Equation, counting, learning rate,
    costs and departures: the docstring of this file.
    """

    Options = KSyncOptions
    name = "k_sync"
    counts_workers = True
    is_fresh_only = True


class KAsync(_KRule):
    """K-async SGD: an update from k workers' gradients as they come, however old.

    Worker: 1. read the clocks, then the parameters; 2. compute the gradient; 3. push it; 4. wait for the update
    that it is part of. The n − k others go on computing, so their gradients are stale when they come.
    ps: 1. add gradients up; 2. with the k-th, apply the average, count the update, and let the k workers go on.

    k = 1 is `async`, k = n is `sync`. Equation, counting, learning rate, costs and departures: the docstring of
    this file.
    """

    Options = KAsyncOptions
    name = "k_async"
    counts_workers = True
    is_fresh_only = False


class KBatchSync(_KRule):
    """K-batch-sync SGD: an update from the first k batches' gradients of this version, by whichever workers.

    Worker: 1. note the version of the parameters, read them; 2. compute the gradient; 3. push it; 4. go on at
    once, with another batch for the same parameters unless there are newer ones.
    ps: 1. drop a gradient of an older version; 2. add the others up; 3. with the k-th, apply the average and
    count the update.

    A fast worker gives several gradients to an update. k may exceed the number of workers. Equation, counting,
    learning rate, costs and departures: the docstring of this file.
    """

    name = "k_batch_sync"
    is_fresh_only = True


class KBatchAsync(_KRule):
    """K-batch-async SGD: an update from every k gradients that come, by whichever workers, however old.

    Worker: 1. read the clocks, then the parameters; 2. compute the gradient; 3. push it; 4. go on at once.
    ps: 1. add gradients up; 2. with the k-th, apply the average and count the update.

    k = 1 is `async`; no worker ever waits. Equation, counting, learning rate, costs and departures: the
    docstring of this file.
    """

    name = "k_batch_async"
    is_fresh_only = False
