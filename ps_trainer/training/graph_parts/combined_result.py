"""Sends the result of a step as one message, with the parameters of the next step where these are few.

A message costs both tasks 0.1 to 0.2 ms of CPU, whatever its size; a copy of many parameters into another message would
cost more. One flat variable is copied once, on the ps task: on the worker it keeps its place in the message's memory.
Other parameters are copied there as well.

The numbers of the result travel in the memory of floats (`tf.bitcast`), since a tensor has one type. They are copied
and never computed with, so a NaN among them does no harm, in float32 as in 16 bits.

To give existing ops another input, this file uses `Operation._update_input`, as `device_parts.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.devices import task_of
from ps_trainer.store.extents import ALIGNMENT
from ps_trainer.store.pieces import Snapshot
from ps_trainer.training.graph_parts import float_message

MAX_BYTES, MAX_ALIGNED_BYTES = 2**17, 2**20
"""Largest size of the parameters of a ps task that travel with the result; the second for a single flat variable whose
size is a multiple of 64 bytes: TensorFlow takes such a part out of a tensor without a copy."""


class Reader(NamedTuple):
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
    readers = readers_of(results)
    for ps in range(store.num_ps):
        device = store.ps_device(ps)
        device_readers = [reader for reader in readers if _is_same_device(reader.tensor.device, device)]
        numbers = list({reader.tensor.ref(): reader.tensor for reader in device_readers}.values())
        values = [(piece, value) for piece, value in snapshot.values if piece.ps == ps]
        is_stage = any(not _is_same_device(piece.device, store.worker_device) for piece, _ in values)
        # The worker may hold these parameters itself: in a process that trains alone, or as one of several workers.
        if task_of(device) == task_of(store.worker_device) or not _are_known(numbers, tf.int64):
            continue
        if is_stage or not _are_few([value for _, value in values]):
            values = []
        if not numbers or len(numbers) + len(values) == 1:
            continue
        message, sizes = _build_message(device, numbers, [value for _, value in values])
        with tf.device(store.worker_device):
            found = _cut(message, sizes)
            for (piece, value), part in zip(values, found, strict=False):
                arrived[piece.variable.op.name] = part if value.shape.rank == 1 else tf.reshape(part, value.shape)
            there = {
                number.ref(): _number_from(part, number.shape)
                for number, part in zip(numbers, found[len(values) :], strict=True)
            }
        for reader in device_readers:
            reader.op._update_input(reader.place, there[reader.tensor.ref()])
    return arrived


def readers_of(results: Sequence[tf.Tensor]) -> list[Reader]:
    """Returns the ops that lead to the results on the worker and read something from another task."""
    found: list[Reader] = []
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
                found.append(Reader(op, index))
    return found


def _build_message(
    device: str, numbers: Sequence[tf.Tensor], values: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, list[int]]:
    with tf.device(device):
        numbers = [tf.bitcast(number, values[0].dtype) for number in numbers] if values else numbers
        # Parameters first: TensorFlow shares the memory of a part that begins at a multiple of 64 bytes.
        parts = [part if part.shape.rank == 1 else tf.reshape(part, [-1]) for part in (*values, *numbers)]
        return tf.concat(parts, axis=0), [part.shape.num_elements() for part in parts]


def _cut(message: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
    """Cuts a message into parts of these sizes."""
    if len(sizes) > 2 or sizes[0] * message.dtype.size % ALIGNMENT:
        return list(tf.split(message, sizes))
    # A slice shares memory; `tf.split` does so only if the last part ends at a multiple of 64 bytes as well. One op
    # reads the message: in a call of several steps it would travel to each op by itself.
    whole = tf.identity(message)
    return [tf.slice(whole, [start], [size]) for start, size in zip((0, sizes[0]), sizes, strict=False)]


def _number_from(part: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    """Returns the int64 tensor that is a part of a message: two or four floats for each number, or the numbers."""
    if part.dtype == tf.int64:
        return tf.reshape(part, shape)
    return tf.bitcast(tf.reshape(part, [*shape.as_list(), tf.int64.size // part.dtype.size]), tf.int64)


def _are_few(values: Sequence[tf.Tensor]) -> bool:
    if not any(_are_known(values, dtype) for dtype in float_message.DTYPES):
        return False
    num_bytes = sum(value.dtype.size * value.shape.num_elements() for value in values)
    is_aligned = len(values) == 1 and num_bytes % ALIGNMENT == 0
    return num_bytes <= (MAX_ALIGNED_BYTES if is_aligned else MAX_BYTES)


def _are_known(tensors: Sequence[tf.Tensor], dtype: tf.DType) -> bool:
    return all(tensor.dtype == dtype and tensor.shape.is_fully_defined() for tensor in tensors)


def _is_same_device(device: str, other: str) -> bool:
    return tf.DeviceSpec.from_string(device) == tf.DeviceSpec.from_string(other)
