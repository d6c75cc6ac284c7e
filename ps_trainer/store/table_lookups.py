"""`TableLookups`: the ids of the table rows that a step looks up, as the ps tasks know them.

The model looks rows up in one table after the other, so each table's ids would be a separate message. Here the ids
of all tables of a ps task become one message: the number of each table's ids, then the ids. The graph is changed for
that once the model and its gradients are built.

The gradient of a look-up is for the same rows. So its push sends values only, and takes the ids from the ps task.

To give existing ops another input, this file uses `Operation._update_input`, as `device_parts.py` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.store.ancestors import ancestors
from ps_trainer.store.pieces import Piece

_LOOK_UP = "ResourceGather"
_SAME_IDS = ("Reshape", "Identity")  # the ids of a gradient are the ids of the look-up, as a vector
_CONCATENATED_IDS = "ConcatV2"  # of several look-ups in one table


class TableLookups:
    """The look-ups of one worker's step in the default graph.

    Args:
        pieces: Pieces of the parameter store.
        worker_device: Device of this worker. Ids from other devices stay as they are.
    """

    def __init__(self, pieces: Sequence[Piece], worker_device: str):
        self._worker_device = worker_device
        self._known: dict[tuple[str, Any], tf.Tensor] = {}
        look_ups: dict[str, list[tf.Operation]] = {}
        for piece in pieces:
            for op in piece.variable.handle.consumers() if piece.is_table else ():
                if self._is_by_worker(op):
                    look_ups.setdefault(op.device, []).append(op)
        for device, ops in look_ups.items():
            free = [op for op in ops if not _depends(op, ops)]
            for op in ops:
                self._known[_task_of(device), op.inputs[1].ref()] = op.inputs[1]
            if len(free) > 1:
                self._combine_messages(device, free)

    def ids_on(self, device: str, indices: tf.Tensor) -> tf.Tensor | None:
        """Builds the indices of a gradient on a ps task from the ids of look-ups there.

        Args:
            device: Device of the ps task.
            indices: Indices on the worker, 1-D.

        Returns:
            The same indices on the ps task; None if they are not the ids of look-ups there.
        """
        known = self._known.get((_task_of(device), indices.ref()))
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
        worker = _task_of(self._worker_device)
        return op.type == _LOOK_UP and _task_of(op.inputs[1].device) == worker != _task_of(op.device)

    def _combine_messages(self, device: str, look_ups: Sequence[tf.Operation]) -> None:
        """Gives the look-ups of a ps task their ids from one message."""
        ids = [op.inputs[1] for op in look_ups]
        with tf.device(self._worker_device), tf.name_scope("looked_up"):
            sizes = tf.stack([tf.size(part_ids, out_type=tf.int64) for part_ids in ids])
            message = tf.concat([sizes, *(tf.reshape(tf.cast(part_ids, tf.int64), [-1]) for part_ids in ids)], axis=0)
        with tf.device(device), tf.name_scope("looked_up"):
            message = tf.identity(message)  # otherwise each op below would stand for a message
            parts = tf.split(message[len(ids) :], message[: len(ids)], num=len(ids))
            for op, part_ids, part in zip(look_ups, ids, parts, strict=True):
                part.set_shape([part_ids.shape.num_elements()])
                there = tf.cast(part, part_ids.dtype)
                op._update_input(1, there)
                self._known[_task_of(device), part_ids.ref()] = there


def _depends(op: tf.Operation, look_ups: Sequence[tf.Operation]) -> bool:
    """Returns whether a look-up needs rows that another one has found, or has ids of several dimensions."""
    before = set(ancestors([op.inputs[1]]))
    return op.inputs[1].shape.rank != 1 or any(other in before for other in look_ups)


def _task_of(device: str) -> str:
    """Returns the task of a device."""
    return tf.DeviceSpec.from_string(device).replace(device_type=None, device_index=None).to_string()
