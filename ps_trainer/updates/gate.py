"""`Gate`: lets workers wait on a ps task for a state that other workers' steps write there.

A step that changes the state writes it and then *opens* the gate, both in the ps task's exclusive section. A waiting
step reads the state; while it has to wait, it takes the signal of its worker and reads the state again. So the signal
only means "read again". No step misses it, because it is given after the state is written. An extra signal does no
harm. Signals are not counted, so a killed worker leaves no count to correct.

The wait of a killed worker may still exist when the worker is back, if its machine vanished without closing the
connection. That old wait stands before the new one in the signal's line. So a wait that ends passes the signal on. The
old wait does end, provided that what a worker waits for never comes later for an earlier wait than for a later one.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.updates.signal import Signal


class Gate:
    """A signal for each worker on one ps task, in the run's container; ops in the device scope of that ps.

    Args:
        store: The created store.
        ps: Index of the ps task.
        num_workers: Number of workers of the cluster.
        name: Prefix of the names of the rule's resources. Gates of one name are the same in all workers' graphs.
    """

    def __init__(self, store: ParameterStore, ps: int, num_workers: int, name: str):
        with tf.device(store.ps_device(ps)):
            # One for each worker, because a signal wakes only one of the ops that wait for it.
            self._signals = [Signal(f"{name}/gate_{ps}/worker_{worker}") for worker in range(num_workers)]

    def wait(self, worker: int, has_to_wait: Callable[[], tf.Tensor]) -> tf.Operation:
        """Builds the op that blocks as long as `worker` has to wait.

        Args:
            worker: Index of the worker.
            has_to_wait: Builds the read that tells whether the worker still has to wait; bool scalar. A step that
                makes it false must call `open` afterwards. It must not become true again in the same wait.
        """
        signal = self._signals[worker]

        def look(count: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([count]):
                return has_to_wait()

        def take(count: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([count]), tf.control_dependencies([signal.take()]):
                return count + 1

        # One iteration at a time: each read must come after the signal that caused it.
        num_taken = tf.while_loop(look, take, [tf.constant(0)], parallel_iterations=1)
        # Pass the signal on for an earlier or later wait of this worker.
        with tf.control_dependencies([num_taken]):
            return signal.give(is_given=num_taken > 0)

    def open(self, *, is_open: tf.Tensor | bool = True) -> tf.Operation:
        """Builds the op that makes all waiting steps read the state again if `is_open` (bool scalar).

        The caller must order the op after the write of the state.
        """
        return Signal.give_all(self._signals, is_given=is_open)
