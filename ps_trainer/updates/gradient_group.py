"""`GradientGroup`: gradients gathered on one ps task, and the update that is made when there are enough of them.

There is no loop that makes updates: the step whose gradient is the last one that a group needs makes the
update, on the ps, in its exclusive section (`exclusive.py`). All state is in the run's container, zero at first.

A worker may be killed at any moment and be back before anybody notices, with its old step still under way on some ps
tasks. Nothing that it left there can do harm:

* All state is written in exclusive sections, which are done as a whole or not at all. So it is one of few cases: the
  old step was on no ps task, on all of them, or on ps 0 and not yet on another that follows it.
* Its process *joins* with a ticket of its own, which every push brings along. ps 0, which decides, refuses a push with
  another ticket than the last one that joined: it comes from a step of before.
* The joinings of a worker are numbered. The chief takes a worker out with the number of the joining that was lost; on a
  ps task where a later one has come meanwhile, that does nothing.
* Its old gradient, if it is in the open group, is its turn in that group: where workers wait for the update, joining
  waits for that one. So nobody is counted twice, and the others find what they wait for.
* ps 0 numbers the gradients of each worker that it takes in. A ps task that follows is told the number with each visit:
  it takes the gradient in if it is the next one, so none twice. A worker that joins or leaves has what is missing there
  replaced by zero, as it will not come any more, or comes too late and is refused.
* Its old wait sees the same state as the new one, for a version that is not later, so it ends first (`gate.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Piece
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.exclusive import exclusive
from ps_trainer.updates.gate import Gate
from ps_trainer.updates.gradient_sums import GradientSums, Value

Update = Callable[[int, list[tuple[Piece, Value]]], tf.Operation]
"""(ps, averages of a group) -> the op on that ps that applies them and counts on its clock."""


class GroupPolicy(NamedTuple):
    """Which gradients make an update together.

    Attributes:
        required: clock before the update (int64 scalar on a ps) -> gradients that it needs (int64 scalar).
        counts_workers: fewer gradients than required make an update once no live worker is left to wait for; else
            as many are needed, whoever they come from.
        is_fresh_only: a gradient of older parameters than the newest is dropped. Then ps 0 decides for all ps
            tasks; else each forms its groups by itself.
        waits: a worker waits for the update that its gradient is in.
    """

    required: Callable[[tf.Tensor], tf.Tensor]
    counts_workers: bool
    is_fresh_only: bool
    waits: bool


class Outcome(NamedTuple):
    """What a worker's visit to a group found; int64 on the ps.

    Attributes:
        clock: updates counted there before.
        goes_on_at: the version with which the worker goes on, at least.
        is_accepted: 1 if its gradient has come into a group, else 0.
        is_released: 1 if the worker has been let go for good, else 0.
        notice: [5], what the other ps tasks are told of a visit to ps 0: the group that the gradient is in, or
            -1; groups closed after the visit; gradients in the last one closed; gradients of that worker so far;
            `goes_on_at`.
    """

    clock: tf.Tensor
    goes_on_at: tf.Tensor
    is_accepted: tf.Tensor
    is_released: tf.Tensor
    notice: tf.Tensor


class _State(NamedTuple):
    """The group's state, as variables or as read.

    Attributes:
        gone: [num_workers], 1 for a worker that has left.
        members: [num_workers], gradients of each in the open group.
        accepted: [num_workers], gradients of each so far.
        pushed: [num_workers], gradients of each that came so far, also those refused.
        stamps: [num_workers], the version that each computes with, as it was let go on.
        tickets: [num_workers], of the process that is the worker at present.
        joinings: [num_workers], the number of each one's last joining; 0 for a worker that was never there.
        version: groups closed so far.
        size: gradients in the last group closed; where ps 0 decides, on the others: those that the open group
            is to have, 0 while not known.
        released: 1 when workers have been let go for good.
    """

    gone: Any
    members: Any
    accepted: Any
    pushed: Any
    stamps: Any
    tickets: Any
    joinings: Any
    version: Any
    size: Any
    released: Any


class GradientGroup:
    """The groups of one ps task, one after the other; ops on that ps.

    Args:
        store: the created store.
        ps: the ps task.
        pieces: on that ps, of which gradients come.
        num_workers: workers of the cluster.
        grouping: which gradients make a group.
        max_steps: clock from which no gradient is accepted, or None.
        update: makes an update of a group.
        name: of the rule's resources.

    Attributes:
        state: variables for the chief to initialise.
        pushed: int64 [num_workers], gradients that came.
        used: int64 [num_workers], gradients in closed groups.
    """

    def __init__(
        self,
        store: ParameterStore,
        ps: int,
        pieces: Sequence[Piece],
        num_workers: int,
        grouping: GroupPolicy,
        *,
        max_steps: int | None,
        update: Update,
        name: str,
    ):
        self._store = store
        self._ps = ps
        self._pieces = pieces
        self._num_workers = num_workers
        self._grouping = grouping
        self._max_steps = max_steps
        self._update = update
        self._decides = ps == 0  # for all ps tasks, or at least whom it lets go on
        self._follows = grouping.is_fresh_only and ps > 0  # does what ps 0 has decided
        self._ticket = uuid.uuid4().int >> 65  # of this graph, so of this process and this time that it joins
        self._gate = Gate(store, ps, num_workers, name)
        self._sums = GradientSums(store, ps, pieces, name)
        shapes = _State(*[[num_workers]] * 7, *[[]] * 3)
        with tf.device(store.ps_device(ps)):
            self._variables = _State(
                *(
                    create_variable(f"{name}/{field}_{ps}", shape, "int64")
                    for field, shape in zip(_State._fields, shapes, strict=True)
                )
            )
            self.pushed = self._variables.pushed.read_value()
            self.used = self._variables.accepted.read_value() - self._variables.members.read_value()
        self.state = [*self._variables, *self._sums.state]

    def push(self, worker: int, values: Sequence[Value], notices: Sequence[tf.Tensor] = ()) -> Outcome:
        """A worker's gradient arrives.

        Args:
            worker: its index; it is live from now on.
            values: on the ps, for each piece.
            notices: of the worker's visits to other ps tasks, which come before this one; where ps 0 decides, the
                first is of that.
        """

        def visit(*arrived: Any) -> Outcome:
            told = tf.unstack(arrived[0]) if self._follows else None
            values = arrived[len(notices) :]
            now = self._read()
            is_own = tf.equal(now.tickets[worker], self._ticket) if self._decides else tf.constant(True)
            who = tf.one_hot(worker, self._num_workers, dtype=tf.int64) * tf.cast(is_own, tf.int64)
            is_accepted = tf.cast(tf.logical_and(is_own, self._is_acceptable(now, worker, told)), tf.int64)
            now = now._replace(gone=now.gone * (1 - who), pushed=now.pushed + who)
            outcome = self._settle(now, who, who, is_accepted, values, told)
            return outcome._replace(is_released=tf.maximum(outcome.is_released, 1 - tf.cast(is_own, tf.int64)))

        return exclusive(self._store, self._ps, visit, *notices, *values)

    def join(self, worker: int, joining: int, notices: Sequence[tf.Tensor] = ()) -> Outcome:
        """A worker's process comes, and is the worker from now on; groups wait for it.

        Args:
            worker: its index.
            joining: see `RuleContext`.
            notices: as for `push`.
        """

        def visit(*arrived: tf.Tensor) -> Outcome:
            now = self._read()
            who = tf.one_hot(worker, self._num_workers, dtype=tf.int64)
            now = now._replace(
                gone=now.gone * (1 - who),
                tickets=now.tickets * (1 - who) + self._ticket * who,
                joinings=now.joinings * (1 - who) + joining * who,
            )
            return self._without_gradient(now, who, who, arrived)

        return exclusive(self._store, self._ps, visit, *notices)

    def leave(self, worker: int | tf.Tensor, joining: int | tf.Tensor, notices: Sequence[tf.Tensor] = ()) -> Outcome:
        """A worker is not waited for any more; the open group is closed if it waits for nobody else.

        Does nothing where a later joining of the worker has come.

        Args:
            worker: its index.
            joining: the number of its joining that is over.
            notices: as for `push`.
        """

        def visit(worker: tf.Tensor, joining: tf.Tensor, *arrived: tf.Tensor) -> Outcome:
            now = self._read()
            who = tf.one_hot(worker, self._num_workers, dtype=tf.int64) * tf.cast(now.joinings <= joining, tf.int64)
            return self._without_gradient(now._replace(gone=tf.maximum(now.gone, who)), who, 0 * who, arrived)

        with tf.device(self._store.ps_device(self._ps)):
            left = [tf.convert_to_tensor(number, tf.int64) for number in (worker, joining)]
        return exclusive(self._store, self._ps, visit, *left, *notices)

    def wait(self, worker: int, outcome: Outcome) -> tf.Operation:
        """Blocks until this ps task has the version with which the worker goes on after a visit, or lets it go."""

        def has_to() -> tf.Tensor:
            version, is_released = self.read()
            return tf.logical_and(version < outcome.goes_on_at, tf.equal(is_released, 0))

        return self._gate.wait(worker, has_to)

    def release(self) -> tf.Tensor:
        """Lets all workers go; a gradient that comes later is dropped."""
        return self._set_released(1)

    def prepare(self) -> tf.Tensor:
        """Takes a release back: a chief that is started again goes on with the state."""
        return self._set_released(0)

    def read(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The version, and whether workers are released, at present."""
        return self._variables.version.read_value(), self._variables.released.read_value()

    def _set_released(self, value: int) -> tf.Tensor:
        def visit() -> tf.Tensor:
            with tf.control_dependencies([self._variables.released.assign(value, read_value=False)]):
                opened = self._gate.open()
            with tf.control_dependencies([opened]):
                return tf.constant(value)

        return exclusive(self._store, self._ps, visit)

    def _read(self) -> _State:
        return _State(*(variable.read_value() for variable in self._variables))

    def _is_acceptable(self, now: _State, worker: int, told: Sequence[tf.Tensor] | None) -> tf.Tensor:
        """Whether a gradient may be in the open group; bool scalar."""
        if self._follows:
            return tf.logical_and(told[0] >= 0, now.accepted[worker] < told[3])
        conditions = [tf.equal(now.released, 0)]
        if self._max_steps is not None:
            conditions.append(self._store.clocks[self._ps].read_value() < self._max_steps)
        if self._grouping.is_fresh_only:
            conditions.append(tf.equal(now.stamps[worker], now.version))
        return tf.reduce_all(conditions)

    def _without_gradient(
        self, now: _State, who: tf.Tensor, goes_on: tf.Tensor, notices: Sequence[tf.Tensor]
    ) -> Outcome:
        """A visit of a worker that has nothing to give, and never will have what it has not given yet."""
        if not self._follows:
            return self._settle(now, who, goes_on, tf.constant(0, tf.int64), [], None)
        told = tf.unstack(notices[0])
        missing = tf.reduce_sum(tf.maximum(who * (told[3] - now.accepted), 0))
        return self._settle(now, who, goes_on, missing, [], told)

    def _settle(
        self,
        now: _State,
        who: tf.Tensor,
        goes_on: tf.Tensor,
        added: tf.Tensor,
        values: Sequence[Value],
        told: Sequence[tf.Tensor] | None,
    ) -> Outcome:
        """Adds to the open group, closes it if that is to be done now, and writes the state.

        Args:
            now: the state.
            who: whose gradients are added, one-hot.
            goes_on: who goes on to compute a gradient after this visit, one-hot or zero.
            added: how many are.
            values: their sum; nothing for zero.
            told: see `Outcome.notice`.
        """
        clock = self._store.clocks[self._ps].read_value()
        members, accepted = now.members + who * added, now.accepted + who * added
        total = tf.reduce_sum(members)
        if self._follows:
            size = tf.where(now.version < told[1], told[2], now.size)
            closes = tf.logical_and(size > 0, total >= size)
        else:
            closes = self._is_complete(clock, members, now.gone)
            size = tf.where(closes, total, now.size)
        with tf.control_dependencies([self._sums.add(values, added > 0), clock] if values else [clock]):
            updated = tf.cond(closes, lambda: self._complete(total), lambda: tf.identity(total))
        closed = tf.cast(closes, tf.int64)
        version = now.version + closed
        # Where workers wait, who is in a group goes on when it is closed; else at once.
        in_group = tf.minimum(members, 1) if self._grouping.waits else tf.zeros_like(members)
        let_go = tf.where(closes, tf.maximum(in_group, goes_on), goes_on * (1 - in_group))
        after = now._replace(
            members=members * (1 - closed),
            accepted=accepted,
            stamps=tf.where(let_go > 0, tf.fill([self._num_workers], version), now.stamps),
            version=version,
            size=size * (1 - closed) if self._follows else size,
        )
        with tf.control_dependencies([updated]):
            writes = [
                variable.assign(value, read_value=False) for variable, value in zip(self._variables, after, strict=True)
            ]
        with tf.control_dependencies(writes):
            opened = self._gate.open(is_open=closes)
        if self._follows:
            goes_on_at = told[4]
        elif self._grouping.waits:
            goes_on_at = tf.reduce_sum(who * (now.version + in_group))
        else:
            goes_on_at = tf.reduce_sum(who * version)
        group = tf.where(added > 0, now.version, tf.constant(-1, tf.int64))
        notice = tf.stack([group, version, size, tf.reduce_sum(who * accepted), goes_on_at])
        with tf.control_dependencies([opened]):
            return Outcome(*map(tf.identity, (clock, goes_on_at, added, now.released, notice)))

    def _is_complete(self, clock: tf.Tensor, members: tf.Tensor, gone: tf.Tensor) -> tf.Tensor:
        total = tf.reduce_sum(members)
        is_enough = total >= self._grouping.required(clock)
        if not self._grouping.counts_workers:
            return is_enough
        waits_for = tf.reduce_sum((1 - gone) * tf.cast(tf.equal(members, 0), tf.int64))
        return tf.logical_or(is_enough, tf.logical_and(total > 0, tf.equal(waits_for, 0)))

    def _complete(self, total: tf.Tensor) -> tf.Tensor:
        averages = self._sums.take(1.0 / tf.cast(total, tf.float32))
        with tf.control_dependencies([self._update(self._ps, averages)]):
            return tf.identity(total)
