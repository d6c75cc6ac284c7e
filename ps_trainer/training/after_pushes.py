"""`AfterPushes`: what a worker alone knew after its last push, and after the one before that, kept on the worker.

A worker learns that the chief has saved when its next push is over. The checkpoint holds that push, or only the one
before it, to which the worker's variables do not belong any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow.compat.v1 as tf


class AfterPushes:
    """Keeps copies of variables of one worker.

    A copy is the value that the variable had, not moved: it takes memory, and time only for a variable that is changed
    in place, which TensorFlow then copies first.

    Args:
        variables: on this worker.

    Attributes:
        last: for each variable its copy: the value after the worker's last push, or when it joined.
        before: likewise, after the push before that.
        begin_op: makes both copies the value at present; to be run when the worker has joined.
    """

    def __init__(self, variables: Sequence[tf.Variable]):
        self._variables = list(variables)
        self.last = [_copy_of(variable, "last") for variable in variables]
        self.before = [_copy_of(variable, "before") for variable in variables]
        values = [variable.read_value() for variable in variables]
        self.begin_op = tf.group(_set(self.last, values), _set(self.before, values))

    def build(self, fetches: Sequence[tf.Tensor | tf.Operation]) -> tf.Operation:
        """The op that moves the copies on, in a phase that pushes.

        Args:
            fetches: all that the phase runs besides.
        """
        moved_op = _set(self.before, [copy.read_value() for copy in self.last])
        with tf.control_dependencies([moved_op, *_users(self._variables, fetches)]):
            return _set(self.last, [variable.read_value() for variable in self._variables])


def _copy_of(variable: tf.Variable, which: str) -> tf.Variable:
    """A variable beside another one, empty at first."""
    with tf.device(variable.device):
        return tf.Variable(
            tf.zeros([0], variable.dtype.base_dtype),
            name=f"after_push/{which}/{variable.op.name}",
            shape=tf.TensorShape(None),
            collections=[tf.GraphKeys.LOCAL_VARIABLES],
            trainable=False,
            use_resource=True,
        )


def _set(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> tf.Operation:
    return tf.group(*(v.assign(value, read_value=False) for v, value in zip(variables, values, strict=True)))


def _users(variables: Sequence[tf.Variable], fetches: Sequence[tf.Tensor | tf.Operation]) -> list[tf.Operation]:
    """The ops among `fetches` and what they depend on that use the variables."""
    handles = {variable.handle.ref() for variable in variables}
    return [op for op in _ancestors(fetches) if any(tensor.ref() in handles for tensor in op.inputs)]


def _ancestors(fetches: Sequence[tf.Tensor | tf.Operation]) -> Iterator[tf.Operation]:
    pending, seen = [getattr(fetch, "op", fetch) for fetch in fetches], set()
    while pending:
        op = pending.pop()
        if op not in seen:
            seen.add(op)
            yield op
            pending += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
