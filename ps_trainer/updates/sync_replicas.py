"""Update rule `sync_replicas`: TensorFlow's `SyncReplicasOptimizer`, with its accumulators and tokens."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.updates.apply import Applier
from ps_trainer.updates.base import RELEASED, Phase, RuleContext, RunPlan, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.gradient_sums import Value
from ps_trainer.updates.options import SyncReplicasOptions
from ps_trainer.updates.sync_replicas_accumulators import PsVariables
from ps_trainer.updates.sync_replicas_optimizer import NO_UPDATE, SyncReplicasOptimizer
from ps_trainer.updates.sync_replicas_service import SyncReplicasOps, SyncReplicasService


class SyncReplicas(UpdateRule):
    """Synchronous SGD by `tf.train.SyncReplicasOptimizer`: the textbook's class, on `--layout=per_variable`.

        w_{t+1} = w_t − η_t · (1/R) Σ_{i in the first R} g_i(w_t)        R = replicas_to_aggregate

    Source: `tf.train.SyncReplicasOptimizer`; Chen et al. 2016, "Revisiting Distributed Synchronous SGD", section 3.

    Worker: 1. read the parameters; 2. compute the gradient; 3. put it into the accumulator of each variable, with the
    step of its parameters; 4. wait for a token of a later step.
    Chief, in a thread beside its steps: 1. take the average of R gradients from each accumulator; 2. apply it by the
    optimizer; 3. count the update; 4. give each worker a token with the new step.
    ps: an accumulator drops a gradient of an older step than its own.

    The rule runs a subclass of TensorFlow's class (`updates/sync_replicas_optimizer.py`). These lines differ:

    * One queue of tokens for each worker, in place of one queue for all. From the common queue a fast worker takes the
      token of a slow one, and counts twice in an update.
    * No tokens before the first update (`get_init_tokens_op`). They let every worker push twice for the first update.
    * A worker skips tokens that are not later than its own gradient. Otherwise a late worker would count twice, too.
    * The rows of a sparse gradient are summed and divided by R. TensorFlow divides each row by the number of workers
      that touched it. So a rare row moves R times as far as in a batch of all workers' examples.
    * The chief runs the update in a thread that the end of the run cancels, in place of a queue runner. A queue runner
      keeps the chief for 120 s at the end, and closes the queue for every later run on the same ps tasks.
    * When a worker has no more data, updates wait for one gradient less. TensorFlow's workers would wait forever.
    * Learning rate, optimizer and slots lie on the ps tasks, as in all rules here, and not in the worker's graph.

    With R < num_workers each accumulator takes its own first R gradients, as in TensorFlow's class. It takes more if a
    late one comes before the chief takes them. So two variables may be updated from different workers' gradients.
    `sync` and `backup` use the same R gradients for all variables.

    `global_step` counts updates. Gradients are averaged, so the rule expects a learning rate for batch size
    R · `batch_size` (linear scaling: R times the single-process rate).

    A worker that dies may leave a part of its gradient in the accumulators, and a chief that dies may have taken them.
    So if the chief or a worker that updates need is lost, all workers continue from the last checkpoint when it is
    back. `sync` computes the same updates, and survives these losses without going back.

    Memory on the ps: parameters, slots, and an accumulator of each variable's size. Traffic per step and worker:
    O(parameters) each way, one message for each variable on `per_variable`.
    """

    Options = SyncReplicasOptions
    waits_for_others = True
    is_crash_safe = False

    def __init__(self, options: SyncReplicasOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        self._options.check_cluster(plan.num_workers)

    def min_workers(self, num_workers: int) -> int:
        return self._options.replicas_to_aggregate or num_workers

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        arrived = context.push.send(gradients)
        parts = grouped_by_ps(arrived, store.num_ps)
        with tf.device(store.worker_device):
            optimizer = SyncReplicasOptimizer(
                _PsOptimizers(context.applier, parts),
                replicas_to_aggregate=self.min_workers(context.num_workers),
                total_num_replicas=context.num_workers,
                ps_tasks=[
                    PsVariables(
                        store.ps_device(ps),
                        [gradient.piece.variable for gradient in part],
                        store.clocks[ps],
                        store.clock_reads[ps],
                        context.push.ops_to_await(ps),
                    )
                    for ps, part in enumerate(parts)
                ],
                worker_index=context.worker_index,
            )
        token = optimizer.apply_gradients(
            [(gradient.value, gradient.piece.variable) for gradient in arrived], global_step=store.clocks[0]
        )
        return TrainStep(
            [_build_phase(store, optimizer, token, context)],
            prepare_op=optimizer.chief_init_op,
            service=self._create_service(store, optimizer, context) if context.is_chief else None,
        )

    def _create_service(
        self, store: ParameterStore, optimizer: SyncReplicasOptimizer, context: RuleContext
    ) -> SyncReplicasService:
        ops = SyncReplicasOps(
            optimizer.sync_op,
            optimizer.required,
            optimizer.stand_in_op,
            optimizer.stand_in_step,
            optimizer.release_op,
            store.clocks[0].read_value(),
        )
        num_required = self.min_workers(context.num_workers)
        return SyncReplicasService(ops, num_required, context.num_workers, context.max_steps)


class _PsOptimizers(tf.train.Optimizer):
    """The run's optimizers on all ps tasks, in the form of one TensorFlow optimizer.

    Args:
        applier: Applies the gradients of one ps task.
        parts: Gradients of each ps task.
    """

    def __init__(self, applier: Applier, parts: Sequence[Sequence[Gradient]]):
        super().__init__(use_locking=True, name="ps_optimizers")
        self._applier = applier
        self._pieces: list[list[Piece]] = [[gradient.piece for gradient in part] for part in parts]

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[Value, tf.Variable]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation:
        """Builds the op that applies the gradients; it counts no update."""
        values = {variable.ref(): value for value, variable in grads_and_vars}
        return tf.group(
            *(
                self._applier.apply(ps, [(piece, values[piece.variable.ref()]) for piece in pieces])
                for ps, pieces in enumerate(self._pieces)
            )
        )


def _build_phase(
    store: ParameterStore, optimizer: SyncReplicasOptimizer, token: tf.Tensor, context: RuleContext
) -> Phase:
    applied, staleness = [], []
    for ps, arrived_step in enumerate(optimizer.arrived_steps):
        with tf.device(store.ps_device(ps)):
            # The identity carries the end of the wait from ps 0 to this ps task.
            applied.append(tf.identity(token).op)
            is_fresh = tf.equal(arrived_step, store.clock_reads[ps])
            stale = tf.where(is_fresh, tf.constant(0, tf.int64), tf.constant(-1, tf.int64))
            if ps == 0:
                with tf.control_dependencies([token]):
                    # Not the token: a late worker takes an older one than the newest.
                    step = store.clocks[0].read_value()
                step = tf.where(tf.equal(token, NO_UPDATE), tf.constant(RELEASED, tf.int64), step)
                progress = tf.stack([step, stale])  # both numbers in one message
            else:
                staleness.append(tf.reshape(stale, [1]))
    with tf.device(store.worker_device):
        staleness = tf.concat([progress[1:], *staleness], axis=0)
    return Phase(progress[0], staleness, [*context.push.targets, *optimizer.push_ops], applied, step)
