"""`exclusive`: a section of a step on a ps task that only one worker's step can be in at a time.

The section's lock lies on the ps task, in the run's container, so it excludes the steps of all workers' sessions. A
worker may be killed at any moment, which cancels its step on the ps tasks at any op. Two requirements follow:

* **A cancelled step may wait for the lock.** `tf.CriticalSection` does not allow that. A cancelled wait for its mutex
  marks the mutex as free although another step is inside, so the next step enters as well. Here the lock is an
  accumulator. A step enters by `take_grad`, which takes the one gradient in it, or waits in order of arrival. It leaves
  by `apply_grad`, which puts a gradient back. A cancelled `take_grad` takes nothing.
* **A step that is inside finishes.** A cancelled step starts and ends no more waits (queues, `take_grad`, messages),
  but all its other ops still run. So a section without waiting ops runs as a whole or not at all, and always leaves.
  The argument `fn` below must keep to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.updates.apply import receive
from ps_trainer.updates.signal import Signal

_INITIALIZERS = "updates/exclusive/initializers"  # collection of the graph
# Types of ops outside of the section that an op inside may use directly: resource handles and constants never wait.
_KNOWN = ("VarHandleOp", "ResourceConditionalAccumulator", "Const")
# Prefixes of the types of ops that may wait. A cancelled step does not run them.
_WAITING = ("Queue", "ResourceAccumulatorTake", "AccumulatorTake", "Barrier", "MutexLock", "Unstage")


def exclusive(
    store: ParameterStore,
    ps: int,
    fn: Callable[..., Any],
    *arguments: tf.Tensor | tf.IndexedSlices,
    after: Sequence[tf.Operation] = (),
) -> Any:
    """Builds `fn(*arguments)` in the one exclusive section of ps task `ps`, and returns its results.

    `fn` may read, decide (`tf.cond`) and update. It creates no variables; `Applier.create_slots` creates an optimizer's
    slots before. Its ops must not wait or fail, because the step would never leave the section. So `fn` uses no queue,
    no `take_grad` and no tensor of another task, and enters no other section.

    Args:
        store: The created store.
        ps: Index of the ps task.
        fn: Builds the ops in the device scope of the ps; returns a tensor, or a structure of tensors. An op runs only
            if the results depend on it.
        *arguments: Tensors for `fn`, which receives them on the ps. Everything that is computed outside must be among
            them: a step enters when all have arrived, so it never holds the section while a message travels.
        after: Ops that the section waits for as well.

    Returns:
        The results of `fn`, on the ps. They are known when the step has left the section.

    Raises:
        ValueError: `fn` uses an outside tensor that is not among the arguments, or an op that may wait.
    """
    with tf.device(store.ps_device(ps)):
        # Copies on the ps task: a control edge from an original on the worker would be a separate message.
        on_ps = [receive(argument) for argument in arguments]
        lock = _lock_of(ps)
        with tf.control_dependencies([*_parts(on_ps), *after]):
            entered = lock.take()
        graph = tf.get_default_graph()
        outside = {op.name for op in graph.get_operations()}
        with tf.control_dependencies([entered]):
            results = fn(*on_ps)
        _check_closed([op for op in graph.get_operations() if op.name not in outside], on_ps)
        with tf.control_dependencies(tf.nest.flatten(results)):
            left = lock.give()
        # Only through these copies does a fetch depend on `left`; without them the lock might never be given back.
        with tf.control_dependencies([left]):
            return tf.nest.map_structure(tf.identity, results)


def _lock_of(ps: int) -> Signal:
    """Returns the lock of a ps task, in the task's device scope; the first section of a graph creates it."""
    name = f"updates/exclusive_{ps}"
    locks: list[Signal] = tf.get_collection_ref(name)
    if not locks:
        with tf.control_dependencies(None):
            locks.append(Signal(name))
            # A new accumulator is empty, which means "locked": the chief puts the first gradient into it.
            tf.add_to_collection(_INITIALIZERS, locks[0].give())
    return locks[0]


def initializers() -> list[tf.Operation]:
    """Returns the ops that make the sections of the default graph free; the chief runs them before a worker enters."""
    return tf.get_collection(_INITIALIZERS)


def _check_closed(inside: Sequence[tf.Operation], arguments: Sequence[tf.Tensor | tf.IndexedSlices]) -> None:
    names = {op.name for op in inside} | {part.op.name for part in _parts(arguments)}
    for op in inside:
        if op.type.startswith(_WAITING):
            raise ValueError(f"{op.name} in an exclusive section may wait ({op.type}); compute it outside")
        for source in op.inputs:
            if source.op.name not in names and source.op.type not in _KNOWN:
                raise ValueError(f"{op.name} in an exclusive section waits for {source.name}; make it an argument")


def _parts(arguments: Sequence[tf.Tensor | tf.IndexedSlices]) -> list[tf.Tensor]:
    return [part for x in arguments for part in ((x.values, x.indices) if isinstance(x, tf.IndexedSlices) else (x,))]
