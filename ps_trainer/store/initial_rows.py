"""Computes some rows of a model variable's initial value, equal to the bit to those of the whole value.

TensorFlow's random ops draw from a counter, so a draw can begin anywhere: element i comes from a block of four numbers
(two of float64) whose counter is known. So each ps task makes its own part of a large table, and no task holds it all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

_PHILOX = 1  # the generator of TensorFlow's random ops
_DRAWS: dict[str, Callable[..., tf.Tensor]] = {
    "RandomUniform": tf.raw_ops.StatelessRandomUniformV2,
    "RandomStandardNormal": tf.raw_ops.StatelessRandomNormalV2,
    "TruncatedNormal": tf.raw_ops.StatelessTruncatedNormalV2,
}
_COUNTERS_OF_TRUNCATED = 64
"""Number of blocks that the truncated normal distribution reserves for each number: it draws until one is in range."""
_ELEMENTWISE = ("Identity", "Mul", "Add", "AddV2", "Sub", "RealDiv", "Cast")


def build(value: tf.Tensor, start: int, stop: int) -> tf.Tensor | None:
    """Builds rows `start` to `stop` of an initial value, in the default graph.

    Args:
        value: Initial value in another graph, of known shape.
        start: First row.
        stop: Row behind the last one.

    Returns:
        The rows; None if the value comes from other ops than numbers, random numbers and arithmetic with them.
    """
    op, shape = value.op, value.shape.as_list()
    if op.type in _DRAWS:
        return _draw(op, shape, start, stop) if shape else None
    if op.type in ("Const", "Fill"):
        constant = _repeated_number(op)
        return None if constant is None else tf.fill([stop - start, *shape[1:]] if shape else [], constant)
    # A vector would meet the wrong rows if the op repeated it along the first axis.
    if op.type not in _ELEMENTWISE or any(part.shape.as_list() not in ([], shape) for part in op.inputs):
        return None
    parts = [build(part, start, stop) for part in op.inputs]
    if any(part is None for part in parts):
        return None
    # Not the attributes with an underscore, which tie the op to others in its graph.
    attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}
    return tf.get_default_graph().create_op(op.type, parts, [value.dtype], attrs=attributes).outputs[0]


def _repeated_number(op: tf.Operation) -> tf.Tensor | None:
    """Returns the number of which all elements of a constant consist; None if it has several."""
    if op.type == "Fill":
        number = tf.get_static_value(op.inputs[1])
        return None if number is None else tf.constant(number, op.outputs[0].dtype)
    content = type(op.get_attr("value"))()
    content.CopyFrom(op.get_attr("value"))
    # Without its shape the message is that of a single number, if it holds one only.
    del content.tensor_shape.dim[:]
    try:
        return tf.constant(tf.make_ndarray(content), op.outputs[0].dtype)
    except ValueError:
        return None


def _draw(op: tf.Operation, shape: list[int], start: int, stop: int) -> tf.Tensor | None:
    seed, seed2 = op.get_attr("seed"), op.get_attr("seed2")
    if not seed and not seed2:
        return None  # drawn anew in each run
    dtype = op.outputs[0].dtype
    block = 2 if dtype == tf.float64 else 4
    row = int(np.prod(shape[1:], dtype=np.int64))
    first, offset = divmod(start * row, block)
    # The truncated distribution has a block of its own for each number.
    counter = first * (block * _COUNTERS_OF_TRUNCATED if op.type == "TruncatedNormal" else 1)
    drawn = _DRAWS[op.type](
        shape=tf.constant([offset + (stop - start) * row], tf.int64),
        key=tf.constant([seed], tf.uint64),
        counter=tf.constant([counter, seed2], tf.uint64),
        alg=_PHILOX,
        dtype=dtype,
    )
    return tf.reshape(drawn[offset:] if offset else drawn, [stop - start, *shape[1:]])
