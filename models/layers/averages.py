"""Moving averages of what the batches of all workers give."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def moving_average_update(moving: tf.Variable, value: tf.Tensor, momentum: float) -> tf.Operation:
    """The op `moving <- momentum * moving + (1 - momentum) * value`, and adds it to the collection UPDATE_OPS.

    All workers move the same variable. Each update is one op on the device of the variable, which reads and writes
    under the variable's own lock, so no other update falls between its read and its write: the updates of any number of
    workers, in the order in which they get in, are exactly the recursion above. Several ops would not do: a variable
    that an op reads for another is read when the worker's step begins, which is before the updates of other workers.

    The update runs with each step that has to do with the parameter servers; a local step, such as those of
    `--update=local_sgd` between two averages, does without it.

    An update counts a batch as soon as its value is known: also one whose gradient the update rule drops, and possibly
    one whose step fails or is cancelled later. Each variable is updated once for a batch, or not at all.

    Args:
        moving: the variable, made by `tf.get_variable` with `trainable=False`, not partitioned.
        value: of this worker's batch, of the variable's shape and dtype.
        momentum: share of the old value that the average keeps, from 0 to 1.
    """
    with tf.device(moving.device):
        # accum <- momentum * accum + grad, and then var <- var - 0 * accum; both are the average.
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
