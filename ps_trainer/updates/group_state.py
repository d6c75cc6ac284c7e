"""State of a gradient group on one ps task, and what a worker's visit reports about it."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.variables import create_variable


class GroupState(NamedTuple):
    """The state of one ps task's groups, as int64 variables or as the values that were read.

    Attributes:
        gone: [num_workers], 1 for a worker that has left.
        members: [num_workers], number of gradients of each worker in the open group.
        accepted: [num_workers], number of gradients of each worker that were accepted so far.
        pushed: [num_workers], number of gradients of each worker that arrived so far, rejected ones included.
        stamps: [num_workers], version of the parameters that each worker computes with.
        tickets: [num_workers], ticket of the process that represents each worker at present.
        join_numbers: [num_workers], last join number of each worker; 0 for a worker that never joined.
        version: Number of groups closed so far.
        size: Number of gradients in the last closed group. On a ps task that follows the decisions of ps 0, it is the
            number of gradients that the open group will have, or 0 while ps 0 has not told it.
        released: 1 after the workers were released for good.
    """

    gone: Any
    members: Any
    accepted: Any
    pushed: Any
    stamps: Any
    tickets: Any
    join_numbers: Any
    version: Any
    size: Any
    released: Any

    @classmethod
    def create(cls, name: str, ps: int, num_workers: int) -> GroupState:
        """Creates the variables, all zero, in the device scope of ps task `ps`."""
        shapes: dict[str, list[int]] = {"version": [], "size": [], "released": []}
        return cls(
            *(
                create_variable(f"{name}/{field}_{ps}", shapes.get(field, [num_workers]), "int64")
                for field in cls._fields
            )
        )

    def read(self) -> GroupState:
        """Reads all variables; call it in the exclusive section, so that the values belong together."""
        return GroupState(*(variable.read_value() for variable in self))

    def write(self, values: GroupState) -> list[tf.Operation]:
        """Builds the ops that assign `values` to the variables."""
        return [variable.assign(value, read_value=False) for variable, value in zip(self, values, strict=True)]


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
        """Returns the notice that `packed` gave."""
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
