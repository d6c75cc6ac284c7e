"""`Accumulators`: TensorFlow's accumulators of the gradients of one ps task, for `SyncReplicasOptimizer`.

TensorFlow's accumulators have no op that says how many gradients an average is of. So each ps task has one more
accumulator, whose sum counts them: a worker adds 1 to it after its gradients, and a stand-in adds 0. A sparse gradient
carries its own count, as one more row behind the last row of its variable. With backup workers a late gradient may come
between the takes of two accumulators. So only a row that is taken with the others is sure to belong to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.updates.gradient_sums import Value


class PsVariables(NamedTuple):
    """The variables of a ps task, and its steps.

    Attributes:
        device: Its device.
        variables: Its variables that have a gradient.
        global_step: Its counter of updates, int64 variable; ps 0 has the run's global_step.
        local_step: Value of that counter with which the worker's gradients were computed, int64 scalar there.
        awaited: Ops that a push waits for if no gradient is sent to this task.
    """

    device: str
    variables: Sequence[tf.Variable]
    global_step: tf.Variable
    local_step: tf.Tensor
    awaited: Sequence[tf.Operation] = ()


class Accumulators:
    """The accumulators of one ps task; call its methods in the scope of the task's device.

    Args:
        name: Prefix of the names.
        variables: Variables of the task that have a gradient.
        values: Their gradients, which tell the sparse ones.

    Attributes:
        all: The accumulators of the variables, in order, and the one that counts.
    """

    def __init__(self, name: str, variables: Sequence[tf.Variable], values: Sequence[Value]):
        self._variables = variables
        self._gradients = []
        for variable, value in zip(variables, values, strict=True):
            shared_name = f"{name}/{variable.op.name}/grad_accum"
            dtype = variable.dtype.base_dtype
            if isinstance(value, tf.IndexedSlices):
                # By default each row is divided by the number of workers that touched it, not by R.
                self._gradients.append(
                    tf.SparseConditionalAccumulator(dtype, shared_name=shared_name, reduction_type="SUM")
                )
            else:
                self._gradients.append(tf.ConditionalAccumulator(dtype, variable.shape, shared_name=shared_name))
        self._count = tf.ConditionalAccumulator(tf.float32, shape=[], shared_name=f"{name}/count", reduction_type="SUM")
        self.all = [*self._gradients, self._count]

    def push(self, values: Sequence[Value], task: PsVariables) -> tuple[tf.Tensor, tf.Operation]:
        """Builds a worker's push; returns the task's global_step at its arrival, and the op of the push."""
        arrived = [_on_device(value) for value in values]
        with tf.control_dependencies([*(part for value in arrived for part in _parts(value)), *task.awaited]):
            step = task.global_step.read_value()
        # The step is read first: this push may complete the update, which changes it.
        with tf.control_dependencies([step]):
            return step, self._apply(arrived, task.local_step, tf.constant(1.0))

    def stand_in(self, step: tf.Tensor) -> tf.Operation:
        """Builds the push of a gradient of zeros that does not count, computed at `step`."""
        zeros = []
        for variable, accumulator in zip(self._variables, self._gradients, strict=True):
            shape = variable.shape.as_list()
            if isinstance(accumulator, tf.SparseConditionalAccumulator):
                nothing = np.zeros([0, *shape[1:]], variable.dtype.base_dtype.as_numpy_dtype)
                zeros.append(tf.IndexedSlices(tf.constant(nothing), tf.zeros([0], tf.int64)))
            else:
                zeros.append(tf.zeros(shape, variable.dtype.base_dtype))
        return self._apply(zeros, step, tf.constant(0.0))

    def take(self, required: tf.Tensor) -> tuple[tf.Tensor, list[Value]]:
        """Builds the wait for `required` gradients; returns how many of them count, and their averages."""
        count = self._count.take_grad(required)
        means = []
        # A worker counts after its gradients, so all of them are there now, and no take below waits.
        with tf.control_dependencies([count]):
            # The mean of R gradients of which only some count; 1 as long as no stand-in is among them.
            factor = tf.maximum(1.0, tf.cast(required, tf.float32) / count)
            for variable, accumulator in zip(self._variables, self._gradients, strict=True):
                if isinstance(accumulator, tf.SparseConditionalAccumulator):
                    means.append(mean_rows(accumulator.take_indexed_slices_grad(required), variable))
                else:
                    mean = accumulator.take_grad(required)
                    means.append(mean * tf.cast(factor, mean.dtype))
        return count, means

    def _apply(self, values: Sequence[Value], step: tf.Tensor, count: tf.Tensor) -> tf.Operation:
        applied = []
        for variable, accumulator, value in zip(self._variables, self._gradients, values, strict=True):
            if isinstance(value, tf.IndexedSlices):
                counted = with_count_row(value, variable, count)
                applied.append(accumulator.apply_indexed_slices_grad(counted, local_step=step))
            else:
                applied.append(accumulator.apply_grad(value, local_step=step))
        with tf.control_dependencies(applied):
            return self._count.apply_grad(count, local_step=step)


def _on_device(value: Value) -> Value:
    if not isinstance(value, tf.IndexedSlices):
        return tf.identity(value)
    return tf.IndexedSlices(tf.identity(value.values), tf.cast(tf.identity(value.indices), tf.int64))


def with_count_row(value: tf.IndexedSlices, variable: tf.Variable, count: tf.Tensor) -> tf.IndexedSlices:
    """Adds a row of `count` behind the last row of the variable."""
    num_rows, *row_shape = variable.shape.as_list()
    row = tf.fill([1, *row_shape], tf.cast(count, value.dtype))
    return tf.IndexedSlices(
        tf.concat([value.values, row], axis=0),
        tf.concat([value.indices, tf.constant([num_rows], tf.int64)], axis=0),
        tf.constant([num_rows + 1, *row_shape], tf.int64),
    )


def mean_rows(total: tf.IndexedSlices, variable: tf.Variable) -> tf.IndexedSlices:
    """Divides the sums of rows by the sum of their count rows, which it leaves out."""
    num_rows, *row_shape = variable.shape.as_list()
    total.indices.set_shape([None])
    total.values.set_shape([None, *row_shape])
    is_row = tf.less(total.indices, num_rows)
    # An accumulator need not merge rows of the same index, so there may be several count rows.
    count_rows = tf.boolean_mask(total.values, tf.logical_not(is_row))
    count = tf.reduce_sum(tf.reshape(count_rows, [-1, math.prod(row_shape)])[:, 0])
    rows = tf.boolean_mask(total.values, is_row) / count
    shape = tf.constant([num_rows, *row_shape], tf.int64)
    return tf.IndexedSlices(rows, tf.boolean_mask(total.indices, is_row), shape)


def _parts(value: Value) -> list[tf.Tensor]:
    return [value.values, value.indices] if isinstance(value, tf.IndexedSlices) else [value]
