"""`Replica`: one worker's copy of the dense parameters, for rules that train between exchanges with the ps.

The model reads `Piece.replica` at the start of a step; what changes it must come after the gradient.
`LocalSteps` counts the steps between exchanges, and goes on where it was after a restart.
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
        fetched: for each ps task its clock at the last fetch, int64 scalar variable on the worker.
        global_step: the last global_step that this worker has heard of, as at the start of the step; int64
            scalar on the worker. What a local phase returns, and what the schedule of its steps follows.
        no_staleness: the empty vector that a local phase returns.
    """

    def __init__(self, store: ParameterStore):
        self._store = store
        with tf.device(store.worker_device):
            self.fetched = [create_local_variable(f"fetched/clock_{ps}", [], tf.int64) for ps in range(store.num_ps)]
            self._heard = create_local_variable("fetched/global_step", [], tf.int64)
            self.global_step = self._heard.read_value()
            self.no_staleness = tf.zeros([0], tf.int64)

    @property
    def variables(self) -> list[tf.Variable]:
        """The copies themselves, for `TrainStep.worker_state`."""
        return [piece.kept for piece in self._store.dense]

    def fetch(
        self, after: Sequence[tf.Operation] | None = None, before_assign: Sequence[tf.Operation] = ()
    ) -> tf.Operation:
        """The op that sets the replica, `fetched` and what is known of global_step to what the ps tasks hold.

        Args:
            after: for each ps task the op there to wait for before it is read.
            before_assign: ops on the worker that still need the old values.
        """
        snapshot = self._store.read(after or at_once(self._store))
        with tf.device(self._store.worker_device), tf.control_dependencies(before_assign):
            assigns = [self.hear(snapshot.clocks[0])]
            for clock, read in zip(self.fetched, snapshot.clocks, strict=True):
                assigns.append(clock.assign(read, read_value=False))
            for piece, value in snapshot.values:
                value = tf.cast(value, piece.kept.dtype.base_dtype)
                assigns.append(piece.kept.assign(value, read_value=False))
            return tf.group(*assigns)

    def hear(self, global_step: tf.Tensor) -> tf.Operation:
        """The op that keeps a value of global_step for the steps to come."""
        with tf.device(self._store.worker_device), tf.control_dependencies([self.global_step]):
            return self._heard.assign(global_step, read_value=False)

    def heard_after(self, fetch_op: tf.Operation) -> tf.Tensor:
        """The global_step that `fetch_op` has brought."""
        with tf.device(self._store.worker_device), tf.control_dependencies([fetch_op]):
            return self._heard.read_value()

    def staleness(self, before: Sequence[tf.Tensor]) -> tf.Tensor:
        """int64 [num_ps] on the worker: updates by others since the last fetch; to be read before the next.

        Args:
            before: for each ps task its clock before this worker's update.
        """
        with tf.device(self._store.worker_device):
            return tf.stack([count - clock.read_value() for count, clock in zip(before, self.fetched, strict=True)])


class LocalSteps:
    """Counts a worker's steps, so that the rule can choose each one's phase.

    The count that decides is a Python number; a variable of the same value goes into the worker's saved
    state. `restore` is for `TrainStep.on_restored`.

    Args:
        store: gives the worker's device.
        name: of the variable.

    Attributes:
        variable: int64 scalar on the worker.
        value: the variable as at the start of the step; int64 scalar on the worker.
        count: steps begun.
    """

    def __init__(self, store: ParameterStore, name: str):
        self._device = store.worker_device
        self.count = 0
        with tf.device(self._device):
            self.variable = create_local_variable(name, [], tf.int64)
            self.value = self.variable.read_value()

    def advance(self) -> int:
        """Begins a step; returns its number, the first one's being 1."""
        self.count += 1
        return self.count

    def reset(self) -> None:
        """Begins to count anew."""
        self.count = 0

    def advance_op(self) -> tf.Operation:
        """What every step runs for which `advance` alone was called."""
        with tf.device(self._device), tf.control_dependencies([self.value]):
            return self.variable.assign_add(1, read_value=False)

    def reset_op(self) -> tf.Operation:
        """What every step runs for which `reset` was called."""
        with tf.device(self._device):
            return self.variable.assign(0, read_value=False)

    def restore(self, session: tf.Session) -> None:
        """Goes on at the variable's value."""
        self.count = int(session.run(self.value))


def at_once(store: ParameterStore) -> list[tf.Operation]:
    """For `ParameterStore.read`: for each ps task an op there that waits for nothing."""
    return after_on_ps(store, [])


def after_on_ps(store: ParameterStore, ops: Sequence[tf.Operation | tf.Tensor]) -> list[tf.Operation]:
    """For `ParameterStore.read`: for each ps task an op there that waits for `ops` on the worker."""
    waits = []
    for ps in range(store.num_ps):
        with tf.device(store.ps_device(ps)), tf.control_dependencies(ops):
            waits.append(tf.no_op())
    return waits
