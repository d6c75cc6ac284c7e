"""Rounds in which the workers' replicas are averaged: what `local_sgd` and `model_averaging` share.

A round is a group of `gradient_collector.py` that needs a value of every live worker: nobody goes on before it is
closed, and all then fetch the same centre, on each ps task of the same version.
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
from ps_trainer.updates.gradient_collector import GradientCollector, Pushed
from ps_trainer.updates.gradient_sums import Value
from ps_trainer.updates.group_policy import GroupPolicy
from ps_trainer.updates.replica import LocalSteps, Replica, after_on_ps

_ROUND, _LOCAL = 0, 1


class Averaged(NamedTuple):
    """What is averaged, and how the centre takes it.

    Attributes:
        gradients: that the local steps apply.
        send: the replicas after the local step -> what arrives of them on the ps tasks.
        update: moves a piece on its ps task by the average.
        targets: ops that a round runs besides.
        bases: what `send` compares the replicas with: they are to hold what was fetched last; none if nothing.
    """

    gradients: Sequence[Gradient]
    send: Callable[[list[Gradient]], list[Gradient]]
    update: Callable[[Piece, Value], tf.Operation]
    targets: Callable[[], list[tf.Operation]]
    bases: Sequence[tuple[Piece, tf.Variable]] = ()


def build_step(
    store: ParameterStore, context: RuleContext, averaged: Averaged, period_at: Callable[[int], int], name: str
) -> TrainStep:
    """The train step of a rule that averages replicas every so many local steps.

    Args:
        store: the created store.
        context: the run.
        averaged: see there.
        period_at: global_step -> local steps of the round that follows.
        name: of the rule and of its resources.
    """
    rounds = _Rounds(store, context, averaged, name)
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
        since: local steps since the last round.
        worker_state: see `TrainStep`.
    """

    def __init__(self, store: ParameterStore, context: RuleContext, averaged: Averaged, name: str):
        self._store = store
        self._context = context
        self._averaged = averaged
        self._replica = Replica(store)
        self.since = LocalSteps(store, f"{name}/since_round")
        self._applied = LocalSteps(store, f"{name}/num_applied")
        pieces = [gradient.piece for gradient in averaged.gradients]
        policy = GroupPolicy(
            required=lambda clock: tf.constant(context.num_workers, tf.int64),
            counts_workers=True,
            is_fresh_only=True,
            waits=True,
        )
        self.collector = GradientCollector(store, context, pieces, policy, name=name, update=self._update)
        self._local_op = context.applier.apply_to_replica(
            averaged.gradients, self._replica.global_step, num_applied=self._applied.value
        )
        self._begin_anew = [self._fetch(None, []), self.since.reset_op()]
        self.worker_state = [
            *self._replica.variables,
            *self._replica.fetched,
            *(base for _, base in averaged.bases),
            *(slot for _, slot in context.applier.replica_slots),
            self.since.variable,
            self._applied.variable,
        ]

    def build_local(self) -> Phase:
        """A step on the worker alone."""
        targets = [self._local_op, self.since.advance_op(), self._applied.advance_op()]
        return Phase(self._replica.global_step, self._replica.no_staleness, targets, applied=None, is_local=True)

    def build_round(self) -> Phase:
        """A local step, then the average of all replicas in place of the replica."""
        with tf.device(self._store.worker_device), tf.control_dependencies([self._local_op]):
            replicas = [Gradient(g.piece, g.piece.kept.read_value()) for g in self._averaged.gradients]
        pushed = self.collector.push(self._averaged.send(replicas))
        progress, staleness = self._results(pushed)
        targets = [
            self._fetch(pushed.applied, [staleness.op, self._local_op]),
            self.since.reset_op(),
            self._applied.advance_op(),
            *self._averaged.targets(),
        ]
        return Phase(progress, staleness, targets, applied=None, pushed=pushed.global_step)

    def build_join(self) -> tf.Operation:
        """Joins the open round with the centre as the replica, and the optimizer's slots as new."""
        with tf.control_dependencies([self.collector.build_join()]):
            joined = tf.no_op()
        slots = [slot.initializer for _, slot in self._context.applier.replica_slots]
        return tf.group(self._fetch(after_on_ps(self._store, [joined]), []), *slots)

    def restored(self, session: tf.Session) -> None:
        """Goes on in the round that the saved state is of; drops what it has of an older one, but the slots."""
        saved_at, clock = session.run([self._replica.fetched[0], self._store.clocks[0]])
        if saved_at == clock:
            self.since.restore(session)
            return
        session.run(self._begin_anew)
        logging.info("the saved replica is of round %d, and this is round %d: it was fetched again", saved_at, clock)

    def _fetch(self, after: Sequence[tf.Operation] | None, before_assign: Sequence[tf.Operation]) -> tf.Operation:
        fetch_op = self._replica.fetch(after, before_assign)
        with tf.device(self._store.worker_device), tf.control_dependencies([fetch_op]):
            keeps = [base.assign(piece.kept.read_value(), read_value=False) for piece, base in self._averaged.bases]
        return tf.group(fetch_op, *keeps)

    def _results(self, pushed: Pushed) -> tuple[tf.Tensor, tf.Tensor]:
        """global_step and staleness; what a round takes is never stale, a replica that it did not take says -1."""
        taken = []
        for ps, result in enumerate(pushed.results):
            with tf.device(self._store.ps_device(ps)):
                if ps == 0:  # both numbers in one message
                    progress = tf.stack([pushed.global_step, result.is_accepted - 1])
                else:
                    taken.append(tf.reshape(result.is_accepted - 1, [1]))
        with tf.device(self._store.worker_device):
            return progress[0], tf.concat([progress[1:], *taken], axis=0)

    def _update(self, ps: int, averages: list[tuple[Piece, Value]]) -> tf.Operation:
        with tf.device(self._store.ps_device(ps)):
            updates = [self._averaged.update(piece, value) for piece, value in averages]
            with tf.control_dependencies(updates):
                return self._store.clocks[ps].assign_add(1, read_value=False)


def create_bases(store: ParameterStore, pieces: Sequence[Piece], name: str) -> list[tuple[Piece, tf.Variable]]:
    """For each piece a variable on the worker for what was fetched of it last."""
    with tf.device(store.worker_device):
        return [
            (piece, create_local_variable(f"{name}/base/{piece.variable.op.name}", piece.variable.shape, _dtype(piece)))
            for piece in pieces
        ]


def num_bytes(pieces: Sequence[Piece]) -> int:
    """Bytes of the pieces' values."""
    return sum(piece.variable.shape.num_elements() * _dtype(piece).size for piece in pieces)


def _dtype(piece: Piece) -> tf.DType:
    return piece.variable.dtype.base_dtype
