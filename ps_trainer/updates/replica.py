"""`Replica`: one worker's copy of the dense parameters, for rules that train between exchanges with the ps.

The model reads `Piece.replica` at the start of a step; what changes it must come after the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.variables import create_local_variable


class Replica:
    """Fetches the parameters from the ps tasks and remembers at which clocks.

    Args:
        store: the created store, with replicas.

    Attributes:
        fetched: for each ps task its clock at the last fetch, int64 scalar variable on the worker;
            `fetched[0]` is the global_step that this worker knows.
    """

    def __init__(self, store: ParameterStore):
        self._store = store
        with tf.device(store.worker_device):
            self.fetched = [create_local_variable(f"fetched/clock_{ps}", [], tf.int64) for ps in range(store.num_ps)]

    def fetch(
        self, after: Sequence[tf.Operation] | None = None, before_assign: Sequence[tf.Operation] = ()
    ) -> tf.Operation:
        """The op that sets the replica, and `fetched`, to what the ps tasks hold.

        Args:
            after: for each ps task the op there to wait for before it is read.
            before_assign: ops on the worker that still need the old values.
        """
        snapshot = self._store.read(after or [tf.no_op()] * self._store.num_ps)
        with tf.device(self._store.worker_device), tf.control_dependencies(before_assign):
            assigns = [
                clock.assign(read, read_value=False) for clock, read in zip(self.fetched, snapshot.clocks, strict=True)
            ]
            for piece, value in snapshot.values:
                value = tf.cast(value, piece.replica.dtype.base_dtype)
                assigns.append(piece.replica.assign(value, read_value=False))
            return tf.group(*assigns)

    def staleness(self, before: Sequence[tf.Tensor]) -> tf.Tensor:
        """int64 [num_ps] on the worker: updates by others since the last fetch; to be read before the next.

        Args:
            before: for each ps task its clock before this worker's update.
        """
        with tf.device(self._store.worker_device):
            return tf.stack([count - clock.read_value() for count, clock in zip(before, self.fetched, strict=True)])
