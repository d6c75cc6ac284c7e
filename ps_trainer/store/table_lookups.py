"""`TableLookups`: the ids of the table rows that a step looks up, as the ps tasks know them.

The model looks rows up in one table after the other, so each table's ids would be a separate message. Here the ids
of all tables of a ps task become one message: the number of each table's ids, then the ids. The graph is changed for
that once the model and its gradients are built.

The gradient of a look-up is for the same rows. So its push sends values only, and takes the ids from the ps task.

Rows travel in the type in which the dense parameters do (`--pull_dtype`), rounded in the same way.

To give existing ops another input, this file uses `Operation._update_input`, as `device_parts.py` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.ancestors import ancestors
from ps_trainer.store.devices import task_of
from ps_trainer.store.pieces import Piece
from ps_trainer.store.pull import PullStaging
from ps_trainer.store.trace import ModelTrace

_LOOK_UP = "ResourceGather"
_SAME_IDS = ("Reshape", "Identity")  # the ids of a gradient are the ids of the look-up, as a vector
_CONCATENATED_IDS = "ConcatV2"  # of several look-ups in one table
_SAME_ROWS, _ROUNDED_ROWS = ("Identity",), ("Identity", "ClipByValue", "Cast")
_CONTROL_FLOW = ("Switch", "Enter")


class LookUp(NamedTuple):
    """A look-up of rows in a table.

    Attributes:
        op: Op on the ps task.
        ids: Its ids on the worker, 1-D.
    """

    op: tf.Operation
    ids: tf.Tensor


def are_by_batch(trace: ModelTrace) -> bool:
    """Returns whether a step looks up rows at all, and the batch alone says which ones it looks up first."""
    handles = [handle for spec, handle in trace.handles() if spec.is_table]
    look_ups = [op for handle in handles for op in handle.consumers() if op.type == _LOOK_UP]
    first = [op.inputs[1] for op in look_ups if not _depends(op, look_ups)]
    return bool(first) and follow_from(first)


def follow_from(ids: Iterable[tf.Tensor], batch_ops: Iterable[tf.Operation] = ()) -> bool:
    """Returns whether ids follow from batches alone, so that the same ops find those of any other batch.

    Args:
        ids: Ids of look-ups.
        batch_ops: Ops that read batches. A placeholder for a batch need not be among them.
    """
    between = set(ancestors(ids)) - set(ancestors(batch_ops))
    return not any((op.op_def.is_stateful and op.type != "Assert") or op.type in _CONTROL_FLOW for op in between)


def rows_of(look_up: tf.Operation, types: Collection[str] = _ROUNDED_ROWS) -> list[tf.Operation]:
    """Returns a look-up and the ops on its task that pass its rows on; other tasks read the output of the last one.

    Args:
        look_up: The look-up.
        types: Types of these ops.
    """
    found = [look_up]
    while True:
        readers = [op for op in found[-1].outputs[0].consumers() if task_of(op.device) == task_of(look_up.device)]
        if len(readers) != 1 or readers[0].type not in types:
            return found
        found.append(readers[0])


class TableLookups:
    """The look-ups of one worker's step in the default graph.

    Args:
        pieces: Pieces of the parameter store.
        pull: Knows the type in which rows travel.
        worker_device: Device of this worker. Ids from other devices stay as they are.

    Attributes:
        first: By device of the ps task the look-ups of this worker that need no rows of others.
    """

    def __init__(self, pieces: Sequence[Piece], pull: PullStaging, worker_device: str):
        self._worker_device = worker_device
        self._known: dict[tuple[str, Any], tf.Tensor] = {}
        self.first: dict[str, list[LookUp]] = {}
        look_ups: dict[str, list[tf.Operation]] = {}
        for piece in pieces:
            for op in piece.variable.handle.consumers() if piece.is_table else ():
                if op.type == _LOOK_UP:
                    _send_rows_as(op, pull.wire_dtype(op.outputs[0].dtype))
                if self._is_by_worker(op):
                    look_ups.setdefault(op.device, []).append(op)
        for device, ops in look_ups.items():
            self.first[device] = [LookUp(op, op.inputs[1]) for op in ops if not _depends(op, ops)]
            for op in ops:
                self._known[task_of(device), op.inputs[1].ref()] = op.inputs[1]
            if len(self.first[device]) > 1:
                self._combine_messages(device, self.first[device])

    def ids_on(self, device: str, indices: tf.Tensor) -> tf.Tensor | None:
        """Builds the indices of a gradient on a ps task from the ids of look-ups there.

        Args:
            device: Device of the ps task.
            indices: Indices on the worker, 1-D.

        Returns:
            The same indices on the ps task; None if they are not the ids of look-ups there.
        """
        known = self._known.get((task_of(device), indices.ref()))
        if known is not None:
            with tf.device(device):
                return tf.reshape(known, [-1])
        if indices.op.type in _SAME_IDS:
            return self.ids_on(device, indices.op.inputs[0])
        if indices.op.type != _CONCATENATED_IDS:
            return None
        parts = [self.ids_on(device, part) for part in indices.op.inputs[:-1]]  # the last input is the axis
        with tf.device(device):
            return None if any(part is None for part in parts) else tf.concat(parts, axis=0)

    def _is_by_worker(self, op: tf.Operation) -> bool:
        worker = task_of(self._worker_device)
        return op.type == _LOOK_UP and task_of(op.inputs[1].device) == worker != task_of(op.device)

    def _combine_messages(self, device: str, look_ups: Sequence[LookUp]) -> None:
        """Gives the look-ups of a ps task their ids from one message."""
        ids = [look_up.ids for look_up in look_ups]
        with tf.device(self._worker_device), tf.name_scope("looked_up"):
            sizes = tf.stack([tf.size(part_ids, out_type=tf.int64) for part_ids in ids])
            message = tf.concat([sizes, *(tf.reshape(tf.cast(part_ids, tf.int64), [-1]) for part_ids in ids)], axis=0)
        with tf.device(device), tf.name_scope("looked_up"):
            message = tf.identity(message)  # otherwise each op below would stand for a message
            parts = tf.split(message[len(ids) :], message[: len(ids)], num=len(ids))
            for (op, part_ids), part in zip(look_ups, parts, strict=True):
                part.set_shape([part_ids.shape.num_elements()])
                there = tf.cast(part, part_ids.dtype)
                op._update_input(1, there)
                self._known[task_of(device), part_ids.ref()] = there


def _send_rows_as(look_up: tf.Operation, dtype: tf.DType) -> None:
    """Casts the rows of a look-up to the type in which they travel, and back for those that read them."""
    rows = rows_of(look_up, _SAME_ROWS)[-1].outputs[0]
    if rows.dtype == dtype:
        return
    readers = [(op, place) for op in rows.consumers() for place, tensor in enumerate(op.inputs) if tensor is rows]
    with tf.device(look_up.device):
        sent = tf.saturate_cast(rows, dtype)
    arrived: dict[str, tf.Tensor] = {}
    for op, place in readers:
        if op.device not in arrived:
            with tf.device(op.device):
                arrived[op.device] = tf.cast(sent, rows.dtype)
        op._update_input(place, arrived[op.device])


def _depends(op: tf.Operation, look_ups: Sequence[tf.Operation]) -> bool:
    """Returns whether a look-up needs rows that another one has found, or has ids of several dimensions."""
    before = set(ancestors([op.inputs[1]]))
    return op.inputs[1].shape.rank != 1 or any(other in before for other in look_ups)
