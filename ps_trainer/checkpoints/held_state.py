"""`HeldState`: the state of one moment, kept on the ps tasks until a save has read it, while training continues.

The chief holds the state between two of its steps, in one short call:

* Small variables travel to the chief in that call.
* For each large dense variable, the ps task keeps the current value in a second variable. The two share their memory
  until the next update, which copies it.
* Large embedding tables are not copied at once. From now on each update logs the rows that it changes
  (`store/undo_log.py`).

Beside the chief's steps, the ps tasks then copy the tables in slices, all tasks at the same time (`logged_rows.py`).
The chief reads the copies and the second variables in slices, and releases them. So a save needs the memory of the
large dense variables once more on the ps tasks, and of a part of the tables. On the chief it needs the memory of the
variables below 64 MiB, and disk for the larger ones.

A table of which each update changes every row is copied at once.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import file_arrays
from ps_trainer.checkpoints.logged_rows import LoggedRows
from ps_trainer.checkpoints.stored_state import SavedVariable, StoredState
from ps_trainer.store import extents as extents_lib
from ps_trainer.store.undo_log import UndoLog

_SMALL_BYTES = 4 * 2**20
"""The smallest variables, up to this sum, are read at once: it takes less time than to hold them."""
_SLICE_BYTES = 4 * 2**20
"""A larger slice would hold up the steps whose messages it delays."""


class HeldSnapshot(NamedTuple):
    """The state of one moment.

    Attributes:
        step: Its global_step.
        small: Values of the small variables, in the order of `HeldState`.
        counts: Values of the counts, by name.
        of_logs: For each ps task with a log the number of its moment.
    """

    step: int
    small: list[np.ndarray]
    counts: dict[str, np.ndarray]
    of_logs: Mapping[int, int] = {}


class _Large(NamedTuple):
    """A large variable: its second variable, and a slice of that one."""

    saved: SavedVariable
    copy: tf.Variable
    start: tf.Tensor
    part: tf.Tensor
    size: int
    slice_size: int


class HeldState:
    """Holds and reads the state; built in the chief's graph.

    Args:
        state: The saved state.
        undo_logs: Logs of large tables by ps task, which every update of these tables writes.
        call_secs: Deadline in seconds of each call that reads a slice.

    Attributes:
        num_bytes: Size in bytes of the variables that every save holds a second time.
        total_bytes: Size in bytes of all saved variables.
        is_large: Whether the thread of a save has variables to read.
        logged_bytes: Size in bytes of the rows that the last save found in logs.
        release_op: Op that frees the second variables and ends the logs; also when nothing is held.
    """

    def __init__(self, state: StoredState, undo_logs: Mapping[int, UndoLog], call_secs: float):
        self._state = state
        self._call_options = tf.RunOptions(timeout_in_ms=int(1000 * call_secs))
        by_name = {saved.variable.op.name: saved for saved in state.saved_variables}
        of_tables = {
            ps: [[by_name.pop(one.op.name) for one in table.variables] for table in log.tables]
            for ps, log in undo_logs.items()
        }
        self._logged = LoggedRows(undo_logs, of_tables, self._call_options)
        self._small, large = _split_by_size(list(by_name.values()))
        self.num_bytes = sum(_num_bytes(saved) for saved in large)
        self.total_bytes = sum(_num_bytes(saved) for saved in state.saved_variables)
        self.is_large = bool(large or undo_logs)
        self.logged_bytes = 0
        # Counts first: every push that a count includes has then been applied on ps 0 before its parameters are read.
        with tf.control_dependencies(list(state.count_reads.values())):
            self._small_reads = [saved.variable.read_value() for saved in self._small]
            self._step_read = state.clock.read_value()
            self._large = [_build_held(saved) for saved in large]
            self._hold_ops = [one.copy.assign(one.saved.variable.read_value(), read_value=False) for one in self._large]
            self._moments = {ps: log.hold() for ps, log in undo_logs.items()}
        self.release_op = tf.group(
            *(one.copy.assign(_empty_value(one.copy), read_value=False) for one in self._large),
            *(log.release() for log in undo_logs.values()),
        )

    def hold(self, session: tf.Session) -> HeldSnapshot:
        """Holds the current state, in place of one that is held already.

        Each variable is held atomically. An update that is made at that moment may be in one variable and missing in
        another one, in its slot or in the clock. The same holds for updates between the moments of two ps tasks. Counts
        are read before the parameters, so the pushes that they count have been applied on ps task 0.

        An exact snapshot of a ps task would need a section that every push enters, too. That costs 3 % more CPU time
        per step: `benchmarks.step_rate --rules=drop_stale`, whose pushes do so, in 8 and in 10 rounds beside `async`.
        """
        step, small, counts, of_logs, _ = session.run(
            [self._step_read, self._small_reads, self._state.count_reads, self._moments, self._hold_ops]
        )
        return HeldSnapshot(int(step), small, counts, {ps: int(number) for ps, number in of_logs.items()})

    def read(
        self,
        session: tf.Session,
        snapshot: HeldSnapshot,
        after_slice: Callable[[], None] = lambda: None,
        folder: pathlib.Path | None = None,
    ) -> dict[str, np.ndarray]:
        """Reads the values of the held moment, by name, and releases it.

        Args:
            session: Session on the graph.
            snapshot: Result of `hold`.
            after_slice: Called after each slice; what it raises ends the reading.
            folder: Folder on whose disk large values lie (`file_arrays.py`); None = all lie in memory.

        Raises:
            tf.errors.OpError: A ps task is lost, or has not answered in time.
            OSError: The disk is full.
        """
        specs = self._state.specs
        try:
            flat = extents_lib.allocate(
                specs,
                [saved.extents for saved in self._state.saved_variables],
                lambda spec: file_arrays.allocate(spec.size, spec.dtype, folder),
            )
            in_files = [array for array in flat.values() if file_arrays.is_in_file(array)]

            def end_slice() -> None:
                for array in in_files:
                    file_arrays.release(array)
                after_slice()

            for saved, value in zip(self._small, snapshot.small, strict=True):
                extents_lib.copy_into_model(flat, saved.extents, value)
            # First, so that fewer rows change before they are read.
            self.logged_bytes = self._logged.read(session, snapshot.of_logs, flat, end_slice)
            for one in self._large:
                for start in range(0, one.size, one.slice_size):
                    value = session.run(one.part, {one.start: [start]}, options=self._call_options)
                    extents_lib.copy_into_model(flat, one.saved.extents, value, start)
                    end_slice()
        finally:
            session.run(self.release_op, options=self._call_options)
        values = {spec.name: np.reshape(flat[spec.name], spec.shape) for spec in specs}
        return values | snapshot.counts | {"global_step": np.int64(snapshot.step)}


def _split_by_size(saved_variables: list[SavedVariable]) -> tuple[list[SavedVariable], list[SavedVariable]]:
    """Returns the small variables and the large ones."""
    small: list[SavedVariable] = []
    large: list[SavedVariable] = []
    total = 0
    for saved in sorted(saved_variables, key=_num_bytes):
        total += _num_bytes(saved)
        (small if total <= _SMALL_BYTES else large).append(saved)
    return small, large


def _num_bytes(saved: SavedVariable) -> int:
    return int(saved.variable.shape.num_elements() * saved.variable.dtype.size)


def _build_held(saved: SavedVariable) -> _Large:
    variable = saved.variable
    size, slice_size = int(variable.shape.num_elements()), _SLICE_BYTES // variable.dtype.size
    # No control dependency of the caller: a slice is read long after the counts.
    with tf.control_dependencies(None), tf.device(variable.device):
        copy = tf.Variable(
            # Empty and of any shape, so that it needs no memory between two saves.
            tf.zeros([0], variable.dtype.base_dtype),
            name=f"held/{variable.op.name}",
            shape=tf.TensorShape(None),
            # Global, so that it is freed with the run.
            collections=[tf.GraphKeys.GLOBAL_VARIABLES],
            trainable=False,
            use_resource=True,
        )
        start = tf.placeholder(tf.int32 if size < 2**31 else tf.int64, [1])
        stop = tf.minimum(start + slice_size, size)
        part = tf.slice(tf.reshape(copy.read_value(), [-1]), start, stop - start)
    return _Large(saved, copy, start, part, size, slice_size)


def _empty_value(copy: tf.Variable) -> tf.Tensor:
    with tf.device(copy.device):
        return tf.zeros([0], copy.dtype.base_dtype)
