"""`Applier`: applies gradients by the run's optimizers, on the task that holds the parameters.

Each ps task has its own instance of each optimizer, created in its device scope. Learning rate, schedule,
hyper-parameters and slots all lie on that ps, so a step sends only the gradient. The schedule follows the clock of that
ps task. A worker's replica has its own optimizer in the same way.

TensorFlow's optimizers create their slots in `apply_gradients`. To create them earlier, this file uses two private
members of `tf.train.Optimizer` (`tests/updates/test_apply.py` would notice a change).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.optimizers.assignment import OptimizerAssignment
from ps_trainer.store import undo_log
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.store.undo_log import LoggedTable, UndoLog

T = TypeVar("T", bound=tuple[Any, ...])

_REPLICA = -1  # as `holder`: the worker's replica; otherwise the index of the ps task that holds the variables


class Applier:
    """Applies gradients on ps tasks, or on this worker's replica.

    Args:
        store: The created store.
        optimizers: Optimizers of the run. One call of `apply_gradients` updates all pieces of an optimizer.
        schedule: Component of `component_tables.SCHEDULES`.

    Attributes:
        slots: (piece, slot variable) of every slot that was created on ps tasks so far.
        undo_logs: By index of the ps task the log of its large tables, which every update writes during a save. Only
            for tables whose updates all change single rows.
        replica_slots: (piece, slot variable) of every slot that was created for the replica so far.
    """

    def __init__(self, store: ParameterStore, optimizers: OptimizerAssignment, schedule: Any):
        self._store = store
        self._optimizers = optimizers
        self._schedule = schedule
        self.slots: list[tuple[Piece, tf.Variable]] = []
        self._slotted: dict[tuple[int, int], tf.train.Optimizer] = {}  # by `holder` and index of the optimizer
        self.replica_slots: list[tuple[Piece, tf.Variable]] = []
        self.undo_logs: dict[int, UndoLog] = {}
        self._logged: dict[str, LoggedTable] = {}
        tables = [optimizers.all[self._optimizer_index(piece)] for piece in store.pieces if piece.is_table]
        if any(one.optimizer.walks_whole_table for one in tables):
            logging.warning(
                "this optimizer updates whole embedding tables in each step, not only the batch's rows;"
                " --optimizer=lazy_adam, sgd, adagrad and momentum update only those rows"
            )

    @property
    def undo_state(self) -> list[tf.Variable]:
        """Variables of the logs, which the chief initialises when a run begins."""
        return [variable for log in self.undo_logs.values() for variable in log.state]

    def create_slots(self, ps: int, pieces: Sequence[Piece]) -> None:
        """Creates the slots of pieces of ps task `ps`; call it before an `apply` inside a conditional or a section.

        TensorFlow would have to lift a variable that is created inside a branch out of the branch. Creating the slots
        before avoids that.
        """
        with tf.device(self._store.ps_device(ps)):
            step = self._store.clocks[ps].read_value()
            self.slots += self._create_slots(ps, [(piece, piece.variable) for piece in pieces], step)
            self._create_logs(ps, [piece for piece in pieces if self._changes_rows(piece)])

    def apply(
        self,
        ps: int,
        gradients: Sequence[tuple[Piece, tf.Tensor | tf.IndexedSlices]],
        *,
        rate_factor: tf.Tensor | None = None,
        step: tf.Tensor | None = None,
        use_locking: bool = True,
        in_section: bool = True,
    ) -> tf.Operation:
        """Builds the op that applies the gradients of pieces on ps task `ps`; call it once for each piece.

        Schedule and optimizer follow the clock at the moment when the gradients have arrived.

        Args:
            ps: Index of the ps task.
            gradients: Pieces on that ps, each with its gradient.
            rate_factor: Scalar by which the learning rate is multiplied, or None.
            step: Int64 scalar on the ps task that schedule and optimizer follow; None = the clock.
            use_locking: Whether a sparse update excludes others of the same variable (`PsOptimizer.create`).
            in_section: Whether the update may be in an exclusive section. Without one, a cancelled step may end before
                the update, and each step is faster.
        """
        with tf.device(self._store.ps_device(ps)):
            if not gradients:
                return tf.no_op()
            pairs = [(receive(value), piece.variable) for piece, value in gradients]
            # Without this order the clock would be read when the worker's step begins, and be as stale as its gradient.
            with tf.control_dependencies([_values(value) for value, _ in pairs]):
                step = self._store.clocks[ps].read_value() if step is None else step
            updated = [(piece, piece.variable, value) for (piece, _), (value, _) in zip(gradients, pairs, strict=True)]
            parts = [step, *(part for _, _, value in updated for part in _tensors_of(value))]
            # Between the log and the change the step waits for nothing, so that a moment seldom falls between them.
            with tf.control_dependencies(parts if rate_factor is None else [*parts, rate_factor]):
                log_op = self._log_rows(ps, [(piece, value) for piece, _, value in updated], in_section=in_section)
            with tf.control_dependencies([] if log_op is None else [log_op]):
                apply_op, slots = self._apply(ps, updated, step, rate_factor, use_locking=use_locking)
        self.slots += slots
        return apply_op

    def learning_rate(self, step: tf.Tensor) -> tf.Tensor:
        """Builds the scheduled learning rate of the run's own optimizer, a float32 scalar, in the caller's scope."""
        return tf.convert_to_tensor(self._schedule.build(self._optimizers.all[0].learning_rate, step), tf.float32)

    def create_replica_slots(self, pieces: Sequence[Piece]) -> None:
        """Creates the slots of the replica, before `apply_to_replica` is called inside a conditional."""
        with tf.device(self._store.worker_device):
            replicas = [(piece, piece.replica) for piece in pieces]
            self.replica_slots += self._create_slots(_REPLICA, replicas, tf.zeros([], tf.int64))

    def apply_to_replica(
        self, gradients: Sequence[Gradient], step: tf.Tensor, *, num_applied: tf.Tensor | None = None
    ) -> tf.Operation:
        """Builds the op that applies dense gradients to this worker's replica; call it once.

        Args:
            gradients: Gradients on the worker.
            step: Int64 scalar on the worker, which the schedule follows.
            num_applied: Number of updates of the replica before this one, for Adam's bias correction; int64 scalar on
                the worker. None: `step`.
        """
        with tf.device(self._store.worker_device):
            updated = [(g.piece, g.piece.replica, g.value) for g in gradients]
            apply_op, slots = self._apply(_REPLICA, updated, step, None, num_applied)
        self.replica_slots += slots
        return apply_op

    def _changes_rows(self, piece: Piece) -> bool:
        """Returns whether the piece is a large table of which an update changes only the rows in the gradient."""
        size = piece.variable.shape.num_elements() * piece.variable.dtype.size
        optimizer = self._optimizers.all[self._optimizer_index(piece)].optimizer
        return piece.is_table and size >= undo_log.LARGE_BYTES and not optimizer.walks_whole_table

    def _create_logs(self, ps: int, pieces: Sequence[Piece]) -> None:
        """Creates the logs of large tables whose slots exist."""
        for piece in (one for one in pieces if one.variable.op.name not in self._logged):
            log = self.undo_logs.get(ps) or self.undo_logs.setdefault(ps, UndoLog(ps, self._store.ps_device(ps)))
            slots = [slot for owner, slot in self.slots if owner.variable is piece.variable]
            self._logged[piece.variable.op.name] = log.add(piece, slots)

    def _log_rows(
        self, ps: int, gradients: Sequence[tuple[Piece, tf.Tensor | tf.IndexedSlices]], *, in_section: bool
    ) -> tf.Operation | None:
        """Builds the op that logs the rows of large tables before they change; None if there are none."""
        tables = [(piece, value) for piece, value in gradients if self._changes_rows(piece)]
        if any(piece.variable.op.name not in self._logged for piece, _ in tables):
            self.create_slots(ps, [piece for piece, _ in gradients])
        changes = [(self._logged[piece.variable.op.name], value) for piece, value in tables]
        return (
            self.undo_logs[ps].log(
                [(table, _changed_rows(table, value)) for table, value in changes], in_section=in_section
            )
            if changes
            else None
        )

    def _create_slots(
        self, holder: int, variables: Sequence[tuple[Piece, tf.Variable]], step: tf.Tensor
    ) -> list[tuple[Piece, tf.Variable]]:
        slots = []
        for index, part in self._by_optimizer(variables):
            optimizer = self._create_optimizer(index, step, None)
            optimizer._create_slots([variable for _, variable in part])
            self._slotted[holder, index] = optimizer
            slots += _slots(optimizer, part)
        return slots

    def _apply(
        self,
        holder: int,
        updated: Sequence[tuple[Piece, tf.Variable, tf.Tensor | tf.IndexedSlices]],
        step: tf.Tensor,
        rate_factor: tf.Tensor | None,
        num_applied: tf.Tensor | None = None,
        *,
        use_locking: bool = True,
    ) -> tuple[tf.Operation, list[tuple[Piece, tf.Variable]]]:
        """Builds the op that applies (piece, variable, gradient) triples, and returns the slots created for it."""
        ops, slots = [], []
        for index, part in self._by_optimizer(updated):
            optimizer = self._create_optimizer(index, step, rate_factor, num_applied, use_locking=use_locking)
            # The optimizer of `_create_slots` reads the clock too early; a new one takes over its slots.
            slotted = self._slotted.get((holder, index))
            if slotted is not None:
                optimizer._slots = slotted._slots
            ops.append(optimizer.apply_gradients([(value, variable) for _, variable, value in part]))
            if slotted is None:
                slots += _slots(optimizer, [(piece, variable) for piece, variable, _ in part])
        return ops[0] if len(ops) == 1 else tf.group(*ops), slots

    def _by_optimizer(self, parts: Sequence[T]) -> list[tuple[int, list[T]]]:
        """Groups tuples that begin with a piece by the index of the piece's optimizer."""
        indices = sorted({self._optimizer_index(part[0]) for part in parts})
        return [(index, [part for part in parts if self._optimizer_index(part[0]) == index]) for index in indices]

    def _optimizer_index(self, piece: Piece) -> int:
        # One extent is enough: a layout never puts variables of different optimizers into one piece.
        return self._optimizers.index_of(piece.extents[0].name)

    def _create_optimizer(
        self,
        index: int,
        step: tf.Tensor,
        rate_factor: tf.Tensor | None,
        num_applied: tf.Tensor | None = None,
        *,
        use_locking: bool = True,
    ) -> tf.train.Optimizer:
        assigned = self._optimizers.all[index]
        learning_rate = self._schedule.build(assigned.learning_rate, step)
        if rate_factor is not None:
            learning_rate *= tf.cast(rate_factor, tf.float32)
        step = step if num_applied is None else num_applied
        return assigned.optimizer.create(learning_rate, step, use_locking=use_locking)


def _slots(
    optimizer: tf.train.Optimizer, variables: Sequence[tuple[Piece, tf.Variable]]
) -> list[tuple[Piece, tf.Variable]]:
    names = optimizer.get_slot_names()
    slots = [(piece, optimizer.get_slot(variable, name)) for piece, variable in variables for name in names]
    return [(piece, slot) for piece, slot in slots if slot is not None]


def receive(value: tf.Tensor | tf.IndexedSlices) -> tf.Tensor | tf.IndexedSlices:
    """Returns a gradient, or another tensor, on the device of the scope.

    An op that takes the result as a control input runs when this value has arrived, and needs no separate message.
    """
    if isinstance(value, tf.IndexedSlices):
        # `dense_shape` gets no copy here: no update reads it, so it does not have to travel.
        return tf.IndexedSlices(tf.identity(value.values), tf.identity(value.indices), value.dense_shape)
    return tf.identity(value)


def count_update(clock: tf.Variable) -> tf.Tensor:
    """Adds 1 to a clock and returns its value before, in one atomic op on the clock's ps.

    `assign_add` on a resource variable is an add and a separate read, and other workers' adds can fall between the two.
    This op does both under the variable's lock.
    """
    # The op fails at its limit, which no clock ever reaches.
    return tf.raw_ops.ResourceCountUpTo(resource=clock.handle, limit=2**62, T=tf.int64)


def _values(value: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    return value.values if isinstance(value, tf.IndexedSlices) else value


def _tensors_of(value: tf.Tensor | tf.IndexedSlices) -> list[tf.Tensor]:
    return [value.values, value.indices] if isinstance(value, tf.IndexedSlices) else [value]


def _changed_rows(table: LoggedTable, value: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """Returns the indices of the rows that a gradient changes."""
    return value.indices if isinstance(value, tf.IndexedSlices) else tf.range(table.num_rows)
