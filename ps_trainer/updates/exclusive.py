"""`exclusive`: what a step does on a ps task while no other worker's step does the same.

The section is a mutex of the ps task in the run's container, so it holds between the sessions of all workers.
A step that fails or is cancelled lets it go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.updates.apply import arrived


def exclusive(store: ParameterStore, ps: int, fn: Callable[..., Any], *arguments: tf.Tensor | tf.IndexedSlices) -> Any:
    """What `fn(*arguments)` returns, run on ps task `ps` under that task's one exclusive section.

    `fn` may read, decide (`tf.cond`) and update. It makes no variables: an optimizer's slots are made before, by
    `Applier.create_slots`. It must not wait for another worker, and no section can be entered inside another.

    Args:
        store: the created store.
        ps: the ps task.
        fn: builds the ops in the device scope of the ps; returns a tensor, or several. An op that is to run must
            be among what they depend on.
        *arguments: given to `fn` on the ps. Whatever comes from the worker goes here: the section is entered
            when all of them have arrived, and so never held while something travels.

    Returns:
        The results of `fn`, on the ps; their ops run when the section has been left.
    """
    with tf.device(store.ps_device(ps)):
        on_ps = [arrived(argument) for argument in arguments]
        section = tf.CriticalSection(name=f"exclusive_{ps}", shared_name=f"updates/exclusive_{ps}")
        everything = tf.group(*(x.values if isinstance(x, tf.IndexedSlices) else x for x in on_ps))

        def body() -> Any:
            with tf.control_dependencies([everything]):  # also what `fn` makes no use of
                return fn(*on_ps)

        return section.execute(body)
