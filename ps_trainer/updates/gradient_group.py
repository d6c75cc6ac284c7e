"""`GradientGroup`: collects gradients on one ps task until there are enough of them for an update, and makes it.

No loop makes updates. The step whose gradient completes a group makes the update, on the ps, in its exclusive section
(`exclusive.py`). All state lies in the run's container and starts at zero.

A worker may be killed at any moment and be back before anybody notices, while its old step still runs on some ps
tasks. The rules below keep that old step from doing harm:

* All state is written in exclusive sections, which run as a whole or not at all. So the old step has visited no ps
  task, or all of them, or ps 0 but not yet some ps task that follows it.
* The new process *joins* with its own ticket, which each of its pushes carries. ps 0 decides, and rejects a push
  whose ticket does not belong to the last process that joined: such a push belongs to an earlier process.
* Each join of a worker has a larger *join number*. The chief takes a worker out with the join number of the lost
  process. On a ps task where a later join has arrived meanwhile, this does nothing.
* If the old gradient is in the open group, it counts as the worker's turn in that group. Where workers wait for the
  update, joining waits for that one, too. So no worker is counted twice, and the others get the gradient they wait for.
* ps 0 numbers the gradients that it accepts from each worker, and every visit tells the number to the ps tasks that
  follow. Such a ps task accepts a gradient if its number is the next one, so it accepts none twice. When a worker joins
  or leaves, the ps task replaces the gradients that are missing there by zeros, and rejects them if they arrive later.
* The old step's wait sees the same state as the new one's, for a version that is not later, so it ends first
  (`gate.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Piece
from ps_trainer.updates.exclusive import exclusive
from ps_trainer.updates.gate import Gate
from ps_trainer.updates.gradient_sums import GradientSums, Value
from ps_trainer.updates.group_policy import GroupPolicy
from ps_trainer.updates.group_state import GroupState, GroupVariables, Notice, VisitResult
from ps_trainer.updates.live_workers import Membership

Update = Callable[[int, list[tuple[Piece, Value]]], tf.Operation]
"""(ps, averages of a group) -> the op on that ps that applies them and counts on its clock."""


class GradientGroup:
    """The groups of one ps task, one after the other; ops on that ps.

    Args:
        store: The created store.
        ps: Index of the ps task.
        pieces: Pieces on that ps whose gradients arrive.
        num_workers: Number of workers of the cluster.
        policy: Decides which gradients make a group.
        max_steps: Clock from which no gradient is accepted, or None.
        update: Builds the update of a group.
        name: Prefix of the names of the rule's resources.
        part: Number of this part of the ps task's pieces. Later parts follow the groups of the first part of ps 0, as
            other ps tasks do.

    Attributes:
        ps: Index of the ps task.
        pieces: The pieces.
        part: Number of the part.
        state: Variables that the chief initialises.
        pushed: Number of gradients of each worker that arrived, int64 [num_workers].
        used: Number of gradients of each worker in closed groups, int64 [num_workers].
    """

    def __init__(
        self,
        store: ParameterStore,
        ps: int,
        pieces: Sequence[Piece],
        num_workers: int,
        policy: GroupPolicy,
        *,
        max_steps: int | None,
        update: Update,
        name: str,
        part: int = 0,
    ):
        self._store = store
        self.ps, self.pieces, self.part = ps, pieces, part
        self._num_workers = num_workers
        self._policy = policy
        self._max_steps = max_steps
        self._update = update
        # Only ps 0 compares tickets. It answers a push with an old ticket as if the worker were released.
        self._checks_tickets = is_first = ps == part == 0
        self._follows = policy.is_fresh_only and not is_first  # does what ps 0 has decided
        # Each process builds a graph for each of its joins, so the ticket names one join of one process.
        # The shift leaves 63 bits, which fit into an int64.
        self._ticket = uuid.uuid4().int >> 65
        is_waited_for = policy.waits if is_first else policy.is_fresh_only
        name = f"{name}/part_{part}" if part else name
        self._gate = Gate(store, ps, num_workers, name) if is_waited_for else None
        self._sums = GradientSums(store, ps, pieces, name)
        with tf.device(store.ps_device(ps)):
            self._variables = GroupVariables.create(name, ps, num_workers)
            now = self._variables.read()
            self.pushed, self.used = now.pushed, now.accepted - now.members
        self.state = [*self._variables, *self._sums.state]

    def push(self, worker: int, values: Sequence[Value], notices: Sequence[tf.Tensor] = ()) -> VisitResult:
        """Builds the visit in which a worker's gradient arrives.

        Args:
            worker: Index of the worker; it counts as live from now on.
            values: Gradient of each piece, on the ps.
            notices: Notices of the worker's visits to other ps tasks, which this visit waits for. Where ps 0 decides,
                the first one is the notice of ps 0.
        """

        def visit(*arrived: Any) -> VisitResult:
            ps_0_notice = Notice.unpack(arrived[0]) if self._follows else None
            values = arrived[len(notices) :]
            now = self._variables.read()
            is_own = tf.equal(now.tickets[worker], self._ticket) if self._checks_tickets else tf.constant(True)
            worker_one_hot = tf.constant(np.eye(self._num_workers, dtype=np.int64)[worker])
            one_hot = worker_one_hot * tf.cast(is_own, tf.int64)
            is_accepted = tf.cast(tf.logical_and(is_own, self._is_acceptable(now, worker, ps_0_notice)), tf.int64)
            now = now._replace(gone=now.gone * (1 - one_hot), pushed=now.pushed + one_hot)
            result = self._settle(now, one_hot, one_hot, is_accepted, values, ps_0_notice)
            return result._replace(is_released=tf.maximum(result.is_released, 1 - tf.cast(is_own, tf.int64)))

        return self._visit(visit, *notices, *values)

    def change_member(self, membership: tf.Tensor, notices: Sequence[tf.Tensor] = ()) -> VisitResult:
        """Builds the visit in which a process of a worker joins or leaves.

        From a join on, groups wait for the new process, whose ticket is this group's. After a leave no group waits for
        the worker, and a group that waited only for that one is closed. The visit does nothing if a later join of the
        worker has arrived.

        Args:
            membership: The change, a vector as `Membership.placeholder` creates it.
            notices: As for `push`.
        """

        def visit(membership: tf.Tensor, *arrived: tf.Tensor) -> VisitResult:
            now, change = self._variables.read(), Membership(*tf.unstack(membership))
            worker = tf.one_hot(change.worker, self._num_workers, dtype=tf.int64)
            one_hot = worker * tf.cast(now.join_numbers <= change.join_number, tf.int64)
            joins = one_hot * change.joins
            now = now._replace(
                gone=tf.maximum(now.gone, one_hot) - joins,
                tickets=tf.where(joins > 0, np.full([self._num_workers], self._ticket), now.tickets),
                join_numbers=tf.maximum(now.join_numbers, joins * change.join_number),
            )
            return self._settle_without_gradient(now, one_hot, joins, arrived)

        return self._visit(visit, membership, *notices)

    def wait(self, worker: int, result: VisitResult) -> tf.Operation:
        """Blocks until this ps task has reached `result.resume_version`, or has released the worker.

        Workers wait on ps 0 if the policy says so, and on the other ps tasks if only fresh gradients count.
        """
        if self._gate is None:
            raise ValueError(f"no worker of this rule waits on ps {self.ps}")

        def has_to_wait() -> tf.Tensor:
            version, is_released = self.read()
            return tf.logical_and(version < result.resume_version, tf.equal(is_released, 0))

        return self._gate.wait(worker, has_to_wait)

    def set_released(self, value: tf.Tensor) -> tf.Tensor:
        """Releases all workers (1), so that a gradient that arrives later is dropped, or takes that back (0)."""

        # In the section: a visit writes back the whole state that it has read, and would undo a release in between.
        def visit(value: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies(self._open_gate([self._variables.set_released(value)])):
                return tf.identity(value)

        return exclusive(self._store, self.ps, visit, value)

    def read(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the version, and whether workers are released, at present."""
        version, _, released = self._variables.read_totals()
        return version, released

    def _visit(self, visit: Callable[..., VisitResult], *arguments: Value) -> VisitResult:
        result: VisitResult = exclusive(self._store, self.ps, visit, *arguments)
        return result

    def _open_gate(self, writes: Sequence[tf.Operation], *, is_open: tf.Tensor | bool = True) -> Sequence[tf.Operation]:
        """Opens the gate after the state is written; returns the ops after which both are done."""
        if self._gate is None:
            return writes
        with tf.control_dependencies(writes):
            return [self._gate.open(is_open=is_open)]

    def _is_acceptable(self, now: GroupState, worker: int, ps_0_notice: Notice | None) -> tf.Tensor:
        """Returns whether a gradient may be in the open group; bool scalar."""
        if ps_0_notice is not None:
            return tf.logical_and(ps_0_notice.group >= 0, now.accepted[worker] < ps_0_notice.num_accepted)
        conditions = [tf.equal(now.released, 0)]
        if self._max_steps is not None:
            conditions.append(self._store.clocks[self.ps].read_value() < self._max_steps)
        if self._policy.is_fresh_only:
            conditions.append(tf.equal(now.stamps[worker], now.version))
        return tf.reduce_all(conditions)

    def _settle_without_gradient(
        self, now: GroupState, one_hot: tf.Tensor, resumes: tf.Tensor, notices: Sequence[tf.Tensor]
    ) -> VisitResult:
        """Settles a visit that brings no gradient; those that ps 0 accepted and this ps task lacks count as zeros."""
        if not self._follows:
            return self._settle(now, one_hot, resumes, tf.constant(0, tf.int64), [], None)
        ps_0_notice = Notice.unpack(notices[0])
        num_missing = tf.reduce_sum(tf.maximum(one_hot * (ps_0_notice.num_accepted - now.accepted), 0))
        return self._settle(now, one_hot, resumes, num_missing, [], ps_0_notice)

    def _settle(
        self,
        now: GroupState,
        one_hot: tf.Tensor,
        resumes: tf.Tensor,
        num_added: tf.Tensor,
        values: Sequence[Value],
        ps_0_notice: Notice | None,
    ) -> VisitResult:
        """Adds gradients to the open group, closes the group if it is complete, and writes the state.

        Args:
            now: The state.
            one_hot: The worker whose gradients are added, or zeros for none.
            resumes: The worker that computes another gradient after this visit, one-hot, or zeros for none.
            num_added: Number of gradients that are added.
            values: Sum of these gradients for each piece; empty for zeros.
            ps_0_notice: The notice of ps 0, if this ps task follows it.
        """
        clock = self._store.clocks[self.ps].read_value()
        members, accepted = now.members + one_hot * num_added, now.accepted + one_hot * num_added
        total = tf.reduce_sum(members)
        closes, size = self._close(now, clock, members, total, ps_0_notice)
        # The update takes the sums and advances the clock, so the gradient is added and the clock is read before it.
        with tf.control_dependencies([self._sums.add(values, num_added > 0), clock] if values else [clock]):
            updated = tf.cond(closes, lambda: self._apply_average(total), lambda: tf.identity(total))
        # Where workers wait, the members of a group resume when it is closed; elsewhere they resume at once.
        in_group = tf.minimum(members, 1) if self._policy.waits else tf.zeros_like(members)
        after = self._state_after(now._replace(members=members, accepted=accepted), closes, size, in_group, resumes)
        # The state is written after the update, and the gate opened after the state. A worker that sees the new version
        # may read parameters at once.
        with tf.control_dependencies([updated]):
            opened = self._open_gate(self._variables.write(after), is_open=closes)
        if ps_0_notice is not None:
            resume_version = ps_0_notice.resume_version
        elif self._policy.waits:
            resume_version = tf.reduce_sum(one_hot * (now.version + in_group))
        else:
            resume_version = tf.reduce_sum(one_hot * after.version)
        group = tf.where(num_added > 0, now.version, tf.constant(-1, tf.int64))
        num_accepted = tf.reduce_sum(one_hot * accepted)
        notice = Notice(group, after.version, size, num_accepted, resume_version).pack()
        # One copy is enough to order: a section gives its results away when all of them are known.
        with tf.control_dependencies(opened):
            return VisitResult(clock, resume_version, num_added, now.released, tf.identity(notice))

    def _close(
        self, now: GroupState, clock: tf.Tensor, members: tf.Tensor, total: tf.Tensor, ps_0_notice: Notice | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns whether the group is complete with `total` gradients (bool scalar), and the new `GroupState.size`."""
        if ps_0_notice is not None:
            # ps 0 has closed the group that is open here if it tells a later version.
            size = tf.where(now.version < ps_0_notice.version, ps_0_notice.size, now.size)
            return tf.logical_and(size > 0, total >= size), size
        closes = self._policy.is_complete(clock, members, now.gone)
        return closes, tf.where(closes, total, now.size)

    def _state_after(
        self, now: GroupState, closes: tf.Tensor, size: tf.Tensor, in_group: tf.Tensor, resumes: tf.Tensor
    ) -> GroupState:
        """Returns the state after a visit.

        Args:
            now: The state, with the visit's gradients counted.
            closes: Whether the visit closes the group.
            size: The new size.
            in_group: 1 for each worker that waits for the open group.
            resumes: The worker that resumes after the visit, one-hot, or zeros for none.
        """
        closed = tf.cast(closes, tf.int64)
        version = now.version + closed
        resumes_now = tf.where(closes, tf.maximum(in_group, resumes), resumes * (1 - in_group))
        return now._replace(
            members=now.members * (1 - closed),
            stamps=tf.where(resumes_now > 0, tf.fill([self._num_workers], version), now.stamps),
            version=version,
            size=size * (1 - closed) if self._follows else size,
        )

    def _apply_average(self, total: tf.Tensor) -> tf.Tensor:
        averages = self._sums.take(1.0 / tf.cast(total, tf.float32))
        with tf.control_dependencies([self._update(self.ps, averages)]):
            return tf.identity(total)
