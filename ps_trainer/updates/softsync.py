"""Update rule `softsync`: an update from the average of every c gradients that arrive; workers do not wait."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.base import RuleContext, RunPlan, TrainStep, UpdateRule
from ps_trainer.updates.gradient_collector import build_step
from ps_trainer.updates.group_policy import GroupPolicy
from ps_trainer.updates.options import SoftSyncOptions


class SoftSync(UpdateRule):
    """n-softsync: an update from the average of every c = ⌈num_workers / splits⌉ gradients, however old.

        w_{t+1} = w_t − η_t · (1/c) Σ_{c gradients} g_i(w_{t−τ_i})       τ = splits on average

    Source: Gupta et al. 2016, "Model Accuracy and Runtime Tradeoff in Distributed Deep Learning", section
    3.1; Zhang et al. 2016, "Staleness-aware Async-SGD", section 2. They write λ for num_workers and n for splits.

    Worker: 1. read the clocks, then the parameters; 2. compute the gradient; 3. push it; 4. continue at once.
    ps: 1. add up gradients; 2. with the c-th, apply the average and count the update.

    With splits = 1 an update needs num_workers gradients, but not one of each worker. splits = num_workers is `async`.
    `k_batch_async` with k = c is the same algorithm.

    `global_step` counts updates. Gradients are averaged. Learning rate: the papers divide the rate of batch size c ·
    `batch_size` by the mean staleness, which is close to `splits`. Give --learning_rate that quotient. c does not
    change when workers leave. Gradients of an update that is still open when the run ends are not applied.

    Memory on the ps: parameters, slots, and a sum of the gradients' size (of tables the pushed rows, O(c · rows)).
    Traffic per step and worker: O(parameters) each way.

    Departures from the papers: they round num_workers / splits down, this rule rounds it up. With several ps tasks each
    forms groups of c by itself, whose members may differ.
    """

    Options = SoftSyncOptions

    def __init__(self, options: SoftSyncOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        self._options.check_cluster(plan.num_workers)

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        size = -(-context.num_workers // self._options.splits)
        policy = GroupPolicy(
            required=lambda clock: tf.constant(size, tf.int64),
            counts_workers=False,
            is_fresh_only=False,
            waits=False,
        )
        return build_step(store, gradients, context, policy, "softsync")
