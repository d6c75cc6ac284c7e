"""Update rule `async`: a ps task applies every gradient as soon as it arrives."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.apply import count_update
from ps_trainer.updates.base import Phase, RuleContext, TrainStep, UpdateRule, grouped_by_ps


class Async(UpdateRule):
    """Asynchronous SGD: a ps task applies each worker's gradient by itself, as soon as it arrives.

        w_{t+1} = w_t − η_t · g(w_{t−τ})          τ = staleness, about num_workers − 1 on average

    Source: Downpour SGD with n_push = n_fetch = 1, Dean et al. 2012, §4.1.

    Worker: 1. read each ps task's clock, then its parameters; 2. compute the gradient of its own batch;
    3. push it; 4. continue when every ps task has applied its part.
    ps: 1. apply the gradient when it arrives (each variable atomically, in any order of workers and ps tasks);
    2. count it on its clock. Apply, count and read are not one exclusive section. An update that is made while a
    worker's parameters are read may be in some of them and still count as staleness. So τ is an upper bound.

    `global_step` counts the applied gradients of all workers: n workers together reach a given step n times as fast
    as one. The learning rate is per gradient: it is the single-process learning rate of batch size `batch_size`.
    Gradients are neither summed nor averaged over workers. A run with `max_steps` ends up to num_workers − 1 steps
    above it, because other workers' steps are still under way.

    Memory on the ps: parameters and slots. Traffic per step and worker: O(parameters) each way.
    """

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        staleness, applied = [], []
        for ps, part in enumerate(grouped_by_ps(context.push.send(gradients), store.num_ps)):
            apply_op = context.applier.apply(ps, [(gradient.piece, gradient.value) for gradient in part])
            with tf.device(store.ps_device(ps)), tf.control_dependencies([apply_op, *context.push.ops_to_await(ps)]):
                # Apply before count: a pull that sees the count reads the update, so staleness is never too small.
                before_apply = count_update(store.clocks[ps])
                # The next pull waits for the count; otherwise this worker's own update could count as staleness.
                applied.append(before_apply.op)
                stale = before_apply - store.clock_reads[ps]
                if ps == 0:  # both numbers in one message
                    pushed = before_apply + 1
                    progress = tf.stack([pushed, stale])
                else:
                    staleness.append(tf.reshape(stale, [1]))
        with tf.device(store.worker_device):
            staleness = tf.concat([progress[1:], *staleness], axis=0)
            return TrainStep([Phase(progress[0], staleness, context.push.targets, applied, pushed)])
