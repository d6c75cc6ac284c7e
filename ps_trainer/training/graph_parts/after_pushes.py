"""`AfterPushes`: copies of a worker's own state after its last push and after the push before that.

A worker learns with its next push that the chief has saved. The checkpoint then holds this push, or only the push
before it. In the second case the worker's variables have changed since, so a copy of their earlier values is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.ancestors import ancestors


class AfterPushes:
    """Keeps copies of variables of one worker.

    A copy shares the buffer of the variable's earlier value. It always takes memory; it takes time only if an op
    changes the variable in place, because TensorFlow then copies the buffer first.

    Args:
        variables: Variables on this worker.

    Attributes:
        last: Copy of each variable after the worker's last push, or when the worker joined.
        before: Copy of each variable after the push before that.
        begin_op: Op that sets both copies to the current values, to be run when the worker has joined.
    """

    def __init__(self, variables: Sequence[tf.Variable]):
        self._variables = list(variables)
        self.last = [_copy_of(variable, "last") for variable in variables]
        self.before = [_copy_of(variable, "before") for variable in variables]
        values = [variable.read_value() for variable in variables]
        self.begin_op = tf.group(_set(self.last, values), _set(self.before, values))

    def build(self, fetches: Sequence[tf.Tensor | tf.Operation]) -> tf.Operation:
        """Builds the op that renews the copies in a phase that pushes.

        Args:
            fetches: Everything else that the phase runs. The op waits for those of its ops that use the variables.
        """
        moved_op = _set(self.before, [copy.read_value() for copy in self.last])
        # `last` moves to `before` first. The new `last` waits for the step's own ops, or it would hold values from
        # before them.
        with tf.control_dependencies([moved_op, *_users(self._variables, fetches)]):
            return _set(self.last, [variable.read_value() for variable in self._variables])


def _copy_of(variable: tf.Variable, which: str) -> tf.Variable:
    """Creates the variable for a copy, on the same device and empty."""
    with tf.device(variable.device):
        return tf.Variable(
            # Empty and of any shape, because the number of held batches, for example, varies.
            tf.zeros([0], variable.dtype.base_dtype),
            name=f"after_push/{which}/{variable.op.name}",
            shape=tf.TensorShape(None),
            # The session of the steps initialises local variables, so the chief need not know them.
            collections=[tf.GraphKeys.LOCAL_VARIABLES],
            trainable=False,
            use_resource=True,
        )


def _set(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> tf.Operation:
    return tf.group(*(v.assign(value, read_value=False) for v, value in zip(variables, values, strict=True)))


def _users(variables: Sequence[tf.Variable], fetches: Sequence[tf.Tensor | tf.Operation]) -> list[tf.Operation]:
    """Returns the ops that use the variables, among `fetches` and all ops that these depend on."""
    handles = {variable.handle.ref() for variable in variables}
    return [op for op in ancestors(fetches) if any(tensor.ref() in handles for tensor in op.inputs)]
