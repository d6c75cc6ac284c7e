"""`RowLookups`: gives a plain graph the rows of large tables that it looks up, so that its session holds no such table.

A session holds each variable in memory, as a whole. But an evaluation needs only the rows of one batch at a time, and a
large table already lies elsewhere: in a file (`file_arrays.py`), or on the ps tasks. So this file replaces each look-up
op by an op that calls a Python function with the ids. The rows have the same bits.

To give existing ops another input, this file uses `Operation._update_input`, as `table_lookups.py` does.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import file_arrays, large_table
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.store.ancestors import ancestors
from ps_trainer.training.plain_model import check_shape

_ROWS_AT_ONCE = 1024
"""Number of rows after which this process lets go of a file's pages: an access maps up to 64 KiB around a row."""


class RowSource(Protocol):
    """Rows of a table, wherever they lie.

    Attributes:
        shape: Shape of the whole table.
    """

    @property
    def shape(self) -> Sequence[int]: ...

    def take_rows(self, ids: np.ndarray) -> np.ndarray:
        """Returns the rows of valid `ids`, int64 [n]: [n, ...]."""


class RowLookups:
    """The look-ups of rows in the large variables of the default graph.

    A variable that the graph also reads in another way, as a whole for example, is left to the session.

    Args:
        variables: Variables of the graph.
        fetches: All tensors and ops that the session computes from the variables.

    Attributes:
        names: Names of the variables whose rows the graph only looks up.
        others: The other variables, which need a value in the session.
    """

    def __init__(self, variables: Sequence[tf.Variable], fetches: Collection[Any]):
        fetched = {getattr(fetch, "op", fetch) for fetch in fetches}
        before = set(ancestors(fetches)) - fetched
        self._variables: list[tf.Variable] = []
        self.others: list[tf.Variable] = []
        for variable in variables:
            readers = [op for op in variable.handle.consumers() if op in before or op in fetched]
            is_large = large_table.num_bytes(variable) >= file_arrays.LARGE_BYTES
            # A fetched op has no reader that could get another input.
            if is_large and all(op in before and _is_look_up(op) for op in readers):
                self._variables.append(variable)
                for op in readers:
                    self._replace(op, variable)
            else:
                self.others.append(variable)
        self.names = tuple(variable.op.name for variable in self._variables)
        self._sources: dict[str, RowSource] = {}

    @contextlib.contextmanager
    def use(self, values: Mapping[str, Any]) -> Iterator[None]:
        """Gives the graph the rows of these values, by name: arrays, or each a `RowSource`.

        Raises:
            CheckpointError: A variable is missing in `values`, or has another shape there.
        """
        try:
            for variable, name in zip(self._variables, self.names, strict=True):
                if (source := _source_of(values, name)) is not None:
                    self._sources[name] = source
                check_shape(variable, None if source is None else source.shape)
            yield
        finally:
            self._sources.clear()  # the graph may live longer, and the files need space on the disk

    def _replace(self, look_up: tf.Operation, variable: tf.Variable) -> None:
        def take(ids: np.ndarray) -> np.ndarray:
            source = self._sources[variable.op.name]
            flat = np.asarray(ids, np.int64).reshape([-1])
            wrong = flat[(flat < 0) | (flat >= source.shape[0])]
            if wrong.size:  # not IndexError, which TensorFlow would take for the end of the data
                raise ValueError(f"{variable.op.name} has the rows 0 to {source.shape[0] - 1}, not {wrong[0]}")
            return np.reshape(source.take_rows(flat), [*ids.shape, *source.shape[1:]])

        found = look_up.outputs[0]
        with tf.control_dependencies(look_up.control_inputs):
            rows = tf.numpy_function(take, [look_up.inputs[1]], found.dtype)
        rows.set_shape(found.shape)
        for consumer in found.consumers():
            for at, tensor in enumerate(consumer.inputs):
                if tensor is found:
                    consumer._update_input(at, rows)


def _is_look_up(op: tf.Operation) -> bool:
    return op.type == "ResourceGather" and not op.get_attr("batch_dims")


class _ArrayRows:
    """Rows of an array, whose content may lie in a file."""

    def __init__(self, array: np.ndarray):
        self._array = array
        self.shape = array.shape

    def take_rows(self, ids: np.ndarray) -> np.ndarray:
        found = np.empty([len(ids), *self.shape[1:]], self._array.dtype)
        for start in range(0, len(ids), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            found[part] = self._array[ids[part]]
            file_arrays.release(self._array)
        return found


def _source_of(values: Mapping[str, Any], name: str) -> RowSource | None:
    """Returns the rows of a value; None if it is missing."""
    if name not in values:
        return None
    value = _in_file(values, name) if isinstance(values, Checkpoint) else values[name]
    return _ArrayRows(value) if isinstance(value, np.ndarray) else value


def _in_file(checkpoint: Checkpoint, name: str) -> np.ndarray:
    """Returns a tensor of a checkpoint in an unnamed file on the same disk; in memory where there is no room."""
    shape, flat = checkpoint.shape(name), None
    with contextlib.suppress(OSError):  # the disk is full
        size = int(np.prod(shape, dtype=np.int64))
        flat = file_arrays.allocate(size, checkpoint.dtype(name), pathlib.Path(checkpoint.prefix).parent)
    if flat is None:
        return checkpoint[name]
    array = np.reshape(flat, shape)
    for first, rows in checkpoint.chunks(name):
        array[first : first + len(rows)] = rows
        file_arrays.release(array)
    return array
