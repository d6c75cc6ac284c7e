"""State of a gradient group on one ps task, and what a worker's visit reports about it."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.variables import create_variable


class GroupState(NamedTuple):
    """The state of one ps task's groups; int64.

    Attributes:
        gone: [num_workers], 1 for a worker that has left.
        members: [num_workers], number of gradients of each worker in the open group.
        accepted: [num_workers], number of gradients of each worker that were accepted so far.
        pushed: [num_workers], number of gradients of each worker that arrived so far, rejected ones included.
        stamps: [num_workers], version of the parameters that each worker computes with.
        tickets: [num_workers], ticket of the process that represents each worker at present.
        join_numbers: [num_workers], last join number of each worker; 0 for a worker that never joined.
        version: Number of groups closed so far.
        size: Number of gradients in the last closed group. On a ps task that follows ps 0, it is the number of
            gradients that the open group will have, or 0 before ps 0 tells it.
        released: 1 after the workers were released for good.
    """

    gone: tf.Tensor
    members: tf.Tensor
    accepted: tf.Tensor
    pushed: tf.Tensor
    stamps: tf.Tensor
    tickets: tf.Tensor
    join_numbers: tf.Tensor
    version: tf.Tensor
    size: tf.Tensor
    released: tf.Tensor


_NUM_BY_WORKER = GroupState._fields.index("version")  # these fields have a number for each worker


class GroupVariables(NamedTuple):
    """The variables that hold a `GroupState`: two in place of ten, because each needs ops to read and to write it.

    Attributes:
        by_worker: The fields with a number for each worker, [7, num_workers].
        totals: The other fields, [3].
    """

    by_worker: tf.Variable
    totals: tf.Variable

    @classmethod
    def create(cls, name: str, ps: int, num_workers: int) -> GroupVariables:
        """Creates the variables, all zero, in the device scope of ps task `ps`."""
        num_totals = len(GroupState._fields) - _NUM_BY_WORKER
        return cls(
            create_variable(f"{name}/by_worker_{ps}", [_NUM_BY_WORKER, num_workers], "int64"),
            create_variable(f"{name}/totals_{ps}", [num_totals], "int64"),
        )

    def read(self) -> GroupState:
        """Reads all variables; in the exclusive section the values belong together."""
        return GroupState(*tf.unstack(self.by_worker.read_value()), *self.read_totals())

    def read_totals(self) -> list[tf.Tensor]:
        """Reads version, size and released."""
        totals: list[tf.Tensor] = tf.unstack(self.totals.read_value())
        return totals

    def set_released(self, value: tf.Tensor) -> tf.Operation:
        """Builds the op that sets only `released`; call it in the exclusive section."""
        version, size, _ = self.read_totals()
        return self.totals.assign(tf.stack([version, size, value]), read_value=False)

    def write(self, state: GroupState) -> list[tf.Operation]:
        """Builds the ops that assign `state` to the variables."""
        by_worker, totals = state[:_NUM_BY_WORKER], state[_NUM_BY_WORKER:]
        return [
            self.by_worker.assign(tf.stack(by_worker), read_value=False),
            self.totals.assign(tf.stack(totals), read_value=False),
        ]


class Notice(NamedTuple):
    """Answer that ps 0 gives to the other ps tasks about a worker's visit; int64 scalars on the ps that made it.

    It travels as one vector of five numbers, because each tensor would be a separate message.

    Attributes:
        group: Number of the group that the gradient is in, or -1 if it is in none.
        version: Number of groups closed after the visit.
        size: Number of gradients in the last closed group.
        num_accepted: Number of gradients of that worker that were accepted so far.
        resume_version: Smallest version with which the worker resumes.
    """

    group: tf.Tensor
    version: tf.Tensor
    size: tf.Tensor
    num_accepted: tf.Tensor
    resume_version: tf.Tensor

    def pack(self) -> tf.Tensor:
        """Returns the notice as a vector, [5]."""
        return tf.stack(list(self))

    @classmethod
    def unpack(cls, vector: tf.Tensor) -> Notice:
        """Returns the notice that `pack` gave."""
        return cls(*tf.unstack(vector))


class VisitResult(NamedTuple):
    """Result of a worker's visit to a group; int64 on the ps.

    Attributes:
        clock: Number of updates counted there before the visit.
        resume_version: Smallest version with which the worker resumes.
        is_accepted: 1 if the pushed gradient was accepted into a group, else 0.
        is_released: 1 if the worker was released for good, else 0.
        notice: A packed `Notice`, [5].
    """

    clock: tf.Tensor
    resume_version: tf.Tensor
    is_accepted: tf.Tensor
    is_released: tf.Tensor
    notice: tf.Tensor
