"""`SyncOps`: the accumulators, arrivals and tokens of `SyncReplicasOptimizer`, and their ops.

The rule `sync_replicas` has other accumulators and tokens (`updates/sync_replicas_optimizer.py`): TensorFlow's
class, whose chief waits inside of `take_grad` for R gradients of anybody. That cannot tell whose gradient has come, so
a lost worker sends all workers back to the last checkpoint. A script may have none. Here each worker therefore reports
its arrival, and one that is restarted continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.tf1.placement import device_scope
from ps_trainer.tf1.tasks import Server
from ps_trainer.updates.base import RELEASED
from ps_trainer.updates.sync_replicas_accumulators import mean_rows, with_count_row

WAKE_UP = -1
"""Index in an arrival that comes from no worker: it only ends the chief's wait, so that the chief looks again."""


class SyncOps(NamedTuple):
    """Ops of one `SyncReplicasOptimizer`, which the job runs.

    Attributes:
        required: Number of gradients in an update.
        prepare: Op with which the chief begins a run at the current global_step.
        init_step: Initialiser of this worker's step.
        forget: Op with which a worker that joins drops the tokens of its process before.
        current: (global_step, step of this worker's last arrival), each a scalar; read when the worker joins.
        set_step: Op that sets this worker's step to `step`.
        step: Int64 placeholder of `set_step`.
        await_token: Op that waits for this worker's token and sets its step to it.
        arrivals: The next arrivals, int64 [count, 2] with (worker index, step) in each row; waits for them.
        update: `arrivals`, after an update and after the tokens of all workers.
        count: Int32 placeholder of both.
        global_step: Value of global_step.
        wake_up: Op that adds an arrival with index `WAKE_UP`.
        release: Op that gives `RELEASED` to every worker in place of a token.
    """

    required: int
    prepare: tf.Operation
    init_step: tf.Operation
    forget: tf.Operation
    current: tuple[tf.Tensor, tf.Tensor]
    set_step: tf.Operation
    step: tf.Tensor
    await_token: tf.Operation
    arrivals: tf.Tensor
    update: tf.Tensor
    count: tf.Tensor
    global_step: tf.Tensor
    wake_up: tf.Operation
    release: tf.Operation


class SyncBuilder:
    """Builds the ops of one optimizer.

    Args:
        optimizer: The optimizer, of whose attributes this class uses those of TensorFlow.
        task: This worker.
        global_step: Counter of the updates.
    """

    def __init__(self, optimizer: tf.train.SyncReplicasOptimizer, task: Server, global_step: tf.Variable):
        self._optimizer = optimizer
        self._own = task.cluster.device
        self._index = task.cluster.worker_index
        self._num_workers = task.cluster.num_workers
        self._global_step = global_step
        self._home = global_step.device  # tokens and arrivals lie beside global_step
        with device_scope(self._own):
            self._local_step = tf.Variable(
                0,
                trainable=False,
                collections=[tf.GraphKeys.LOCAL_VARIABLES],
                dtype=tf.int64,
                name="sync_rep_local_step",
                use_resource=True,
            )
            self._stamp = self._local_step.read_value()

    def build(
        self, pairs: Sequence[tuple[Any, tf.Variable]], before: tf.Operation, name: str | None
    ) -> tuple[SyncOps, tf.Tensor]:
        """Builds everything; returns the ops of the job, and the train op, whose arrival comes after `before`."""
        pushes, averages, prepares = [], [], []
        for gradient, variable in pairs:
            if gradient is None:
                averages.append((None, variable))
                continue
            with device_scope(variable.device):
                push, take, prepare = self._accumulate(gradient, variable)
            pushes.append(push)
            averages.append((take, variable))
            prepares.append(prepare)
        with device_scope(self._home):
            arrivals = tf.FIFOQueue(-1, [tf.int64], [(2,)], shared_name="sync_replicas/arrivals")
            tokens = [
                tf.FIFOQueue(-1, [tf.int64], [()], shared_name=f"sync_replicas/tokens_{index}")
                for index in range(self._num_workers)
            ]
            last_arrival = tf.Variable(
                tf.fill([self._num_workers], tf.constant(-1, tf.int64)),
                trainable=False,
                collections=[],
                name="last_arrivals",
                use_resource=True,
            )
            count = tf.placeholder(tf.int32, [], "count")
            arrive = self._arrive([*pushes, before], arrivals, last_arrival)
            token = self._wait(tokens[self._index], [arrive])
            first_token = self._wait(tokens[self._index], [])
            wake_up = arrivals.enqueue(tf.constant([WAKE_UP, 0], tf.int64))
            release = tf.group(*(queue.enqueue(tf.constant(RELEASED, tf.int64)) for queue in tokens))
            next_arrivals = arrivals.dequeue_many(count)
            # Fetched to their end, because the op alone would not wait for them.
            update = self._update(averages, tokens, arrivals, count)
            forget = tokens[self._index].dequeue_many(tokens[self._index].size()).op
            current = (_value(self._global_step), last_arrival.read_value()[self._index])
            prepares.append(last_arrival.initializer)
        with device_scope(self._own):
            step = tf.placeholder(tf.int64, [], "step")
            ops = SyncOps(
                required=self._optimizer._replicas_to_aggregate,
                prepare=tf.group(*prepares),
                init_step=self._local_step.initializer,
                forget=forget,
                current=current,
                set_step=self._local_step.assign(step, read_value=False),
                step=step,
                await_token=self._local_step.assign(first_token, read_value=False),
                arrivals=next_arrivals,
                update=update,
                count=count,
                global_step=current[0],
                wake_up=wake_up,
                release=release,
            )
            with tf.control_dependencies([self._local_step.assign(token, read_value=False)]):
                return ops, tf.identity(token, name=name)

    def _accumulate(self, gradient: Any, variable: tf.Variable) -> tuple[tf.Operation, Any, tf.Operation]:
        """Builds the push of a gradient, its average, and the op that begins at the current step."""
        shared_name = f"sync_replicas/{variable.op.name}"
        if isinstance(gradient, tf.IndexedSlices):
            sums = tf.SparseConditionalAccumulator(
                gradient.dtype, shape=None, shared_name=shared_name, reduction_type="SUM"
            )
            counted = with_count_row(_split_rows(gradient, variable), variable, tf.constant(1.0))
            push = sums.apply_indexed_slices_grad(counted, local_step=self._stamp)
            average = mean_rows(sums.take_indexed_slices_grad(1), variable)
        else:
            sums = tf.ConditionalAccumulator(gradient.dtype, shape=variable.shape, shared_name=shared_name)
            push = sums.apply_grad(gradient, local_step=self._stamp)
            average = sums.take_grad(1)
        return push, average, sums.set_global_step(_value(self._global_step))

    def _arrive(self, after: Sequence[tf.Operation], arrivals: tf.FIFOQueue, last_arrival: tf.Variable) -> tf.Operation:
        with tf.control_dependencies(after):
            stamp = tf.identity(self._stamp)
            note = tf.scatter_update(last_arrival, [self._index], [stamp])
        with tf.control_dependencies([note]):
            return arrivals.enqueue(tf.stack([tf.constant(self._index, tf.int64), stamp]))

    def _wait(self, tokens: tf.FIFOQueue, after: Sequence[tf.Operation]) -> tf.Tensor:
        """Waits for a token that is newer than this worker's step, and takes the newest."""
        with tf.control_dependencies(after):
            token, stamp = tokens.dequeue(), tf.identity(self._stamp)
        # A backup worker that was slow would otherwise make a step, in vain, for each update that it has missed.
        with tf.control_dependencies([token]):
            token = tf.reduce_max(tf.concat([[token], tokens.dequeue_many(tokens.size())], 0))
        # A worker that has just joined may find the token of the step in which it joined.
        is_old = tf.logical_and(token <= stamp, tf.not_equal(token, RELEASED))
        return tf.cond(is_old, tokens.dequeue, lambda: token)

    def _update(
        self,
        averages: Sequence[tuple[Any, tf.Variable]],
        tokens: Sequence[tf.FIFOQueue],
        arrivals: tf.FIFOQueue,
        count: tf.Tensor,
    ) -> tf.Tensor:
        optimizer = self._optimizer
        update = optimizer._opt.apply_gradients(averages, self._global_step)
        with tf.control_dependencies([update]):
            step = tf.identity(_value(self._global_step))
        after: list[Any] = [step]
        if optimizer._variable_averages is not None:
            with tf.control_dependencies(after):
                after = [step, optimizer._variable_averages.apply(optimizer._variables_to_average)]
        with tf.control_dependencies(after):
            given = [queue.enqueue(step) for queue in tokens]
        with tf.control_dependencies(given):
            return arrivals.dequeue_many(count)


def _value(global_step: tf.Variable) -> tf.Tensor:
    read = global_step.read_value() if isinstance(global_step, tf.Variable) else tf.identity(global_step)
    return tf.cast(read, tf.int64)


def _split_rows(gradient: tf.IndexedSlices, variable: tf.Variable) -> tf.IndexedSlices:
    """Returns the same gradient, with one row of values for each index."""
    values = tf.reshape(gradient.values, [-1, *variable.shape.as_list()[1:]])
    return tf.IndexedSlices(values, tf.cast(gradient.indices, tf.int64))
