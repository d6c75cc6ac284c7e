"""`replica_device_setter`, and the strategies by which it spreads variables over the ps tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

ROUND_ROBIN = "round_robin"
GREEDY = "greedy"


def byte_size_load_fn(op: tf.Operation) -> float:
    """Returns the size in bytes of the variable that `op` creates, as in `tf.contrib.training`.

    Raises:
        ValueError: The variable's shape is not fully known.
    """
    if "shape" not in op.node_def.attr:
        return 0.0
    shape = tf.TensorShape(op.node_def.attr["shape"].shape)
    if not shape.is_fully_defined():
        raise ValueError(f"{op.name}: the shape {shape} is not fully known, so the variable has no size in bytes")
    return float(shape.num_elements() * tf.as_dtype(op.node_def.attr["dtype"].type).size)


class GreedyLoadBalancingStrategy:
    """Places each variable on the ps task with the smallest load so far, as in `tf.contrib.training`.

    Args:
        num_tasks: Number of ps tasks.
        load_fn: Function that returns the load of an op.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[tf.Operation], float] = byte_size_load_fn):
        self._loads = [0.0] * num_tasks
        self._load_fn = load_fn

    def __call__(self, op: tf.Operation) -> int:
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: Any = None,
    ps_ops: Sequence[str] | None = None,
    ps_strategy: Callable[[tf.Operation], int] | str | None = None,
) -> Callable[[tf.Operation], str] | None:
    """Returns what `tf.train.replica_device_setter` does; `ps_strategy` may be "round_robin" or "greedy" (by bytes).

    With the default, round robin, variable i goes to ps task i modulo the number of ps tasks. So one large variable may
    make one task much larger than the others.

    Raises:
        ValueError: `ps_strategy` is another word.
        TypeError: `ps_strategy` is neither a word nor a function.
    """
    if ps_strategy == ROUND_ROBIN:
        ps_strategy = None
    elif ps_strategy == GREEDY:
        ps_strategy = GreedyLoadBalancingStrategy(_num_ps(ps_tasks, ps_device, cluster))
    elif isinstance(ps_strategy, str):
        raise ValueError(f"ps_strategy={ps_strategy!r}: write {ROUND_ROBIN!r}, {GREEDY!r}, or give a function")
    return tf.train.replica_device_setter(
        ps_tasks, ps_device, worker_device, merge_devices, cluster, ps_ops, ps_strategy
    )


@contextlib.contextmanager
def device_scope(device: str) -> Iterator[None]:
    """Places ops on `device`, whatever the surrounding device setter would choose: its round robin counts variables."""
    with tf.device(None), tf.device(device):
        yield


def _num_ps(ps_tasks: int, ps_device: str, cluster: Any) -> int:
    if cluster is None:
        return ps_tasks
    jobs = tf.train.ClusterSpec(cluster).as_dict()
    return len(jobs.get(tf.DeviceSpec.from_string(ps_device).job, ()))
