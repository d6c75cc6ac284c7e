"""`GroupPolicy`: decides which gradients make an update together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow.compat.v1 as tf


class GroupPolicy(NamedTuple):
    """Decides which gradients a group takes, when it is complete, and whether workers wait for that.

    Attributes:
        required: Maps the clock before the update (int64 scalar on a ps) to the number of gradients that the update
            needs (int64 scalar).
        counts_workers: Whether fewer gradients than required make an update once every live worker has given one.
            Otherwise the required number is always needed, from whichever workers.
        is_fresh_only: Whether a gradient of older parameters than the newest is dropped. If so, ps 0 decides for all
            ps tasks; otherwise each ps task forms its own groups.
        waits: Whether a worker waits for the update that its gradient is in.
    """

    required: Callable[[tf.Tensor], tf.Tensor]
    counts_workers: bool
    is_fresh_only: bool
    waits: bool

    def is_complete(self, clock: tf.Tensor, members: tf.Tensor, gone: tf.Tensor) -> tf.Tensor:
        """Returns whether the gradients of a group make an update; bool scalar.

        Args:
            clock: Updates counted on the ps so far, int64 scalar.
            members: Number of gradients of each worker in the group, int64 [num_workers].
            gone: 1 for each worker that has left, int64 [num_workers].
        """
        total = tf.reduce_sum(members)
        is_enough = total >= self.required(clock)
        if not self.counts_workers:
            return is_enough
        has_all = tf.reduce_all(members + gone > 0)
        # More than none: when all workers have left, the average of no gradient would be 0/0.
        return tf.logical_or(is_enough, tf.logical_and(total > 0, has_all))
