"""`Gate`: where workers wait on a ps task for something that other workers' steps do there.

Who changes what others wait for writes it and then *opens* the gate, both in the ps task's exclusive section. Who waits
looks at what is written, and takes the signal of its worker and looks again as long as it has to wait. So the signal
only says "look": none is missed, as it is given after what is written; one too many does no harm; and nothing is
counted, so nothing has to be put in order after a worker that was killed.

A wait of a killed worker may still be there when the worker is back (its machine vanished without closing the
connection), before the new wait in the signal's line. So whoever stops waiting passes the signal on. It does stop, if
only what a worker waits for does not come earlier for a later wait of that worker than for an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.updates.signal import Signal


class Gate:
    """A signal for each worker on one ps task, in the run's container; ops in the device scope of that ps.

    Args:
        store: the created store.
        ps: the ps task.
        num_workers: workers of the cluster.
        name: of the rule's resources; gates of one name are the same in all workers' graphs.
    """

    def __init__(self, store: ParameterStore, ps: int, num_workers: int, name: str):
        with tf.device(store.ps_device(ps)):
            self._signals = [Signal(f"{name}/gate_{ps}/worker_{worker}") for worker in range(num_workers)]

    def wait(self, worker: int, has_to: Callable[[], tf.Tensor]) -> tf.Operation:
        """Blocks as long as `worker` has to wait.

        Args:
            worker: its index.
            has_to: reads, whenever it is built, whether there is still something to wait for; bool scalar. Whatever
                makes it false is followed by `open`, and it does not become true again in this wait.
        """
        signal = self._signals[worker]

        def look(count: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([count]):
                return has_to()

        def take(count: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([count]), tf.control_dependencies([signal.take()]):
                return count + 1

        num_taken = tf.while_loop(look, take, [tf.constant(0)], parallel_iterations=1)
        with tf.control_dependencies([num_taken]):
            return signal.give(is_given=num_taken > 0)

    def open(self, *, is_open: tf.Tensor | bool = True) -> tf.Operation:
        """Makes all who wait look again, if `is_open` (bool scalar); after what they look at is written."""
        return tf.group(*(signal.give(is_given=is_open) for signal in self._signals))
