"""Update rule `hybrid`: embedding tables are updated on the ps tasks, all other parameters around a ring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.all_reduce import create_slots, reject_packing
from ps_trainer.updates.base import RELEASED, Phase, RuleContext, RunPlan, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.exclusive import exclusive
from ps_trainer.updates.gradient_sums import GradientSums
from ps_trainer.updates.options import AllReduceOptions
from ps_trainer.updates.ring import Ring, RingExchange


class Hybrid(UpdateRule):
    """Synchronous SGD that sends sparse gradients to the ps tasks and averages dense ones around a ring.

        w_{t+1} = w_t − η_t · (1/c) Σ g_i(w_t)    c workers that have data; tables on the ps, the rest on workers

    Source: Parallax, Kim et al. 2019 (arXiv:1808.02621), its hybrid of ps for sparse and all-reduce for dense
    variables.

    Worker: 1. gather the rows of its batch from the ps tasks; 2. compute the gradient; 3. push the rows' gradients,
    which the ps tasks store; 4. average the dense gradients around the ring and apply them, as in `all_reduce`;
    5. wait until the tables are updated.
    ps, started by the chief after its turn in the ring, when all workers have pushed: 1. add up the pushed rows and
    divide by c, also those that few workers touched; 2. apply them by the optimizer and slots of the ps; 3. count the
    update on the clock.

    Ends and failures: as in `all_reduce`. `global_step` counts updates, the same on all workers. Gradients are
    averaged, so the rule expects a learning rate for batch size n · `batch_size`.

    Memory: tables, their slots and the rows pushed in a step on the ps tasks; the rest on each worker, and once more
    on the ps tasks. Traffic per step and worker: O(rows of the batch) from and to the ps tasks,
    2 (n − 1)/n · O(dense parameters) around the ring, and 2 (n − 1) more rounds of small messages for the wait. The
    rule is slower than `sync` if steps are short: rows, ring, tables and wait follow one after the other. Each needs a
    separate run, because a run with collective ops must not contain an op on a ps task (`ring.py`).

    Departs from Parallax: a table is a variable that the model marks as one (`layers.embedding`), whatever the share
    of its rows in a batch. Machines have no local accumulators. The user chooses the partitions
    (`--layout_option table_partitions`); the rule does not search for them.
    """

    Options = AllReduceOptions
    needs_tables = True
    keeps_replica = True
    waits_for_others = True
    acts_on_host = True

    def __init__(self, options: AllReduceOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        reject_packing(plan)

    def min_workers(self, num_workers: int) -> int:
        return num_workers

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        create_slots(store, gradients, context)
        gradients = context.push.reduce(gradients)
        ring = Ring(store, [g for g in gradients if not g.piece.is_table], context, self._options.fusion_bytes)
        tables = _Tables(store, [g for g in gradients if g.piece.is_table], context)
        with tf.device(store.worker_device):
            no_staleness = tf.zeros([store.num_ps], tf.int64)
        return TrainStep(
            [Phase(ring.global_step, no_staleness, [ring.give_op, *tables.push_ops], None)],
            join_op=ring.join_op,
            state=tables.state,
            exchange=_HybridExchange(ring, tables, is_chief=context.is_chief),
        )


class _Tables:
    """The tables' gradients on the ps tasks.

    Attributes:
        push_ops: Ops that a worker with data runs.
        state: Variables that the chief initialises, which clears the rows that an earlier start of the run has left.
    """

    def __init__(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext):
        self.push_ops, self.state, apply_ops = [], [], []
        with tf.device(store.worker_device):
            self._num_gradients = tf.placeholder(tf.float32, [], "hybrid/num_gradients")
        for ps, part in enumerate(grouped_by_ps(gradients, store.num_ps)):
            sums = GradientSums(store, ps, [gradient.piece for gradient in part], "hybrid")
            self.state += sums.state
            self.push_ops.append(_push(store, ps, sums, [gradient.value for gradient in part]))
            with tf.device(store.ps_device(ps)):
                apply_ops.append(_apply(store, ps, sums, 1.0 / self._num_gradients, context))
        self.push_ops.append(_count_bytes(store, gradients, context))
        self._apply_op = tf.group(*apply_ops)
        self._apply: Callable[[int], Any] | None = None

    def apply(self, session: tf.Session, num_gradients: int) -> None:
        """Applies the mean of the gradients that `num_gradients` workers have pushed."""
        if self._apply is None:
            self._apply = session.make_callable(self._apply_op, [self._num_gradients])
        self._apply(num_gradients)


class _HybridExchange(RingExchange):
    def __init__(self, ring: Ring, tables: _Tables, *, is_chief: bool):
        super().__init__(ring, is_chief=is_chief)
        self._tables = tables

    def _take_turn(self, session: tf.Session) -> int:
        turn = self._ring.turn(session)
        if turn.global_step != RELEASED:
            if self._is_chief:
                self._tables.apply(session, turn.num_gradients)
            # No worker gathers rows for its next step before the chief has updated the tables.
            self._ring.wait_for_all(session)
        return turn.global_step


def _push(store: ParameterStore, ps: int, sums: GradientSums, values: Sequence[tf.IndexedSlices]) -> tf.Operation:
    def visit(*arrived: tf.IndexedSlices) -> tf.Tensor:
        with tf.control_dependencies([sums.add(arrived, tf.constant(True))]):
            return tf.constant(True)

    # In the section, because adding rows reads a list and writes it back.
    return exclusive(store, ps, visit, *values).op


def _apply(store: ParameterStore, ps: int, sums: GradientSums, share: tf.Tensor, context: RuleContext) -> tf.Operation:
    """Builds the update that the chief runs while all workers wait, so that no step is in the section of `_push`."""
    apply_op = context.applier.apply(ps, sums.take(share))
    with tf.control_dependencies([apply_op]):
        return store.clocks[ps].assign_add(1, read_value=False)


def _count_bytes(store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> tf.Operation:
    with tf.device(store.worker_device):
        # Sizes are tensors, because each batch touches another number of rows.
        sizes = [
            tf.size(tensor, out_type=tf.int64) * tensor.dtype.size
            for gradient in gradients
            for tensor in (gradient.value.values, gradient.value.indices)
        ]
        return context.push.sent_bytes.assign_add(tf.add_n(sizes), read_value=False)
