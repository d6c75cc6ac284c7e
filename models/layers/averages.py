"""Moving averages over the batches of all workers."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def moving_average_update(moving: tf.Variable, value: tf.Tensor, momentum: float) -> tf.Operation:
    """Builds `moving <- momentum * moving + (1 - momentum) * value` and adds the op to the collection UPDATE_OPS.

    All workers update the same variable. Each update is one op on the device of the variable. It reads and writes under
    the variable's own lock, so no other update falls between its read and its write. Therefore the updates of any
    number of workers, in the order of their arrival, are exactly the recursion above. With several ops the read would
    happen when the worker's step begins, and the write would undo the updates of other workers since then.

    The update runs in every step that uses the parameter servers. A local step, such as the steps of
    `--update=local_sgd` between two averages, does not run it.

    An update counts a batch as soon as its value is known. So it also counts a batch whose gradient the update rule
    drops, and may count one whose step fails or is cancelled later. Each variable is updated at most once per batch.

    Args:
        moving: Variable from `tf.get_variable` with `trainable=False`, not partitioned.
        value: Value of this worker's batch, with the variable's shape and dtype.
        momentum: Share of the old value that the average keeps, from 0 to 1.
    """
    with tf.device(moving.device):
        # The only op that multiplies and adds under one lock: accum <- momentum * accum + grad, and then
        # var <- var - 0 * accum, with the average as both var and accum.
        update_op = tf.raw_ops.ResourceApplyMomentum(
            var=moving.handle,
            accum=moving.handle,
            lr=tf.zeros([], moving.dtype),
            grad=(1 - momentum) * value,
            momentum=tf.constant(momentum, moving.dtype),
            use_locking=True,
        )
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update_op)
    return update_op
