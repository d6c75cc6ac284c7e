"""`LoggedRows`: reads the large tables of a ps task as they were at a moment, while updates log the rows they change.

The ps task copies some rows, and moves the rows to them that were logged because they changed before they were copied.
Then the chief reads the copies. The tables are copied before any is read, so that updates log for a short time only.
Where they are large, the ps task copies a part of them, the chief reads it, and so on: that bounds the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints.stored_state import SavedVariable
from ps_trainer.store.undo_log import LoggedTable, UndoLog

_SLICE_BYTES = 2**20
"""An update of the table waits while a slice is copied, and for the processor while it travels."""
_KEPT_BYTES = 512 * 2**20
"""Most bytes of the tables, with their slots, that a ps task keeps a second time."""
_MAX_ENTRIES = 16
"""Number of entries of the log that one call moves at most."""


class _Range(NamedTuple):
    """Rows of a table that are kept together."""

    table: _TableReader
    first: int
    last: int


class LoggedRows:
    """Reads the tables of one ps task, with their slots; built in the chief's graph.

    Args:
        log: The log of the ps task.
        saved: For each table the range of the saved tensor of each of its variables.
        call_options: Options of each call, with its deadline.
    """

    def __init__(self, log: UndoLog, saved: Sequence[Sequence[SavedVariable]], call_options: tf.RunOptions):
        self._tables = [_TableReader(*one, call_options) for one in zip(log.tables, saved, strict=True)]
        self._groups = _divide(self._tables)
        self._end_op = log.end()
        self._options = call_options

    def read(
        self, session: tf.Session, moment: int, flat: Mapping[str, np.ndarray], after_slice: Callable[[], None]
    ) -> int:
        """Reads the rows of a moment, and ends it; returns the number of bytes that were logged.

        Args:
            session: Session on the graph.
            moment: Number of the moment, as `UndoLog.hold` returned it.
            flat: Flat values of the saved tensors by name, which receive the rows.
            after_slice: Called after each slice; what it raises ends the reading.
        """
        logged_bytes = 0
        for group in self._groups:
            for table, first, last in group:
                table.copy(session, moment, first, last, after_slice)
            if group is self._groups[-1]:
                session.run(self._end_op, options=self._options)
            for table, first, last in group:
                logged_bytes += table.move_entries(session, moment, first, last, after_slice)
            for table, first, last in group:
                table.read(session, first, last, flat, after_slice)
        return logged_bytes


class _TableReader:
    """Copies and reads rows of one table and its slots."""

    def __init__(self, table: LoggedTable, saved: Sequence[SavedVariable], call_options: tf.RunOptions):
        self._saved = saved
        self.num_rows = table.num_rows
        self._options = call_options
        self.row_bytes = sum(v.shape.num_elements() * v.dtype.size for v in table.variables) // table.num_rows
        self._slice_rows = max(1, _SLICE_BYTES // self.row_bytes)
        with tf.control_dependencies(None), tf.device(table.variables[0].device):
            self._moment, self._count = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
            self._first, self._last = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
            self._start = tf.placeholder(tf.int64, [])
            num_rows = self._last - self._first
            self._begin_op = table.kept.begin(tf.cast(num_rows, tf.int32))
            indices = tf.range(self._start, tf.minimum(self._start + self._slice_rows, self._last))
            parts = [tf.gather(variable, indices) for variable in table.variables]
            with tf.control_dependencies(parts):
                stamp_op = table.stamp(indices, self._moment)  # an update need not log a row that has been copied
            self._copy_op = tf.group(stamp_op, table.kept.put(indices - self._first, parts))
            self._num_entries = table.count()
            self._num_moved = table.move(self._count, self._moment, self._first, num_rows)
            self._parts = table.kept.get(indices - self._first)
            self._free_op = table.kept.free()

    def copy(self, session: tf.Session, moment: int, first: int, last: int, after_slice: Callable[[], None]) -> None:
        """Copies rows `first` to `last` on the ps task."""
        limits = {self._first: first, self._last: last}
        session.run(self._begin_op, limits, options=self._options)
        for start in range(first, last, self._slice_rows):
            session.run(self._copy_op, limits | {self._start: start, self._moment: moment}, options=self._options)
            after_slice()

    def move_entries(
        self, session: tf.Session, moment: int, first: int, last: int, after_slice: Callable[[], None]
    ) -> int:
        """Moves the rows of the log to the copied ones; returns their size in bytes."""
        num_moved = 0
        # A row that had changed when it was copied is in one of these entries.
        num_entries = int(session.run(self._num_entries, options=self._options))
        for index in range(0, num_entries, _MAX_ENTRIES):
            feeds = {self._count: min(_MAX_ENTRIES, num_entries - index), self._moment: moment}
            feeds |= {self._first: first, self._last: last}
            num_moved += int(session.run(self._num_moved, feeds, options=self._options))
            after_slice()
        return num_moved * self.row_bytes

    def read(
        self,
        session: tf.Session,
        first: int,
        last: int,
        flat: Mapping[str, np.ndarray],
        after_slice: Callable[[], None],
    ) -> None:
        """Reads the copied rows, and frees them."""
        wholes = [_rows_of(flat, saved, self.num_rows) for saved in self._saved]
        for start in range(first, last, self._slice_rows):
            feeds = {self._start: start, self._first: first, self._last: last}
            for whole, part in zip(wholes, session.run(self._parts, feeds, options=self._options), strict=True):
                whole[start : start + len(part)] = np.reshape(part, [len(part), -1])
            after_slice()
        session.run(self._free_op, options=self._options)


def _divide(tables: Sequence[_TableReader]) -> list[list[_Range]]:
    """Divides the rows of all tables into groups of at most `_KEPT_BYTES`, and at least one row."""
    groups: list[list[_Range]] = [[]]
    free_bytes = _KEPT_BYTES
    for table in tables:
        first = 0
        while first < table.num_rows:
            last = min(table.num_rows, first + max(0, free_bytes) // table.row_bytes)
            if last == first and groups[-1]:
                groups.append([])
                free_bytes = _KEPT_BYTES
                continue
            last = max(last, first + 1)
            groups[-1].append(_Range(table, first, last))
            free_bytes -= (last - first) * table.row_bytes
            first = last
    return groups


def _rows_of(flat: Mapping[str, np.ndarray], saved: SavedVariable, num_rows: int) -> np.ndarray:
    """Returns the part of a saved tensor that a table holds, one row for each row of the table."""
    (extent,) = saved.extents  # a table never shares its variable with another one
    return np.reshape(flat[extent.name][extent.start : extent.stop], [num_rows, -1])
