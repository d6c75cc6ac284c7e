"""Sends the result of a step with the parameters of the next one, where these are few: one message in place of two.

A message costs both tasks 0.1 to 0.2 ms of CPU, whatever its size; a copy of many parameters into another message would
cost more. The numbers of the result travel in the memory of floats (`tf.bitcast`), since a tensor has one type. They
are copied and never computed with, so a NaN among them does no harm.

To give existing ops another input, this file uses `Operation._update_input`, as `device_parts.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Snapshot

MAX_BYTES = 2**16
"""Largest size of the parameters of a ps task that travel with the result."""


class _Reader(NamedTuple):
    """An op on the worker that reads a tensor of a ps task, and the number of that input."""

    op: tf.Operation
    place: int

    @property
    def tensor(self) -> tf.Tensor:
        """The tensor."""
        return self.op.inputs[self.place]


def combine(store: ParameterStore, snapshot: Snapshot, results: Sequence[tf.Tensor]) -> Mapping[str, tf.Tensor]:
    """Combines the messages of each ps task, and gives the ops of the result their inputs from there.

    Args:
        store: Parameter store.
        snapshot: Parameters that the worker pulls for its next step, on the ps tasks.
        results: Result of the step, on the worker.

    Returns:
        The parameters that travel in a combined message: name of the piece's variable -> value on the worker.
    """
    arrived: dict[str, tf.Tensor] = {}
    readers = _readers(results)
    for ps in range(store.num_ps):
        device = store.ps_device(ps)
        device_readers = [reader for reader in readers if _is_same_device(reader.tensor.device, device)]
        numbers = list({reader.tensor.ref(): reader.tensor for reader in device_readers}.values())
        values = [(piece, value) for piece, value in snapshot.values if piece.ps == ps]
        is_stage = any(not _is_same_device(piece.device, store.worker_device) for piece, _ in values)
        # The worker may hold these parameters itself: in a process that trains alone, or as one of several workers.
        if _task_of(device) == _task_of(store.worker_device) or is_stage or not device_readers or not values:
            continue
        if _can_combine(numbers, [value for _, value in values]):
            message, sizes = _build_message(device, numbers, [value for _, value in values])
            with tf.device(store.worker_device):
                found = tf.split(message, sizes)
                there = {}
                for number, part in zip(numbers, found, strict=False):
                    shape = [*number.shape.as_list(), 2]  # two floats for each int64
                    there[number.ref()] = tf.bitcast(tf.reshape(part, shape), tf.int64)
                for (piece, value), part in zip(values, found[len(numbers) :], strict=True):
                    arrived[piece.variable.op.name] = tf.reshape(part, value.shape)
            for reader in device_readers:
                reader.op._update_input(reader.place, there[reader.tensor.ref()])
    return arrived


def _build_message(
    device: str, numbers: Sequence[tf.Tensor], values: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, list[int]]:
    with tf.device(device):
        as_floats = [tf.bitcast(number, tf.float32) for number in numbers]
        parts = [tf.reshape(part, [-1]) for part in (*as_floats, *values)]
        return tf.concat(parts, axis=0), [part.shape.num_elements() for part in parts]


def _can_combine(numbers: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> bool:
    is_known = all(tensor.shape.is_fully_defined() for tensor in (*numbers, *values))
    has_types = all(t.dtype == tf.int64 for t in numbers) and all(t.dtype == tf.float32 for t in values)
    return is_known and has_types and sum(4 * value.shape.num_elements() for value in values) <= MAX_BYTES


def _readers(results: Sequence[tf.Tensor]) -> list[_Reader]:
    """Returns the ops that lead to the results on the worker and read something from another task."""
    found: list[_Reader] = []
    seen: set[tf.Operation] = set()
    waiting = [tensor.op for tensor in results]
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        for index, tensor in enumerate(op.inputs):
            if _is_same_device(tensor.device, op.device):
                waiting.append(tensor.op)
            elif not any(reader.tensor is tensor and reader.op is op for reader in found):
                found.append(_Reader(op, index))
    return found


def _is_same_device(device: str, other: str) -> bool:
    return tf.DeviceSpec.from_string(device) == tf.DeviceSpec.from_string(other)


def _task_of(device: str) -> str:
    """Returns the task of a device."""
    return tf.DeviceSpec.from_string(device).replace(device_type=None, device_index=None).to_string()
