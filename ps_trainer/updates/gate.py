"""`Gate`: where workers wait on a ps task for something that other workers' steps do there.

A queue per worker, into which whoever opens the gate puts a token for each live worker. A worker first
*arrives*, in the ps task's exclusive section: its queue is emptied, and what it waits for is compared with the
state at that moment, which gives a number of tokens. It then takes that many, outside of the section. Every
token since its arrival is in its queue, so none can be missed, and a wait takes no thread.

A waiting worker is let go by tokens, never by closing a queue, so that a second run or a worker that comes back
finds the gate in order.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore

_MANY = 1000  # more tokens than any worker waits for


class Gate:
    """The queues of one ps task, in the run's container; ops in the device scope of that ps.

    Args:
        store: the created store.
        ps: the ps task.
        num_workers: workers of the cluster.
        name: of the rule's resources; gates of one name are the same in all workers' graphs.
    """

    def __init__(self, store: ParameterStore, ps: int, num_workers: int, name: str):
        with tf.device(store.ps_device(ps)):
            self._queues = [
                tf.FIFOQueue(-1, [tf.bool], [()], shared_name=f"{name}/gate_{ps}/worker_{worker}")
                for worker in range(num_workers)
            ]

    def arrive(self, worker: int) -> tf.Operation:
        """Empties the queue of `worker`; in the exclusive section, before anything is read there."""
        queue = self._queues[worker]
        return queue.dequeue_many(queue.size()).op

    def wait(self, worker: int, count: tf.Tensor) -> tf.Operation:
        """Takes `count` (int64 scalar, may be 0 or less) tokens of `worker`; blocks until they are there."""
        return self._queues[worker].dequeue_many(tf.cast(tf.maximum(count, 0), tf.int32)).op

    def open(self, count: tf.Tensor, live: tf.Tensor) -> tf.Operation:
        """Gives tokens; in the exclusive section.

        Args:
            count: int64 scalar, tokens for each live worker.
            live: int64 [num_workers], 1 where live, else 0. The queues of the others do not grow.
        """
        counts = tf.unstack(tf.cast(count * live, tf.int32))
        return tf.group(
            *(
                queue.enqueue_many([tf.fill(tf.reshape(number, [1]), True)])
                for queue, number in zip(self._queues, counts, strict=True)
            )
        )

    def let_go(self, who: tf.Tensor) -> tf.Operation:
        """Ends the wait of workers, whatever they wait for; `who` is int64 [num_workers], 1 where meant."""
        return self.open(tf.constant(_MANY, tf.int64), who)
