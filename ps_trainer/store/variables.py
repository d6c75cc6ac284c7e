"""Creates the variables of a run on the ps tasks and on the worker, and finds the place of their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.store.extents import Extent, VariableSpec

_ANY_PS = "any_ps"  # job that stands for the ps tasks where only their number counts


def create_setter(
    ps_devices: Sequence[str], worker_device: str, strategy: Callable[[tf.Operation], int] | None = None
) -> Callable[[tf.Operation], str]:
    """Creates a device function for variables: `tf.train.replica_device_setter` over any devices.

    TensorFlow's own function only chooses among the tasks of one job.

    Args:
        ps_devices: Device of each ps task.
        worker_device: Device of all ops except variables.
        strategy: Function that chooses the index of a variable's ps task; None = the ps tasks in turn.
    """
    setter = tf.train.replica_device_setter(
        ps_tasks=len(ps_devices), ps_device=f"/job:{_ANY_PS}", worker_device=worker_device, ps_strategy=strategy
    )

    def device_of(op: tf.Operation) -> str:
        chosen: str = setter(op)
        spec = tf.DeviceSpec.from_string(chosen)
        return ps_devices[spec.task] if spec.job == _ANY_PS else chosen

    return device_of


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
