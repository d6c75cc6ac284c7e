"""`Applier`: applies gradients on a ps task by the run's optimizer, with everything on that ps.

One optimizer instance per ps task, made in its device scope: learning rate, schedule, hyper-parameters
and slots all lie there, so that a step sends nothing but the gradient. The schedule follows the clock of
that ps task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.store.base import ParameterStore, Piece


class Applier:
    """Applies gradients on ps tasks.

    Args:
        store: the created store.
        optimizer: component of `registry.OPTIMIZERS`.
        schedule: component of `registry.SCHEDULES`.
        learning_rate: before the schedule.

    Attributes:
        slots: (piece, slot variable) of every slot made by `apply` so far.
    """

    def __init__(self, store: ParameterStore, optimizer: Any, schedule: Any, learning_rate: float):
        self._store = store
        self._optimizer = optimizer
        self._schedule = schedule
        self._learning_rate = learning_rate
        self.slots: list[tuple[Piece, tf.Variable]] = []
        if optimizer.walks_whole_table and any(piece.is_table for piece in store.pieces):
            logging.warning(
                "this optimizer walks whole embedding tables each step, not only the batch's rows;"
                " --optimizer=lazy_adam, sgd, adagrad and momentum touch only those"
            )

    def apply(self, ps: int, gradients: Sequence[tuple[Piece, tf.Tensor | tf.IndexedSlices]]) -> tf.Operation:
        """The op that applies the gradients of pieces on ps task `ps`; call it once per ps task."""
        with tf.device(self._store.ps_device(ps)):
            if not gradients:
                return tf.no_op()
            # The read before the pull would be as good for the schedule, but not in synchronous rules,
            # whose chief applies without having pulled.
            step = self._store.clocks[ps].read_value()
            learning_rate = self._schedule.build(self._learning_rate, step)
            optimizer = self._optimizer.create(learning_rate, step)
            apply_op = optimizer.apply_gradients([(value, piece.variable) for piece, value in gradients])
        for piece, _ in gradients:
            for name in optimizer.get_slot_names():
                slot = optimizer.get_slot(piece.variable, name)
                if slot is not None:
                    self.slots.append((piece, slot))
        return apply_op


def count_update(clock: tf.Variable) -> tf.Tensor:
    """Adds 1 to a clock and returns its value before, in one atomic op on the clock's ps.

    `assign_add` on a resource variable is an add and a separate read, between which other workers' adds
    can fall; this kernel does both under the variable's lock.
    """
    return tf.raw_ops.ResourceCountUpTo(resource=clock.handle, limit=2**62, T=tf.int64)
