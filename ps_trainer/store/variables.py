"""Creates the variables of a run on the ps tasks and on the worker, and finds the place of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.store.extents import Extent, VariableSpec


def create_variable(name: str, shape: Sequence[int], dtype: Any) -> tf.Variable:
    """Creates a resource variable of zeros outside of the collection of trainable variables."""
    return tf.get_variable(
        name,
        shape,
        tf.as_dtype(dtype),
        # The chief overwrites the zeros of parameters, so their initial values do not depend on the layout.
        initializer=tf.zeros_initializer(),
        collections=[tf.GraphKeys.GLOBAL_VARIABLES],
        trainable=False,
        use_resource=True,
    )


def create_local_variable(name: str, shape: Any, dtype: Any) -> tf.Variable:
    """Creates a resource variable of zeros that belongs to this worker alone, in the device scope of the caller."""
    return tf.get_variable(
        name,
        shape,
        tf.as_dtype(dtype),
        initializer=tf.zeros_initializer(),
        collections=[tf.GraphKeys.LOCAL_VARIABLES],
        trainable=False,
        use_resource=True,
    )


def parts_of(variable: Any, spec: VariableSpec) -> list[tuple[tf.Variable, Extent]]:
    """Returns the parts of a variable, each with its range of the whole; a variable that is not partitioned is one."""
    # TensorFlow cuts partitions along one axis, rows here, so each part is a contiguous range of the flattened whole.
    if not hasattr(variable, "as_tensor"):  # only a PartitionedVariable has it
        return [(variable, Extent(spec.name, 0, spec.size, 0))]
    parts, start = [], 0
    for part in variable:
        size = part.shape.num_elements()
        parts.append((part, Extent(spec.name, start, start + size, 0)))
        start += size
    return parts


def ps_of(variable: tf.Variable) -> int:
    """Returns the index of the ps task that a variable lies on."""
    return tf.DeviceSpec.from_string(variable.device).task
