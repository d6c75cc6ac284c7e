"""`LoggedRows`: reads a large table as it was at a moment, from its current rows and the log of those that changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints.stored_state import SavedVariable
from ps_trainer.store.undo_log import LoggedTable

_SLICE_BYTES = 2**20
"""An update of the table waits while a slice is read."""
_MAX_ENTRIES = 64
"""Number of entries of the log that one call takes at most."""


class LoggedRows:
    """Reads one table and its slots; built in the chief's graph.

    Args:
        table: The table with its log.
        saved: For each of its variables the range of the saved tensor.
        call_options: Options of each call, with its deadline.
    """

    def __init__(self, table: LoggedTable, saved: Sequence[SavedVariable], call_options: tf.RunOptions):
        self._saved = saved
        self._num_rows = table.num_rows
        self._options = call_options
        self._logged_bytes = 0
        row_bytes = sum(v.shape.num_elements() * v.dtype.size for v in table.variables) // table.num_rows
        self._slice_rows = max(1, _SLICE_BYTES // row_bytes)
        with tf.control_dependencies(None), tf.device(table.variables[0].device):
            self._start = tf.placeholder(tf.int64, [])
            self._moment = tf.placeholder(tf.int32, [])
            stop = tf.minimum(self._start + self._slice_rows, table.num_rows)
            indices = tf.range(self._start, stop)
            self._parts = [tf.gather(variable, indices) for variable in table.variables]
            # An update need not log a row that has been read.
            with tf.control_dependencies(self._parts):
                self._stamp_op = table.stamp(indices, self._moment)
            with tf.control_dependencies([self._stamp_op]):
                self._num_entries = table.count()
            self._count = tf.placeholder(tf.int32, [])
            self._entries = table.take(self._count)

    def read(
        self, session: tf.Session, moment: int, flat: Mapping[str, np.ndarray], after_slice: Callable[[], None]
    ) -> int:
        """Reads the rows of a moment; returns the number of bytes that were logged.

        Args:
            session: Session on the graph.
            moment: Number of the moment, as `UndoLog.hold` returned it.
            flat: Flat values of the saved tensors by name, which receive the rows.
            after_slice: Called after each slice; what it raises ends the reading.
        """
        rows = [_rows_of(flat, saved, self._num_rows) for saved in self._saved]
        is_logged = np.zeros([self._num_rows], bool)
        self._logged_bytes = 0
        for start in range(0, self._num_rows, self._slice_rows):
            parts, num_entries, _ = session.run(
                [self._parts, self._num_entries, self._stamp_op],
                {self._start: start, self._moment: moment},
                options=self._options,
            )
            unchanged = ~is_logged[start : start + self._slice_rows]
            for whole, part in zip(rows, parts, strict=True):
                whole[start : start + len(part)][unchanged] = _flat_rows(part, whole)[unchanged]
            after_slice()
            # At most one call for each slice, as training might fill the log faster than this empties it.
            num_entries -= self._take_entries(session, min(num_entries, _MAX_ENTRIES), moment, rows, is_logged)
        # A row that had changed when its slice was read is in one of these entries or in an earlier one.
        while num_entries:
            after_slice()
            num_entries -= self._take_entries(session, min(num_entries, _MAX_ENTRIES), moment, rows, is_logged)
        return self._logged_bytes

    def _take_entries(
        self, session: tf.Session, count: int, moment: int, rows: Sequence[np.ndarray], is_logged: np.ndarray
    ) -> int:
        """Takes `count` entries out of the log and writes their rows; returns `count`."""
        if not count:
            return 0
        found = session.run(self._entries, {self._count: count}, options=self._options)
        # An update that was under way at the end of an earlier moment may have logged for that one.
        is_own = found.moments == moment
        indices = found.indices[is_own]
        for whole, part in zip(rows, found.rows, strict=True):
            whole[indices] = _flat_rows(part, whole)[is_own]
            self._logged_bytes += part.nbytes
        is_logged[indices] = True
        return count


def _rows_of(flat: Mapping[str, np.ndarray], saved: SavedVariable, num_rows: int) -> np.ndarray:
    """Returns the part of a saved tensor that a table holds, one row for each row of the table."""
    (extent,) = saved.extents  # a table never shares its variable with another one
    return np.reshape(flat[extent.name][extent.start : extent.stop], [num_rows, -1])


def _flat_rows(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.reshape(part, [len(part), whole.shape[1]])
