"""`Signal`: the one thing on a ps task that a step may wait for and that a cancelled step can still give.

A queue cannot be that: once a step is cancelled, as its worker was killed, its enqueue fails like every op that may
wait. An accumulator's `apply_grad` never waits, so it runs to the end with all other ops of a cancelled step.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

_TAKEN, _IGNORED = 2**60, -1  # stamps with which an accumulator, which starts at step 0, takes or drops a gradient


class Signal:
    """A flag in the run's container, at first not given; in the device scope of a ps task.

    Args:
        name: the same in all workers' graphs.
    """

    def __init__(self, name: str):
        self._accumulator = tf.ConditionalAccumulator(tf.float32, shape=[], shared_name=name, reduction_type="SUM")

    def give(self, *, is_given: tf.Tensor | bool = True) -> tf.Operation:
        """Gives the signal, if `is_given` (bool scalar); to give it twice is to give it once. Never waits."""
        stamp = tf.where(is_given, tf.constant(_TAKEN, tf.int64), tf.constant(_IGNORED, tf.int64))
        return self._accumulator.apply_grad(tf.constant(0.0), local_step=stamp)

    def take(self) -> tf.Tensor:
        """Takes the signal; waits until it is given. Those who wait get it one by one, in order, without a thread."""
        return self._accumulator.take_grad(1)
