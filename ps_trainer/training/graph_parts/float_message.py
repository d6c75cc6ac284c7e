"""Tensors in a message of floats: several tensors travel as one, since each message costs 0.1 to 0.2 ms of CPU.

Values of other types travel in the memory of floats (`tf.bitcast`). They are copied and never computed with, so a NaN
among them does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow.compat.v1 as tf

DTYPES = (tf.float32, tf.bfloat16, tf.float16)
"""Types of rows and gradients that may travel so."""


def are_float_rows(tensors: Iterable[tf.Tensor]) -> bool:
    """Returns whether each tensor has floats as values, and rows of a known size."""
    return all(tensor.dtype in DTYPES and tensor.shape[1:].is_fully_defined() for tensor in tensors)


def can_hold(tensors: Iterable[tf.Tensor]) -> bool:
    """Returns whether a message can hold the tensors: such rows, or ids and counts."""
    return are_float_rows(tensor for tensor in tensors if tensor.dtype != tf.int64)


def num_floats(tensor: tf.Tensor, ids: tf.Tensor) -> int | tf.Tensor:
    """Returns the number of floats of a message that hold a tensor, which has a row for each of `ids`."""
    size = floats_of_unit(tensor)
    return size if tensor.shape.is_fully_defined() else tf.size(ids) * size


def floats_of_unit(tensor: tf.Tensor) -> int:
    """Returns the number of floats that hold the tensor if its size is known, else a row of it."""
    return -(-_size_of_unit(tensor) * tensor.dtype.size // tf.float32.size)


def as_floats(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the values of a tensor as a vector of floats."""
    if tensor.dtype.size < tf.float32.size:
        size = _size_of_unit(tensor)
        if size % 2:  # two values of 16 bits fill a float
            tensor = tf.pad(tf.reshape(tensor, [-1, size]), [[0, 0], [0, 1]])
        tensor = tf.reshape(tensor, [-1, 2])
    return tf.reshape(tensor if tensor.dtype == tf.float32 else tf.bitcast(tensor, tf.float32), [-1])


def from_floats(part: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """Returns the part of a message that holds the values of `tensor`, of which one dimension may be unknown."""
    shape = [-1 if size is None else size for size in tensor.shape.as_list()]
    if tensor.dtype.size > tf.float32.size:
        part = tf.reshape(part, [*shape, tensor.dtype.size // tf.float32.size])
    values = part if tensor.dtype == tf.float32 else tf.bitcast(part, tensor.dtype)
    size = _size_of_unit(tensor)
    if tensor.dtype.size < tf.float32.size and size % 2:
        values = tf.reshape(values, [-1, size + 1])[:, :size]
    return tf.reshape(values, shape)


def _size_of_unit(tensor: tf.Tensor) -> int:
    """Returns the number of values that fill whole floats: of the tensor if it is known, else of a row."""
    unit = tensor.shape if tensor.shape.is_fully_defined() else tensor.shape[1:]
    size: int = unit.num_elements()
    return size
