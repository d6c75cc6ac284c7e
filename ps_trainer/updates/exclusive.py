"""`exclusive`: what a step does on a ps task while no other worker's step does the same.

The section's lock lies on the ps task, in the run's container, so it holds between the sessions of all workers. A
worker may be killed at any moment, which cancels its step on the ps tasks at any op. Two things follow:

* **The lock can be waited for by a step that is cancelled.** `tf.CriticalSection` cannot be used: a cancelled wait for
  its mutex marks the mutex as free, although another step is inside, and the next one enters too. The lock here is an
  accumulator: its `take_grad` is the way in and takes what is there, or waits in order of arrival; `apply_grad` is the
  way out. A cancelled `take_grad` takes nothing.
* **A step that is inside finishes.** A cancelled step does not start or end waits any more (queues, `take_grad`,
  messages), while all other ops of it run on. So a section without such ops is done as a whole or not at all, the way
  out included. That is a duty of `fn`, below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.updates.apply import arrived
from ps_trainer.updates.signal import Signal

_INITIALIZERS = "updates/exclusive/initializers"
# What an op inside may use from outside without waiting for it: where a resource is, and what is known beforehand.
_KNOWN = ("VarHandleOp", "ResourceConditionalAccumulator", "Const")
# How the types of ops begin that may wait, so that a cancelled step does not run them.
_WAITING = ("Queue", "ResourceAccumulatorTake", "AccumulatorTake", "Barrier", "MutexLock", "Unstage")


def exclusive(
    store: ParameterStore,
    ps: int,
    fn: Callable[..., Any],
    *arguments: tf.Tensor | tf.IndexedSlices,
    after: Sequence[tf.Operation] = (),
) -> Any:
    """What `fn(*arguments)` returns, run on ps task `ps` under that task's one exclusive section.

    `fn` may read, decide (`tf.cond`) and update. It makes no variables: an optimizer's slots are made before, by
    `Applier.create_slots`. None of its ops may wait for anything or fail, and no section can be entered inside
    another: the section would never be left. So no queue, no `take_grad`, no tensor of another task.

    Args:
        store: the created store.
        ps: the ps task.
        fn: builds the ops in the device scope of the ps; returns a tensor, or several. An op that is to run must
            be among what they depend on.
        *arguments: given to `fn` on the ps. Whatever is computed outside goes here: the section is entered when all
            of them have arrived, and so never held while something travels.
        after: ops that the section waits for as well.

    Returns:
        The results of `fn`, on the ps; their ops run when the section has been left.

    Raises:
        ValueError: `fn` uses a tensor of outside that is not among the arguments, or an op that may wait.
    """
    with tf.device(store.ps_device(ps)):
        on_ps = [arrived(argument) for argument in arguments]
        lock = Signal(f"updates/exclusive_{ps}")
        with tf.control_dependencies([*_parts(on_ps), *after]):
            entered = lock.take()
        graph = tf.get_default_graph()
        outside = {op.name for op in graph.get_operations()}
        with tf.control_dependencies([entered]):
            results = fn(*on_ps)
        _check_closed([op for op in graph.get_operations() if op.name not in outside], on_ps)
        with tf.control_dependencies(tf.nest.flatten(results)):
            left = lock.give()
        tf.add_to_collection(_INITIALIZERS, lock.give())
        with tf.control_dependencies([left]):
            return tf.nest.map_structure(tf.identity, results)


def initializers() -> list[tf.Operation]:
    """Ops for the chief, which make the sections of the default graph free; before any worker enters one."""
    return tf.get_collection(_INITIALIZERS)


def _check_closed(inside: Sequence[tf.Operation], arguments: Sequence[tf.Tensor | tf.IndexedSlices]) -> None:
    names = {op.name for op in inside} | {part.op.name for part in _parts(arguments)}
    for op in inside:
        if op.type.startswith(_WAITING):
            raise ValueError(f"{op.name} in an exclusive section may wait ({op.type})")
        for source in op.inputs:
            if source.op.name not in names and source.op.type not in _KNOWN:
                raise ValueError(f"{op.name} in an exclusive section waits for {source.name}: make it an argument")


def _parts(arguments: Sequence[tf.Tensor | tf.IndexedSlices]) -> list[tf.Tensor]:
    return [part for x in arguments for part in ((x.values, x.indices) if isinstance(x, tf.IndexedSlices) else (x,))]
