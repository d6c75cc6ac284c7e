"""`Replica`: one worker's copy of the dense parameters, for rules that train between exchanges with the ps.

The model reads `Piece.replica` at the start of a step, so every op that changes the replica must wait for the gradient.
`LocalSteps` counts the steps between exchanges, and resumes its count after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.variables import create_local_variable


class Replica:
    """Fetches the parameters from the ps tasks and remembers at which clocks.

    Args:
        store: The created store, with replicas.

    Attributes:
        fetched: For each ps task its clock at the last fetch, int64 scalar variable on the worker.
        global_step: Last global_step that this worker has received, read at the start of the step; int64 scalar on the
            worker. A local phase returns it, and the schedule of local steps follows it.
        no_staleness: Empty vector, which a local phase returns.
    """

    def __init__(self, store: ParameterStore):
        self._store = store
        with tf.device(store.worker_device):
            self.fetched = [create_local_variable(f"fetched/clock_{ps}", [], tf.int64) for ps in range(store.num_ps)]
            self._known_step = create_local_variable("fetched/global_step", [], tf.int64)
            self.global_step = self._known_step.read_value()
            self.no_staleness = tf.zeros([0], tf.int64)

    @property
    def variables(self) -> list[tf.Variable]:
        """Variables of the replica, for `TrainStep.worker_state`."""
        return [piece.own_replica for piece in self._store.dense]

    def fetch(
        self, after: Sequence[tf.Operation] | None = None, before_assign: Sequence[tf.Operation] = ()
    ) -> tf.Operation:
        """Builds the op that sets the replica, `fetched` and the known global_step to the values on the ps tasks.

        Args:
            after: For each ps task the op there to wait for before it is read.
            before_assign: Ops on the worker that still need the old values.
        """
        snapshot = self._store.read(after or immediate_ops(self._store))
        with tf.device(self._store.worker_device), tf.control_dependencies(before_assign):
            assigns = [self.store_global_step(snapshot.clocks[0])]
            for clock, read in zip(self.fetched, snapshot.clocks, strict=True):
                assigns.append(clock.assign(read, read_value=False))
            for piece, value in snapshot.values:
                value = tf.cast(value, piece.own_replica.dtype.base_dtype)
                assigns.append(piece.own_replica.assign(value, read_value=False))
            return tf.group(*assigns)

    def store_global_step(self, global_step: tf.Tensor) -> tf.Operation:
        """Builds the op that stores a value of global_step for later steps."""
        # After the read of `global_step`, which this step still uses.
        with tf.device(self._store.worker_device), tf.control_dependencies([self.global_step]):
            return self._known_step.assign(global_step, read_value=False)

    def fetched_global_step(self, fetch_op: tf.Operation) -> tf.Tensor:
        """Builds the global_step that `fetch_op` has fetched."""
        with tf.device(self._store.worker_device), tf.control_dependencies([fetch_op]):
            return self._known_step.read_value()

    def staleness(self, before: Sequence[tf.Tensor]) -> tf.Tensor:
        """Builds the number of updates by others since the last fetch, int64 [num_ps]; the next fetch must wait for it.

        Args:
            before: For each ps task its clock before this worker's update.
        """
        with tf.device(self._store.worker_device):
            return tf.stack([count - clock.read_value() for count, clock in zip(before, self.fetched, strict=True)])


class LocalSteps:
    """Counts a worker's steps, so that the rule can choose each one's phase.

    The rule decides by a Python number. A variable with the same value goes into the worker's saved state;
    `TrainStep.on_restored` calls `restore`, which copies it back into the number.

    Args:
        store: The created store.
        name: Name of the variable.

    Attributes:
        variable: Int64 scalar on the worker.
        value: The variable's value at the start of the step; int64 scalar on the worker.
        count: Number of steps begun.
    """

    def __init__(self, store: ParameterStore, name: str):
        self._device = store.worker_device
        self.count = 0
        with tf.device(self._device):
            self.variable = create_local_variable(name, [], tf.int64)
            self.value = self.variable.read_value()

    def advance(self) -> int:
        """Begins a step; returns its number, counted from 1."""
        self.count += 1
        return self.count

    def reset(self) -> None:
        """Sets the count to 0."""
        self.count = 0

    def advance_op(self) -> tf.Operation:
        """Builds the op of every step for which only `advance` was called."""
        # `value` is the count before this step (Adam's bias correction), so the add waits for that read.
        with tf.device(self._device), tf.control_dependencies([self.value]):
            return self.variable.assign_add(1, read_value=False)

    def reset_op(self) -> tf.Operation:
        """Builds the op of every step for which `reset` was called."""
        with tf.device(self._device):
            return self.variable.assign(0, read_value=False)

    def restore(self, session: tf.Session) -> None:
        """Sets the count to the variable's value."""
        self.count = int(session.run(self.value))


def immediate_ops(store: ParameterStore) -> list[tf.Operation]:
    """Returns for each ps task an op there that waits for nothing, for `ParameterStore.read`."""
    return ops_after(store, [])


def ops_after(store: ParameterStore, ops: Sequence[tf.Operation | tf.Tensor]) -> list[tf.Operation]:
    """Returns for each ps task an op there that waits for `ops` on the worker, for `ParameterStore.read`."""
    waits = []
    for ps in range(store.num_ps):
        with tf.device(store.ps_device(ps)), tf.control_dependencies(ops):
            waits.append(tf.no_op())
    return waits
