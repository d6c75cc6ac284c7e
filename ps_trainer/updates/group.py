"""`Group`: gradients gathered on one ps task, and the update that is made when there are enough of them.

There is no loop that makes updates: the step whose gradient is the last one that a group needs makes the
update, on the ps, in its exclusive section (`exclusive.py`). All state is in the run's container, zero at first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore, Piece
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.exclusive import exclusive
from ps_trainer.updates.gate import Gate
from ps_trainer.updates.sums import Sums, Value

Update = Callable[[int, list[tuple[Piece, Value]]], tf.Operation]
"""(ps, averages of a group) -> the op on that ps that applies them and counts on its clock."""


class Grouping(NamedTuple):
    """Which gradients make an update together.

    Attributes:
        required: clock before the update (int64 scalar on a ps) -> gradients that it needs (int64 scalar).
        counts_workers: gradients of as many live workers are needed, of all of them if fewer are left; else
            as many gradients, whoever they come from.
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
        version: groups closed there before.
        is_accepted: 1 if its gradient is in a group, else 0.
        is_released: 1 if workers have been let go for good, else 0.
        notice: [4], what the other ps tasks are told of a visit to ps 0: the group that the gradient is in, or
            -1; groups closed after the visit; gradients in the last one closed; gradients of that worker so far.
    """

    clock: tf.Tensor
    version: tf.Tensor
    is_accepted: tf.Tensor
    is_released: tf.Tensor
    notice: tf.Tensor


class _State(NamedTuple):
    """The group's state, as variables or as read.

    Attributes:
        gone: [num_workers], 1 for a worker that has left.
        members: [num_workers], gradients of each in the open group.
        accepted: [num_workers], gradients of each so far.
        version: groups closed so far.
        size: gradients in the last group closed; where ps 0 decides, on the others: those that the open group
            is to have, 0 while not known.
        released: 1 when workers have been let go for good.
    """

    gone: Any
    members: Any
    accepted: Any
    version: Any
    size: Any
    released: Any


class Group:
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
        gate: opens by one with each group that is closed.
        state: variables for the chief to initialise.
        used: int64 [num_workers], gradients in closed groups.
    """

    def __init__(
        self,
        store: ParameterStore,
        ps: int,
        pieces: Sequence[Piece],
        num_workers: int,
        grouping: Grouping,
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
        self._follows = grouping.is_fresh_only and ps > 0  # does what ps 0 has decided
        self.gate = Gate(store, ps, num_workers, name)
        self._sums = Sums(store, ps, pieces, name)
        shapes = _State(*[[num_workers]] * 3, *[[]] * 3)
        with tf.device(store.ps_device(ps)):
            self._variables = _State(
                *(
                    create_variable(f"{name}/{field}_{ps}", shape, "int64")
                    for field, shape in zip(_State._fields, shapes, strict=True)
                )
            )
            # The versions that workers compute with, on ps 0, which compares them.
            self._stamps = create_variable(f"{name}/stamps_{ps}", [num_workers], "int64")
            self.used = self._variables.accepted.read_value() - self._variables.members.read_value()
        self.state = [*self._variables, self._stamps]

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
            now = self._arrive(worker)
            who = tf.one_hot(worker, self._num_workers, dtype=tf.int64)
            is_accepted = self._is_acceptable(now, worker, told)
            return self._settle(now, who, tf.maximum(1 - now.gone, who), is_accepted, values, told)

        return exclusive(self._store, self._ps, visit, *notices, *values)

    def join(self, worker: int) -> Outcome:
        """A worker comes; from now on groups wait for it."""

        def visit() -> Outcome:
            now = self._arrive(worker)
            who = tf.one_hot(worker, self._num_workers, dtype=tf.int64)
            with tf.control_dependencies([self._variables.gone.assign(now.gone * (1 - who), read_value=False)]):
                zero = tf.constant(0, tf.int64)
                return Outcome(*map(tf.identity, (zero, now.version, zero, now.released, tf.zeros([4], tf.int64))))

        return exclusive(self._store, self._ps, visit)

    def leave(self, worker: int | tf.Tensor, notices: Sequence[tf.Tensor] = ()) -> Outcome:
        """A worker is not waited for any more; the open group is closed if it waits for nobody else.

        Where ps 0 decides: a gradient of that worker which has reached ps 0 and not this ps counts as zero here.

        Args:
            worker: its index.
            notices: as for `push`.
        """

        def visit(worker: tf.Tensor, *arrived: tf.Tensor) -> Outcome:
            told = tf.unstack(arrived[0]) if self._follows else None
            now = self._read()
            who = tf.one_hot(worker, self._num_workers, dtype=tf.int64)
            missing, zeros = tf.constant(0, tf.int64), []
            if self._follows:
                missing = told[3] - tf.reduce_sum(who * now.accepted)
                zeros = [_zero(piece) for piece in self._pieces]
            outcome = self._settle(now, who, (1 - now.gone) * (1 - who), missing, zeros, told)
            with tf.control_dependencies([outcome.notice, self.gate.let_go(who)]):
                return Outcome(*map(tf.identity, outcome))

        with tf.device(self._store.ps_device(self._ps)):
            index = tf.convert_to_tensor(worker, tf.int64)
        return exclusive(self._store, self._ps, visit, index, *notices)

    def release(self) -> tf.Tensor:
        """Lets all workers go; a gradient that comes later is dropped."""

        def visit() -> tf.Tensor:
            with tf.control_dependencies([self._variables.released.assign(1, read_value=False)]):
                everybody = tf.ones([self._num_workers], tf.int64)
                with tf.control_dependencies([self.gate.let_go(everybody)]):
                    return tf.identity(everybody)

        return exclusive(self._store, self._ps, visit)

    def prepare(self) -> tf.Operation:
        """Takes a release back: a chief that is started again goes on with the state."""
        return self._variables.released.assign(0, read_value=False)

    def read(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The version, and whether workers are released, at present."""
        return self._variables.version.read_value(), self._variables.released.read_value()

    def stamp(self, worker: int, version: tf.Tensor) -> tf.Operation:
        """Notes the version that a worker computes its next gradient with."""
        return tf.raw_ops.ResourceScatterUpdate(resource=self._stamps.handle, indices=worker, updates=version)

    def _arrive(self, worker: int) -> _State:
        with tf.control_dependencies([self.gate.arrive(worker)]):
            return self._read()

    def _read(self) -> _State:
        return _State(*(variable.read_value() for variable in self._variables))

    def _is_acceptable(self, now: _State, worker: int, told: Sequence[tf.Tensor] | None) -> tf.Tensor:
        """1 if a gradient may be in the open group, else 0."""
        if self._follows:
            return tf.cast(tf.equal(told[0], now.version), tf.int64)
        conditions = [tf.equal(now.released, 0)]
        if self._max_steps is not None:
            conditions.append(self._store.clocks[self._ps].read_value() < self._max_steps)
        if self._grouping.is_fresh_only:
            conditions.append(tf.equal(self._stamps.read_value()[worker], now.version))
        return tf.cast(tf.reduce_all(conditions), tf.int64)

    def _settle(
        self,
        now: _State,
        who: tf.Tensor,
        live: tf.Tensor,
        added: tf.Tensor,
        values: Sequence[Value],
        told: Sequence[tf.Tensor] | None,
    ) -> Outcome:
        """Adds a gradient of `who` (one-hot) if `added` is 1, and closes the group if that is to be done now."""
        clock = self._store.clocks[self._ps].read_value()
        members, accepted = now.members + who * added, now.accepted + who * added
        total = tf.reduce_sum(members)
        if self._follows:
            size = tf.where(now.version < told[1], told[2], now.size)
            closes = tf.logical_and(size > 0, total >= size)
        else:
            closes = self._is_complete(clock, members, live)
            size = tf.where(closes, total, now.size)
        with tf.control_dependencies([self._sums.add(values, added > 0), clock] if values else [clock]):
            updated = tf.cond(closes, lambda: self._complete(total), lambda: tf.identity(total))
        closed = tf.cast(closes, tf.int64)
        after = _State(
            gone=1 - live,
            members=members * (1 - closed),
            accepted=accepted,
            version=now.version + closed,
            size=size * (1 - closed) if self._follows else size,
            released=now.released,
        )
        with tf.control_dependencies([updated]):
            writes = [
                variable.assign(value, read_value=False) for variable, value in zip(self._variables, after, strict=True)
            ]
        with tf.control_dependencies(writes):
            opened = self.gate.open(closed, live)
        group = tf.where(added > 0, now.version, tf.constant(-1, tf.int64))
        notice = tf.stack([group, after.version, size, tf.reduce_sum(who * accepted)])
        with tf.control_dependencies([opened]):
            return Outcome(*map(tf.identity, (clock, now.version, added, now.released, notice)))

    def _is_complete(self, clock: tf.Tensor, members: tf.Tensor, live: tf.Tensor) -> tf.Tensor:
        required = self._grouping.required(clock)
        if not self._grouping.counts_workers:
            return tf.reduce_sum(members) >= required
        # A worker that died after its push is one of the group, but stands for nobody who is still waited for.
        required = tf.maximum(tf.minimum(required, tf.reduce_sum(live)), 1)
        return tf.reduce_sum(members * live) >= required

    def _complete(self, total: tf.Tensor) -> tf.Tensor:
        averages = self._sums.take(1.0 / tf.cast(total, tf.float32))
        with tf.control_dependencies([self._update(self._ps, averages)]):
            return tf.identity(total)


def _zero(piece: Piece) -> Value:
    shape, dtype = piece.variable.shape.as_list(), piece.variable.dtype.base_dtype
    if not piece.is_table:
        return tf.zeros(shape, dtype)
    return tf.IndexedSlices(tf.zeros([0, *shape[1:]], dtype), tf.zeros([0], tf.int64), tf.constant(shape, tf.int64))
