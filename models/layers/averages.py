"""Moving averages of what the batches of all workers give."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def moving_average_update(moving: tf.Variable, value: tf.Tensor, momentum: float) -> tf.Operation:
    """The op `moving <- momentum * moving + (1 - momentum) * value`, and adds it to the collection UPDATE_OPS.

    All workers move the same variable. Each update is one critical section on the device of the variable: it begins
    when `value` has arrived there, and no other update falls between its read and its write. So the updates of any
    number of workers, in the order in which they get in, are exactly the recursion above. A variable that is read
    outside of such a section is read when the worker's step begins, which is before the updates of other workers.

    The update runs with each step that has to do with the parameter servers; a local step, such as those of
    `--update=local_sgd` between two averages, does without it.

    An update counts a batch as soon as its value is known: also one whose gradient the update rule drops, and possibly
    one whose step fails or is cancelled later. Each variable is updated once for a batch, or not at all. A step that is
    cancelled just while it waits for the section, as its worker is killed, may let the next one in beside the one that
    is inside (TensorFlow 2.21): then one of those two updates may be lost.

    Args:
        moving: the variable, made by `tf.get_variable` with `trainable=False`, not partitioned.
        value: of this worker's batch, of the variable's shape and dtype.
        momentum: share of the old value that the average keeps, from 0 to 1.
    """
    with tf.device(moving.device):  # so that the batch's value travels and nothing else
        arrived = tf.identity(value)
        name = f"moving_average/{moving.op.name}"
        section = tf.CriticalSection(name=name, shared_name=name)

        def update() -> tf.Operation:
            return moving.assign_sub((moving.read_value() - arrived) * (1 - momentum), read_value=False)

        update_op = section.execute(update)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update_op)
    return update_op
