"""`UndoLog`: keeps the rows of large embedding tables as they were at one moment, at the cost of the rows that change.

A save wants the tables of one moment, while training continues. A copy of a table would stop the updates for as long as
it takes. In place of a copy, each update first logs the old rows that it is about to change.

Every moment has a number. A ps task has `active`, the number of the moment that a save is reading, or 0. Every row has
a *stamp*, the number of the last moment for which it was logged. An update of some rows does, on the ps task:

    1. read `active`                                 3. if active: log the old rows whose stamp is smaller
    2. if active: read the old rows, then the stamps 4. if active: raise the stamps of all of its rows
                                                     5. change the rows

A logged row has its value of the moment: when its stamp was read, after the row, no update of this moment had changed
it. Two updates may log the same row, with the same value. A reader that reads the rows at any later time, and then the
log, finds in the log every row that has changed since. No step needs a lock of the table, so updates without locks
(`hogwild`) are right, too; only the stamps have one, during a save. No step waits or fails, so the updates of a worker
that is killed are complete as well (`exclusive.py`).

An update that has begun before the moment, and ends after it, does not log for it. So a row that it changes is read as
it was before that update or after it. Where no update is under way at the moment, as under `sync`, every row is exact.
Such an update may log for an earlier moment meanwhile: a reader ignores its entries, and it lowers no stamp.

The log is a staging area. Each row is logged once for a moment. So the log never exceeds the table, except for rows
that two updates log at the same time. A reader copies rows on the ps task (`kept_rows.py`) and stamps them. It then
moves the entries to the copied rows, and the chief reads those. A copy takes less time than the transfer to the chief,
so few rows change before they are copied. Updates log nothing any more when all rows are copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.store.kept_rows import KeptRows
from ps_trainer.store.pieces import Piece
from ps_trainer.store.variables import create_variable

LARGE_BYTES = 2**20
"""A smaller table is copied instead, which takes less than a millisecond."""
_NAME = "undo_log"


class LoggedTable:
    """A table, or a part of one, whose old rows are logged together with those of its optimizer slots.

    Args:
        piece: The table.
        slots: Its slots, with one row for each row of the table.

    Attributes:
        variables: The table, then the slots.
        num_rows: Number of rows.
        kept: Rows that a save keeps until it has read them.
        stamps: Number of the last moment for which each row was logged, int32 [num_rows].
    """

    def __init__(self, piece: Piece, slots: Sequence[tf.Variable]):
        name = piece.variable.op.name
        self.variables = [piece.variable, *slots]
        self.num_rows = int(piece.variable.shape[0])
        self._area = f"{_NAME}/{name}"
        self._container = piece.variable.handle.op.get_attr("container").decode()
        self._dtypes = [tf.int32, tf.int64, *(variable.dtype.base_dtype for variable in self.variables)]
        with tf.device(piece.variable.device):
            self.stamps = create_variable(f"{_NAME}/{name}/stamps", [self.num_rows], tf.int32)
        self.kept = KeptRows(self.variables, self._container, f"{self._area}/kept")

    def log(self, indices: tf.Tensor, moment: tf.Tensor) -> tf.Operation:
        """Builds the op that logs the old rows and stamps them; the rows may change after it.

        Args:
            indices: Indices of the rows that will change, integers [n]; an index may occur several times.
            moment: Number of the moment, int32 scalar.
        """
        indices = tf.cast(indices, tf.int64)
        rows = [tf.gather(variable, indices) for variable in self.variables]
        # Rows first: if an update changed a row before this read, it had stamped the row before.
        with tf.control_dependencies(rows):
            stamps = tf.gather(self.stamps, indices)
        new = tf.where(stamps < moment)[:, 0]

        is_staged = self._stage(moment, tf.gather(indices, new), [tf.gather(part, new) for part in rows])
        with tf.control_dependencies([is_staged]):
            return self.stamp(indices, moment)

    def stamp(self, indices: tf.Tensor, moment: tf.Tensor) -> tf.Operation:
        """Builds the op that raises the stamps of rows, int64 [n]; later updates of the moment do not log them."""
        return tf.raw_ops.ResourceScatterNdMax(
            ref=self.stamps.handle,
            indices=tf.expand_dims(indices, 1),
            updates=tf.fill(tf.shape(indices), moment),
            use_locking=True,  # the order of this op and of the reads of stamps and rows is part of the argument above
        )

    def count(self) -> tf.Tensor:
        """Builds the op that counts the entries in the log, int32 scalar."""
        return tf.raw_ops.StageSize(dtypes=self._dtypes, shared_name=self._area)

    def move(self, count: tf.Tensor, moment: tf.Tensor, first: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
        """Builds the op that moves entries to the kept rows; returns the number of rows that it has moved, int32.

        Args:
            count: Number of entries, int32 scalar, at most the result of `count`.
            moment: Number of the moment, int32 scalar. Entries of other moments are dropped.
            first: First row of the table that is kept, int64 scalar. Rows before it are dropped.
            num_rows: Number of kept rows, int64 scalar. Rows behind them stay in the log.
        """

        def move_one(index: tf.Tensor, num_moved: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.get_default_graph().container(self._container):
                own, indices, *rows = tf.raw_ops.Unstage(dtypes=self._dtypes, shared_name=self._area)
            # An update that was under way at the end of an earlier moment may have logged for that one.
            places = tf.where(tf.equal(own, moment), indices - first, tf.fill(tf.shape(indices), np.int64(-1)))
            here, later = tf.where((places >= 0) & (places < num_rows))[:, 0], tf.where(places >= num_rows)[:, 0]
            put = self.kept.put(tf.gather(places, here), [tf.gather(part, here) for part in rows])
            staged = self._stage(own, tf.gather(indices, later), [tf.gather(part, later) for part in rows])
            with tf.control_dependencies([put, staged]):
                return index + 1, num_moved + tf.size(here)

        return tf.while_loop(
            lambda index, _: index < count, move_one, [tf.constant(0), tf.constant(0)], parallel_iterations=1,
            back_prop=False,
        )[1]  # fmt: skip

    def clear(self) -> tf.Operation:
        """Builds the op that empties the log, and frees the kept rows."""
        with tf.get_default_graph().container(self._container):
            cleared = tf.raw_ops.StageClear(dtypes=self._dtypes, shared_name=self._area)
        return tf.group(cleared, self.kept.free())

    def _stage(self, moment: tf.Tensor, indices: tf.Tensor, rows: Sequence[tf.Tensor]) -> tf.Tensor:
        """Builds the op that adds an entry, unless it would be empty."""

        def stage() -> tf.Tensor:
            # A branch of `tf.cond` is a separate graph, which does not know the container of the one around it.
            with tf.get_default_graph().container(self._container):
                staged = tf.raw_ops.Stage(values=[moment, indices, *rows], shared_name=self._area)
            with tf.control_dependencies([staged]):
                return tf.constant(True)

        # Without empty entries the log grows with the rows that change, and not with the number of updates.
        return tf.cond(tf.size(indices) > 0, stage, lambda: tf.constant(False))


class UndoLog:
    """The log of one ps task, in the run's container.

    Args:
        ps: Index of the ps task.
        device: Device of the ps task.

    Attributes:
        tables: The tables whose old rows are logged.
        active: Number of the moment that a save reads, or 0; int32 scalar.
    """

    def __init__(self, ps: int, device: str):
        self.tables: list[LoggedTable] = []
        self._device = device
        with tf.device(device):
            self.active = create_variable(f"{_NAME}/{ps}/active", [], tf.int32)
            self._last = create_variable(f"{_NAME}/{ps}/last", [], tf.int32)

    @property
    def state(self) -> list[tf.Variable]:
        """Variables that the chief initialises when a run begins."""
        return [self.active, self._last, *(table.stamps for table in self.tables)]

    def add(self, piece: Piece, slots: Sequence[tf.Variable]) -> LoggedTable:
        """Adds a table."""
        table = LoggedTable(piece, slots)
        self.tables.append(table)
        return table

    def log(self, changes: Sequence[tuple[LoggedTable, tf.Tensor]], *, in_section: bool = True) -> tf.Operation:
        """Builds the op of an update that comes before the change of the rows.

        Args:
            changes: Tables, each with the indices of the rows that change.
            in_section: Whether the update is in an exclusive section, whose ops must run in a cancelled step as well.
        """

        def log_all() -> tf.Tensor:
            with tf.control_dependencies([table.log(indices, moment) for table, indices in changes]):
                return tf.constant(True)

        with tf.device(self._device):
            moment = self.active.read_value()
            is_logged = tf.cond(moment > 0, log_all, lambda: tf.constant(False))
            if not in_section:
                _keep_as_one_op(is_logged)
            return is_logged.op

    def hold(self) -> tf.Tensor:
        """Builds the op that begins a moment; returns its number, an int32 scalar on the ps task."""
        with tf.device(self._device):
            counted = self._last.assign_add(1, read_value=False)
            with tf.control_dependencies([counted]):
                number = self._last.read_value()
            with tf.control_dependencies([self.active.assign(number, read_value=False)]):
                return tf.identity(number)

    def end(self) -> tf.Operation:
        """Builds the op that ends the moment; an update that begins later logs nothing."""
        with tf.device(self._device):
            return self.active.assign(tf.constant(0), read_value=False)

    def release(self) -> tf.Operation:
        """Builds the op that ends the moment, empties the log and frees the kept rows.

        An update that is under way may still log some rows; a later reader ignores them, as their moment is another.
        """
        with tf.control_dependencies([self.end()]):
            return self.clear()

    def clear(self) -> tf.Operation:
        """Builds the op that empties the log, and frees the kept rows."""
        with tf.device(self._device):
            return tf.group(*(table.clear() for table in self.tables))


def _keep_as_one_op(result: tf.Tensor) -> None:
    """Keeps a `tf.cond` as the one op that TensorFlow has made of it; a cancelled step fails there.

    Otherwise TensorFlow would put the ops of both branches into the graph of each step. They cost time even if they do
    not run: a task runs all ops of a graph more slowly if some of them choose a branch.
    """
    (if_op,) = (tensor.op for tensor in result.op.inputs)
    # Private: TensorFlow reads this attribute, and has no public way to set it (tests/checkpoints/test_logged_rows.py).
    if_op._set_attr("_lower_using_switch_merge", tf.AttrValue(b=False))
