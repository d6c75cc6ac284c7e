"""`Signal`: a flag on a ps task that a step can wait for and that a cancelled step can still give.

A step is cancelled when its worker is killed. A queue cannot serve as the flag: once a step is cancelled, its enqueue
fails like every op that may wait. An accumulator's `apply_grad` never waits, so it still runs in a cancelled step.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

# An accumulator drops a gradient whose stamp is below its own step. That step starts at 0 and grows with each take, so
# the first stamp is always accepted and the second one always dropped.
_ACCEPTED, _DROPPED = 2**60, -1


class Signal:
    """A flag in the run's container, in the device scope of a ps task; it is not given at first.

    Args:
        name: Name of the flag, the same in all workers' graphs.
    """

    def __init__(self, name: str):
        self._accumulator = tf.ConditionalAccumulator(tf.float32, shape=[], shared_name=name, reduction_type="SUM")

    def give(self, *, is_given: tf.Tensor | bool = True) -> tf.Operation:
        """Builds the op that gives the signal if `is_given` (bool scalar). Giving it twice has the effect of once."""
        return Signal.give_all([self], is_given=is_given)

    @staticmethod
    def give_all(signals: Sequence[Signal], *, is_given: tf.Tensor | bool = True) -> tf.Operation:
        """Builds the op that gives several signals of one ps task if `is_given` (bool scalar)."""
        # The graph of a rule that collects gradients has dozens of these, so the signals share their inputs.
        stamp = tf.constant(_ACCEPTED if is_given is True else _DROPPED, tf.int64)
        if not isinstance(is_given, bool):
            stamp = tf.where(is_given, tf.constant(_ACCEPTED, tf.int64), stamp)
        nothing = tf.constant(0.0)
        gives = [signal._accumulator.apply_grad(nothing, local_step=stamp) for signal in signals]
        return gives[0] if len(gives) == 1 else tf.group(*gives)

    def take(self) -> tf.Tensor:
        """Builds the op that waits for the signal and takes it; waiting ops get it one by one, in order of arrival.

        A waiting op holds no thread of the ps task.
        """
        return self._accumulator.take_grad(1)
