"""Sends the rows of all look-ups of a ps task as one message, and their gradients as another.

`look_ahead.py` and `next_rows.py` put these tensors into messages with those of the next step. `combine` serves the
other steps. A small dense gradient travels with those of the rows. A message costs more than the copies.

To give existing ops another input, this file uses `Operation._update_input`, as `device_parts.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.devices import task_of
from ps_trainer.store.table_lookups import LookUp, rows_of
from ps_trainer.training.graph_parts import float_message
from ps_trainer.training.graph_parts.combined_result import MAX_BYTES
from ps_trainer.updates.push import Push


class Part(NamedTuple):
    """A tensor of a message.

    Attributes:
        tensor: The tensor.
        ids: Ids on the task to which it travels, one for each row; None if its shape is known, or in the last part.
    """

    tensor: tf.Tensor
    ids: tf.Tensor | None = None


def combine(store: ParameterStore, look_ups: Mapping[str, Sequence[LookUp]], push: Push) -> None:
    """Gives the ops that read rows, or gradients of rows, their inputs from one message for each task and direction.

    Args:
        store: Parameter store.
        look_ups: `TableLookups.first`.
        push: The gradients that were sent.
    """
    for device, found in look_ups.items():
        rows = [Part(rows_of(look_up.op)[-1].outputs[0], look_up.ids) for look_up in found]
        send_together(rows, device, store.worker_device)
    for device in map(store.ps_device, range(store.num_ps)):
        gradients = [
            Part(gradient.values, gradient.indices)
            for gradient in push.row_gradients
            if task_of(gradient.indices.device) == task_of(device)
        ]
        if gradients:
            dense = [Part(value) for value in small_dense_gradients(store, push, device)]
            send_together([*dense, *gradients], store.worker_device, device)


def small_dense_gradients(store: ParameterStore, push: Push, device: str) -> list[tf.Tensor]:
    """Returns the dense gradients for a ps task; none if they are large, or of a type that no such message holds."""
    values = [value for ps, value in push.dense_gradients if task_of(store.ps_device(ps)) == task_of(device)]
    is_of_worker = all(task_of(value.device) in ("", task_of(store.worker_device)) for value in values)
    if not is_of_worker or not float_message.are_float_rows(values):
        return []
    num_bytes = sum(value.dtype.size * (value.shape.num_elements() or MAX_BYTES) for value in values)
    return values if num_bytes <= MAX_BYTES else []


def send_together(parts: Sequence[Part], sender: str, receiver: str) -> None:
    """Sends tensors as one message, if a message of floats can hold them.

    Args:
        parts: The tensors; each op on the receiver that reads one of them reads it from the message.
        sender: Device of the tensors.
        receiver: Device to which they travel.
    """
    tensors = [part.tensor for part in parts]
    is_of_sender = all(task_of(tensor.device) in ("", task_of(sender)) for tensor in tensors)
    if len(parts) < 2 or not is_of_sender or not float_message.can_hold(tensors):
        return
    places = [readers(tensor, receiver) for tensor in tensors]
    with tf.device(sender), tf.name_scope("together"):
        message = tf.concat([float_message.as_floats(tensor) for tensor in tensors], axis=0)
    with tf.device(receiver), tf.name_scope("together"):
        sizes = [
            float_message.floats_of_unit(tensor) if ids is None else float_message.num_floats(tensor, ids)
            for tensor, ids in parts
        ]
        found = tf.split(message, tf.stack([*sizes[:-1], -1]), num=len(parts))
        for tensor, part, of_tensor in zip(tensors, found, places, strict=True):
            arrived = float_message.from_floats(part, tensor)
            for op, place in of_tensor:
                op._update_input(place, arrived)


def readers(tensor: tf.Tensor, receiver: str) -> list[tuple[tf.Operation, int]]:
    """Returns the ops of a task that read a tensor, each with the number of that input."""
    ops = [op for op in tensor.consumers() if task_of(op.device) == task_of(receiver)]
    return [(op, place) for op in ops for place, given in enumerate(op.inputs) if given is tensor]
