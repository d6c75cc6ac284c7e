"""Update rules `k_sync`, `k_async`, `k_batch_sync` and `k_batch_async`: an update from the first k gradients.

`KSync` describes what all four have in common. How they differ:

                  gradients that count         a worker whose gradient counts continues  k counts
    k_sync        of the newest parameters     after the update that contains the gradient    workers
    k_batch_sync  of the newest parameters     at once, with another batch                    batches of any workers
    k_async       all                          after the update that contains the gradient    workers
    k_batch_async all                          at once, with the newest parameters            batches of any workers
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
    """Builds the k of the update after `clock` other updates (int64 scalars)."""
    if not options.grow_every:
        return tf.constant(options.k, tf.int64)
    grown = options.k + options.grow_by * (clock // options.grow_every)
    return tf.minimum(grown, options.largest_k(num_workers))


class _KFamilyRule(UpdateRule):
    """Base of the four rules.

    Attributes:
        name: Name of the rule.
        counts_workers: Whether k counts workers, so that workers wait for the update; otherwise it counts batches.
        is_fresh_only: Whether only gradients of the newest parameters count.
    """

    Options: ClassVar[type[KBatchOptions]] = KBatchOptions
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


class KSync(_KFamilyRule):
    """K-sync SGD: an update from the gradients of the first k workers of this step; later gradients are dropped.

    Worker: 1. read the version of the parameters, then the parameters; 2. compute the gradient; 3. push it; 4. wait
    for the update that contains the gradient, or continue at once if the gradient was too late.
    ps: 1. drop a gradient of an older version; 2. add up the others; 3. with the k-th, apply the average, count the
    update, and let the k workers continue.

    The rule is `backup` with backup_workers = num_workers − k. The rest holds for all four `k_` rules:

        w_{t+1} = w_t − η_t · (1/k_t) Σ g_i(w_{t−τ_i})      τ_i = 0 in `k_sync` and `k_batch_sync`
        k_t = min(k + grow_by · ⌊t / grow_every⌋, max_k) with grow_every > 0, else k

    Source: Dutta et al. 2018, "Slow and Stale Gradients Can Win the Race", section 2; of the growing k also Dutta et
    al. 2021 ("AdaSync").

    `global_step` counts updates. Gradients are averaged, so the rules expect a learning rate for batch size
    k · `batch_size` (the papers use one rate for all k). The two rules that count workers do not wait for workers that
    are *done*, with no data left: if fewer than k workers have data, their gradients make the update. If fewer than k
    workers are left because others are *lost*, the run waits for those to rejoin, and ends if they do not. Gradients of
    an update that is still open when the run ends are not applied.

    Memory on the ps: parameters, slots, and a sum of the gradients' size (of tables the pushed rows, O(k · rows)).
    Traffic per step and worker: O(parameters) each way. In the sync rules a share 1 − k/n of it carries dropped
    gradients if n workers are equally fast.

    Departures from the papers: an update does not cancel computations. So a ps drops a late gradient when it arrives,
    and only then its worker continues with the newest parameters. k grows with the number of updates. Dutta et al. 2021
    derive it from the training loss. With several ps tasks the async rules form groups on each of them. These groups
    have the same number of gradients but not always the same ones, and `k_async` waits for the update on ps 0.
    """

    Options = KSyncOptions
    waits_for_others = True
    name = "k_sync"
    counts_workers = True
    is_fresh_only = True


class KAsync(_KFamilyRule):
    """K-async SGD: an update from the gradients of k workers as they arrive, however old.

    Worker: 1. read the clocks, then the parameters; 2. compute the gradient; 3. push it; 4. wait for the update that
    contains the gradient. The n − k other workers still compute, so their gradients are stale when they arrive.
    ps: 1. add up gradients; 2. with the k-th, apply the average, count the update, and let the k workers continue.

    k = 1 is `async`, k = n is `sync`. Equation, source, counting, learning rate, costs and departures are in the
    description of `k_sync`.
    """

    Options = KAsyncOptions
    waits_for_others = True
    name = "k_async"
    counts_workers = True
    is_fresh_only = False


class KBatchSync(_KFamilyRule):
    """K-batch-sync SGD: an update from the gradients of the first k batches of this version, from any workers.

    Worker: 1. read the version of the parameters, then the parameters; 2. compute the gradient; 3. push it; 4. continue
    at once, with another batch and the newest parameters.
    ps: 1. drop a gradient of an older version; 2. add up the others; 3. with the k-th, apply the average and count the
    update.

    A fast worker gives several gradients to an update. k may exceed the number of workers. Equation, source, counting,
    learning rate, costs and departures are in the description of `k_sync`.
    """

    name = "k_batch_sync"
    is_fresh_only = True


class KBatchAsync(_KFamilyRule):
    """K-batch-async SGD: an update from every k gradients that arrive, from any workers, however old.

    Worker: 1. read the clocks, then the parameters; 2. compute the gradient; 3. push it; 4. continue at once.
    ps: 1. add up gradients; 2. with the k-th, apply the average and count the update.

    k = 1 is `async`; no worker ever waits. Equation, source, counting, learning rate, costs and departures are in
    the description of `k_sync`.
    """

    name = "k_batch_async"
    is_fresh_only = False
