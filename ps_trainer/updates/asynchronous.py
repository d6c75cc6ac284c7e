"""Update rule `async`: a ps task applies every gradient as soon as it arrives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Snapshot
from ps_trainer.updates.apply import Applier, count_update
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
    Of many bytes, each piece is applied when its gradient arrives, and sent back at once.

    `global_step` counts the applied gradients of all workers: n workers together reach a given step n times as fast
    as one. The learning rate is per gradient: it is the single-process learning rate of batch size `batch_size`.
    Gradients are neither summed nor averaged over workers. A run with `max_steps` ends up to num_workers − 1 steps
    above it, because other workers' steps are still under way.

    Memory on the ps: parameters and slots. Traffic per step and worker: O(parameters) each way.
    """

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        staleness, applied, pulled = [], [], []
        for ps, part in enumerate(grouped_by_ps(context.push.send(gradients), store.num_ps)):
            apply_ops, snapshot = _apply_and_read(store, context.applier, ps, part)
            after = [*apply_ops, *context.push.ops_to_await(ps)]
            with tf.device(store.ps_device(ps)), tf.control_dependencies(after):
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
            if snapshot is None:
                with tf.control_dependencies([before_apply]):
                    snapshot = store.read_on(ps)
            pulled.append(snapshot)
        with tf.device(store.worker_device):
            parts = [progress, *staleness]
            return TrainStep([Phase.of_progress(parts, context.push.targets, applied, pushed, pulled)])


def _apply_and_read(
    store: ParameterStore, applier: Applier, ps: int, part: Sequence[Gradient]
) -> tuple[list[tf.Operation], Snapshot | None]:
    """Builds the update of one ps task, and where gradients of many bytes arrive one by one, the read after it.

    Each portion of the parameters is then updated when its gradient has arrived, and read for the next step at once.
    So the ps task sends the parameters of the last layers while it still receives the gradients of the first ones.

    Returns:
        Ops that the count must follow, and the snapshot; None if it is to be read after the count.
    """
    dense = [gradient for gradient in part if not gradient.piece.is_table]
    counts = store.pull.by_area([gradient.piece.variable for gradient in dense])
    if len(counts) < 2:
        return [applier.apply(ps, [(g.piece, g.value) for g in part], in_section=False)], None
    ends = list(itertools.accumulate(counts))
    portions = [dense[end - count : end] for end, count in zip(ends, counts, strict=True)]
    portions[0] = [*portions[0], *(gradient for gradient in part if gradient.piece.is_table)]
    portions.reverse()  # the gradients of the last layers come first
    apply_ops = [applier.apply(ps, [(g.piece, g.value) for g in portion], in_section=False) for portion in portions]
    values: dict[str, tf.Tensor] = {}
    with tf.device(store.ps_device(ps)):
        # Clock first, as in `ParameterStore.read_on`: what others update meanwhile counts as staleness.
        with tf.control_dependencies([apply_ops[0]]):
            clock = store.clocks[ps].read_value()
        for portion, apply_op in zip(portions, apply_ops, strict=True):
            with tf.control_dependencies([apply_op, clock]):
                values |= {
                    g.piece.variable.op.name: g.piece.variable.read_value() for g in portion if not g.piece.is_table
                }
        with tf.control_dependencies([clock]):
            for piece in store.dense:
                if piece.ps == ps and piece.variable.op.name not in values:  # the loss does not depend on it
                    values[piece.variable.op.name] = piece.variable.read_value()
            # The parameters contain this step's own update, which is counted later.
            pulled_clock = clock + 1
    pairs = [(piece, values[piece.variable.op.name]) for piece in store.dense if piece.ps == ps]
    return [*apply_ops, clock.op], Snapshot([pulled_clock], pairs)
