"""Rounds that average the workers' replicas, for `local_sgd` and `model_averaging`.

A round is a group of `gradient_collector.py` that needs a value of every live worker. No worker continues before the
group is closed. Then all workers fetch the same average, and on each ps task the same version of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.store.variables import create_local_variable
from ps_trainer.updates.base import Phase, RuleContext, TrainStep
from ps_trainer.updates.gradient_collector import GradientCollector, PushOps
from ps_trainer.updates.gradient_sums import Value
from ps_trainer.updates.group_policy import GroupPolicy
from ps_trainer.updates.replica import LocalSteps, Replica, ops_after

_ROUND, _LOCAL = 0, 1


class AveragingSpec(NamedTuple):
    """Values that a rule averages, and how it updates the parameters by the average.

    Attributes:
        gradients: Gradients that the local steps apply.
        send: Maps the replicas after the local step to the values that arrive on the ps tasks.
        update: Builds the op that updates a piece on its ps task by the average.
        targets: Builds further ops of a round.
        bases: Variables with the values that were fetched last, which `send` subtracts; empty if it subtracts none.
    """

    gradients: Sequence[Gradient]
    send: Callable[[list[Gradient]], list[Gradient]]
    update: Callable[[Piece, Value], tf.Operation]
    targets: Callable[[], list[tf.Operation]]
    bases: Sequence[tuple[Piece, tf.Variable]] = ()


def build_step(
    store: ParameterStore, context: RuleContext, spec: AveragingSpec, period_at: Callable[[int], int], name: str
) -> TrainStep:
    """Builds the train step of a rule that averages replicas after a number of local steps.

    Args:
        store: The created store.
        context: The run.
        spec: Values that the rule averages.
        period_at: Maps global_step to the number of local steps of the next round.
        name: Name of the rule; prefix of the names of its resources.
    """
    rounds = _Rounds(store, context, spec, name)
    since = rounds.since

    def choose(global_step: int) -> int:
        if since.advance() < period_at(global_step):
            return _LOCAL
        since.reset()
        return _ROUND

    phases = {_ROUND: rounds.build_round(), _LOCAL: rounds.build_local()}
    return TrainStep(
        [phases[kind] for kind in sorted(phases)],
        choose=choose,
        join_op=rounds.build_join(),
        join_feeds=rounds.collector.join_feeds,
        on_restored=rounds.restored,
        leave_op=rounds.collector.build_leave(),
        prepare_op=rounds.collector.build_prepare(),
        state=rounds.collector.state,
        worker_state=rounds.worker_state,
        service=rounds.collector.create_service(),
    )


class _Rounds:
    """The parts of both phases.

    Attributes:
        since: Counter of the local steps since the last round.
        worker_state: Variables that are saved beside the checkpoints (`TrainStep.worker_state`).
    """

    def __init__(self, store: ParameterStore, context: RuleContext, spec: AveragingSpec, name: str):
        self._store = store
        self._context = context
        self._spec = spec
        self._replica = Replica(store)
        self.since = LocalSteps(store, f"{name}/since_round")
        self._applied = LocalSteps(store, f"{name}/num_applied")
        pieces = [gradient.piece for gradient in spec.gradients]
        # Fresh only: ps 0 then decides for all ps tasks, so every part of the average is over the same workers.
        policy = GroupPolicy(
            required=lambda clock: tf.constant(context.num_workers, tf.int64),
            counts_workers=True,
            is_fresh_only=True,
            waits=True,
        )
        self.collector = GradientCollector(store, context, pieces, policy, name=name, update=self._update)
        self._local_op = context.applier.apply_to_replica(
            spec.gradients, self._replica.global_step, num_applied=self._applied.value
        )
        self._restart_ops = [self._fetch(None, []), self.since.reset_op()]
        self.worker_state = [
            *self._replica.variables,
            *self._replica.fetched,
            *(base for _, base in spec.bases),
            *(slot for _, slot in context.applier.replica_slots),
            self.since.variable,
            self._applied.variable,
        ]

    def build_local(self) -> Phase:
        """Builds the step on the worker alone."""
        targets = [self._local_op, self.since.advance_op(), self._applied.advance_op()]
        return Phase(self._replica.global_step, self._replica.no_staleness, targets, applied=None, is_local=True)

    def build_round(self) -> Phase:
        """Builds a local step that ends with the average of all replicas in place of the replica."""
        # A round sends what the replica is after this step's gradient, so these reads come after the local step.
        with tf.device(self._store.worker_device), tf.control_dependencies([self._local_op]):
            replicas = [Gradient(g.piece, g.piece.own_replica.read_value()) for g in self._spec.gradients]
        push_ops = self.collector.push(self._spec.send(replicas))
        progress, staleness = self._results(push_ops)
        targets = [
            self._fetch(push_ops.applied, [staleness.op, self._local_op]),
            self.since.reset_op(),
            self._applied.advance_op(),
            *self._spec.targets(),
        ]
        return Phase(progress, staleness, targets, applied=None, pushed=push_ops.global_step)

    def build_join(self) -> tf.Operation:
        """Builds the op that joins the open round: the replica gets the average, and the slots their first values."""
        with tf.control_dependencies([self.collector.build_join()]):
            joined = tf.no_op()
        slots = [slot.initializer for _, slot in self._context.applier.replica_slots]
        return tf.group(self._fetch(ops_after(self._store, [joined]), []), *slots)

    def restored(self, session: tf.Session) -> None:
        """Continues with the restored state if it belongs to the present round; otherwise keeps only its slots."""
        saved_at, clock = session.run([self._replica.fetched[0], self._store.clocks[0]])
        if saved_at == clock:
            self.since.restore(session)
            return
        session.run(self._restart_ops)
        logging.info("the saved replica belongs to round %d, but this is round %d: fetched it again", saved_at, clock)

    def _fetch(self, after: Sequence[tf.Operation] | None, before_assign: Sequence[tf.Operation]) -> tf.Operation:
        fetch_op = self._replica.fetch(after, before_assign)
        with tf.device(self._store.worker_device), tf.control_dependencies([fetch_op]):
            keeps = [base.assign(piece.own_replica.read_value(), read_value=False) for piece, base in self._spec.bases]
        return tf.group(fetch_op, *keeps)

    def _results(self, push_ops: PushOps) -> tuple[tf.Tensor, tf.Tensor]:
        """Builds global_step and staleness: 0 for a replica that the round has accepted, -1 for one that it has not."""
        taken = []
        for ps, result in enumerate(push_ops.results):
            with tf.device(self._store.ps_device(ps)):
                if ps == 0:  # both numbers in one message
                    progress = tf.stack([push_ops.global_step, result.is_accepted - 1])
                else:
                    taken.append(tf.reshape(result.is_accepted - 1, [1]))
        with tf.device(self._store.worker_device):
            return progress[0], tf.concat([progress[1:], *taken], axis=0)

    def _update(self, ps: int, averages: list[tuple[Piece, Value]]) -> tf.Operation:
        with tf.device(self._store.ps_device(ps)):
            updates = [self._spec.update(piece, value) for piece, value in averages]
            with tf.control_dependencies(updates):
                # A plain add is enough: rounds close one at a time, in the section of the ps task.
                return self._store.clocks[ps].assign_add(1, read_value=False)


def create_bases(store: ParameterStore, pieces: Sequence[Piece], name: str) -> list[tuple[Piece, tf.Variable]]:
    """Creates for each piece a variable on the worker, which holds the value that was fetched last."""
    with tf.device(store.worker_device):
        return [
            (piece, create_local_variable(f"{name}/base/{piece.variable.op.name}", piece.variable.shape, _dtype(piece)))
            for piece in pieces
        ]


def num_bytes(pieces: Sequence[Piece]) -> int:
    """Returns the size of the pieces' values in bytes."""
    return sum(piece.variable.shape.num_elements() * _dtype(piece).size for piece in pieces)


def _dtype(piece: Piece) -> tf.DType:
    return piece.variable.dtype.base_dtype
