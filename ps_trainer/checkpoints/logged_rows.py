"""`LoggedRows`: reads large tables of the ps tasks as they were at a moment, while updates log the rows they change.

The ps tasks copy some rows, all tasks at the same time. Then each task moves the rows that changed before it copied
them from its log to the copies, and the chief reads the copies. The tables are copied before any is read, so that
updates log for a short time only. Where they are large, the ps tasks copy a part of them, the chief reads it, and so
on: that bounds the memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints.stored_state import SavedVariable
from ps_trainer.store.undo_log import LoggedTable, UndoLog

_COPY_BYTES = 8 * 2**20
"""Most bytes that one call copies on each ps task. An update of the table waits for a few milliseconds meanwhile."""
_SLICE_BYTES = 4 * 2**20
"""Most bytes that travel to the chief in one call. A larger slice would hold up the steps whose messages it delays."""
_KEPT_BYTES = 512 * 2**20
"""Most bytes of the tables, with their slots, that a ps task keeps a second time."""
_MAX_ENTRIES = 64
"""Number of entries of the log that one call moves at most."""

_Feeds = dict[tf.Tensor, int]


class _Range(NamedTuple):
    """Rows of a table that are kept together."""

    table: _TableReader
    first: int
    last: int


class LoggedRows:
    """Reads the tables of the ps tasks, with their slots; built in the chief's graph.

    Args:
        logs: The log of each ps task that has one.
        saved: For each of them, for each table, the range of the saved tensor of each of its variables.
        call_options: Options of each call, with its deadline.
    """

    def __init__(
        self,
        logs: Mapping[int, UndoLog],
        saved: Mapping[int, Sequence[Sequence[SavedVariable]]],
        call_options: tf.RunOptions,
    ):
        self._groups = {
            ps: _divide([_TableReader(*one, call_options) for one in zip(log.tables, saved[ps], strict=True)])
            for ps, log in logs.items()
        }
        self._end_ops = {ps: log.end() for ps, log in logs.items()}
        self._options = call_options

    def read(
        self,
        session: tf.Session,
        moments: Mapping[int, int],
        flat: Mapping[str, np.ndarray],
        after_slice: Callable[[], None],
    ) -> int:
        """Reads the rows of a moment, and ends it; returns the number of bytes that were logged.

        Args:
            session: Session on the graph.
            moments: Number of the moment of each ps task, as `UndoLog.hold` returned it.
            flat: Flat values of the saved tensors by name, which receive the rows.
            after_slice: Called after each slice; what it raises ends the reading.
        """
        logged_bytes = 0
        for number in range(max(map(len, self._groups.values()), default=0)):
            now = {ps: groups[number] for ps, groups in self._groups.items() if number < len(groups)}
            self._copy(session, moments, now, after_slice)
            copied = [ps for ps in now if number == len(self._groups[ps]) - 1]
            session.run([self._end_ops[ps] for ps in copied], options=self._options)
            for ps, group in now.items():
                for table, first, last in group:
                    logged_bytes += table.move_entries(session, moments[ps], first, last, after_slice)
            for table, first, last in itertools.chain(*now.values()):
                table.read(session, first, last, flat, after_slice)
        return logged_bytes

    def _copy(
        self,
        session: tf.Session,
        moments: Mapping[int, int],
        groups: Mapping[int, Sequence[_Range]],
        after_slice: Callable[[], None],
    ) -> None:
        """Copies rows on all ps tasks at the same time; each call copies a slice on each of them."""
        ranges = list(itertools.chain(*groups.values()))
        feeds = _merge(table.limits(first, last) for table, first, last in ranges)
        session.run([table.begin_op for table, _, _ in ranges], feeds, options=self._options)
        slices = [
            [(table.copy_op, feeds) for table, *limits in group for feeds in table.copy_feeds(moments[ps], *limits)]
            for ps, group in groups.items()
        ]
        for side_by_side in itertools.zip_longest(*slices):
            ops, feeds_of_ops = zip(*filter(None, side_by_side), strict=True)
            session.run(list(ops), _merge(feeds_of_ops), options=self._options)
            after_slice()


class _TableReader:
    """Copies and reads rows of one table and its slots.

    Attributes:
        num_rows: Rows of the table.
        row_bytes: Size of a row with its slots.
        begin_op: Op that takes the memory for the rows between `limits`.
        copy_op: Op that copies a slice, with one of the `copy_feeds`.
    """

    def __init__(self, table: LoggedTable, saved: Sequence[SavedVariable], call_options: tf.RunOptions):
        self._saved = saved
        self.num_rows = table.num_rows
        self._options = call_options
        self.row_bytes = sum(v.shape.num_elements() * v.dtype.size for v in table.variables) // table.num_rows
        with tf.control_dependencies(None), tf.device(table.variables[0].device):
            self._moment, self._count = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
            self._first, self._last = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
            self._start, self._stop = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
            num_rows = self._last - self._first
            self.begin_op = table.kept.begin(tf.cast(num_rows, tf.int32))
            indices = tf.range(self._start, self._stop)
            parts = [tf.gather(variable, indices) for variable in table.variables]
            with tf.control_dependencies(parts):
                stamp_op = table.stamp(indices, self._moment)  # an update need not log a row that has been copied
            self.copy_op = tf.group(stamp_op, table.kept.put(indices - self._first, parts))
            self._num_entries = table.count()
            self._num_moved = table.move(self._count, self._moment, self._first, num_rows)
            self._parts = table.kept.get(indices - self._first)
            self._free_op = table.kept.free()

    def limits(self, first: int, last: int) -> _Feeds:
        """Returns the feeds that say which rows are kept: `first` to `last`."""
        return {self._first: first, self._last: last}

    def copy_feeds(self, moment: int, first: int, last: int) -> Iterator[_Feeds]:
        """Yields the feeds of each slice of the rows `first` to `last`."""
        for start, stop in self._slices(first, last, _COPY_BYTES):
            yield {self._first: first, self._start: start, self._stop: stop, self._moment: moment}

    def move_entries(
        self, session: tf.Session, moment: int, first: int, last: int, after_slice: Callable[[], None]
    ) -> int:
        """Moves the rows of the log to the copied ones; returns their size in bytes."""
        num_moved = 0
        # A row that had changed when it was copied is in one of these entries.
        num_entries = int(session.run(self._num_entries, options=self._options))
        for index in range(0, num_entries, _MAX_ENTRIES):
            feeds = {self._count: min(_MAX_ENTRIES, num_entries - index), self._moment: moment}
            feeds |= self.limits(first, last)
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
        for start, stop in self._slices(first, last, _SLICE_BYTES):
            feeds = {self._first: first, self._start: start, self._stop: stop}
            for whole, part in zip(wholes, session.run(self._parts, feeds, options=self._options), strict=True):
                whole[start:stop] = np.reshape(part, [len(part), -1])
            after_slice()
        session.run(self._free_op, options=self._options)

    def _slices(self, first: int, last: int, num_bytes: int) -> Iterator[tuple[int, int]]:
        """Yields the limits of slices of at most so many bytes, and at least one row."""
        num_rows = max(1, num_bytes // self.row_bytes)
        for start in range(first, last, num_rows):
            yield start, min(start + num_rows, last)


def _merge(feeds: Iterable[_Feeds]) -> _Feeds:
    return {tensor: value for one in feeds for tensor, value in one.items()}


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
