"""`SyncReplicasOptimizer`: every update averages one gradient of each of several workers.

    worker   compute → gradient into each variable's accumulator → arrival → wait for this worker's next token
    chief    wait for R arrivals of this step → take the averages → inner optimizer, global_step + 1 → a token for each

It differs from `tf.train.SyncReplicasOptimizer` in these points:

* A token belongs to one worker, so no worker counts twice in an update. TensorFlow's tokens lie in one queue, from
  which a fast worker may take those of a slow one; and its hook adds R more tokens at the start.
* The chief waits for arrivals, so it can stop waiting for a worker that is lost. TensorFlow's chief waits inside of
  `take_grad`, and the job hangs.
* A sparse gradient is averaged over the gradients, as a dense one is. TensorFlow divides each row by the number of
  workers that have touched it, so a rare row gets a larger step than in the average of the losses.
* `replicas_to_aggregate` may not exceed `total_num_replicas`: a worker would have to count twice.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.errors import OptionError
from ps_trainer.tf1 import tasks
from ps_trainer.tf1.placement import on
from ps_trainer.tf1.tasks import Server
from ps_trainer.updates.base import RELEASED
from ps_trainer.updates.sync_replicas_accumulators import mean_rows, with_count_row

WAKE_UP = -1
"""Index in an arrival that comes from no worker: it only ends the chief's wait, so that the chief looks again."""


class SyncOps(NamedTuple):
    """Ops of one `SyncReplicasOptimizer`, which the job runs.

    Attributes:
        required: Number of gradients in an update.
        prepare: Op with which the chief begins a run at the present global_step.
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


# Not a graph collection: `export_meta_graph` would warn that it cannot write the object.
_of_graph: weakref.WeakKeyDictionary[tf.Graph, SyncReplicasOptimizer] = weakref.WeakKeyDictionary()


def of_graph(graph: tf.Graph) -> SyncReplicasOptimizer | None:
    """The optimizer that has applied gradients in `graph`; None if there is none."""
    return _of_graph.get(graph)


class SyncReplicasOptimizer(tf.train.Optimizer):
    """`tf.train.SyncReplicasOptimizer` with a true barrier; the module's docstring lists the differences.

    Args:
        opt: Optimizer that applies the averages.
        replicas_to_aggregate: Number of gradients in an update. If it is smaller than the number of workers, the others
            are backup workers, and gradients that come too late are dropped.
        total_num_replicas: Number of workers; by default `replicas_to_aggregate`.
        variable_averages: Moving averages to update after each update.
        variables_to_average: Variables of `variable_averages`.
        use_locking: As in TensorFlow; the chief makes all updates, so it changes nothing.
        name: Prefix of the names of ops.

    Raises:
        OptionError: `replicas_to_aggregate` is larger than `total_num_replicas`, or less than 1.
    """

    def __init__(
        self,
        opt: tf.train.Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: tf.train.ExponentialMovingAverage | None = None,
        variables_to_average: Sequence[tf.Variable] | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ):
        super().__init__(use_locking, name)
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        if not 1 <= replicas_to_aggregate <= total:
            raise OptionError(
                f"replicas_to_aggregate={replicas_to_aggregate}, total_num_replicas={total}: an update takes at least 1"
                " gradient, and at most one of each worker. For larger batches raise the batch size"
            )
        self._opt = opt
        self._required = replicas_to_aggregate
        self._total = total
        self._averages = variable_averages
        self._to_average = variables_to_average
        self._ops: SyncOps | None = None

    @property
    def ops(self) -> SyncOps:
        """The ops, once gradients were applied.

        Raises:
            ValueError: `apply_gradients` was not called yet.
        """
        if self._ops is None:
            raise ValueError("SyncReplicasOptimizer.apply_gradients should be called first")
        return self._ops

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, tf.Variable]]:
        """Computes gradients with the inner optimizer."""
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> tf.Variable | None:
        """Returns a slot of the inner optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Returns the names of the inner optimizer's slots."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[tf.Variable]:
        """Returns the variables of the inner optimizer."""
        return self._opt.variables()

    def apply_gradients(
        self, grads_and_vars: Any, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Tensor:
        """Builds the push of this worker's gradients, and the wait for the update.

        Args:
            grads_and_vars: (gradient, variable) pairs, as `compute_gradients` returns them.
            global_step: Counter of the updates.
            name: Name of the returned op.

        Returns:
            Train op: when it has run, an update with this worker's gradient, or without it if it came too late, is
            made.

        Raises:
            ValueError: There are no pairs, or no `global_step`.
            OptionError: The process has no `Server` yet, `total_num_replicas` is not the number of workers, or the
                graph has another `SyncReplicasOptimizer` already.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        graph = tf.get_default_graph()
        if of_graph(graph) is not None:
            raise OptionError(
                "the graph has a SyncReplicasOptimizer that has applied gradients already; sum the losses, and apply"
                " all gradients in one call"
            )
        task = tasks.own_task()
        if self._total != task.cluster.num_workers:
            raise OptionError(
                f"total_num_replicas={self._total}, but the cluster has {task.cluster.num_workers} workers; give"
                f" total_num_replicas={task.cluster.num_workers}"
            )
        with tf.name_scope(None, self._name):
            self._ops, train_op = _Builder(self, task, global_step).build(pairs, name)
        _of_graph[graph] = self
        return train_op

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> tf.train.SessionRunHook:
        """Returns the hook that `MonitoredTrainingSession` needs; the job itself does the work.

        Args:
            is_chief: Whether this worker is the chief.
            num_tokens: Without effect: there are no tokens at the start.
        """
        del is_chief
        if num_tokens not in (-1, 0):
            logging.warning("num_tokens=%d has no effect: there are no tokens at the start", num_tokens)
        return SyncReplicasHook(self)

    # What scripts with a `Supervisor` call. The job itself begins the updates, so most of it does nothing.

    @property
    def chief_init_op(self) -> tf.Operation:
        """Local init op of the chief: initialises its step."""
        return self.ops.init_step

    @property
    def local_step_init_op(self) -> tf.Operation:
        """Local init op of the other workers: initialises their step."""
        return self.ops.init_step

    @property
    def ready_for_local_init_op(self) -> tf.Tensor:
        """Names of the variables that are not initialised."""
        return tf.report_uninitialized_variables(tf.global_variables())

    def get_init_tokens_op(self, num_tokens: int = -1) -> tf.Operation:
        """Returns an op that does nothing: there are no tokens at the start."""
        del num_tokens
        return _no_op()

    def get_chief_queue_runner(self) -> tf.train.QueueRunner:
        """Returns a queue runner without threads: the job makes the updates."""
        _ = self.ops  # as TensorFlow's, it may not come before `apply_gradients`
        return _NoQueueRunner()


class SyncReplicasHook(tf.train.SessionRunHook):
    """Tells the job that the script knows of its `SyncReplicasOptimizer`.

    Args:
        optimizer: The optimizer.
    """

    def __init__(self, optimizer: SyncReplicasOptimizer):
        self.optimizer = optimizer

    def begin(self) -> None:
        """Checks that gradients were applied."""
        _ = self.optimizer.ops


class _NoQueueRunner(tf.train.QueueRunner):
    """A queue runner that starts no threads."""

    def __init__(self) -> None:  # not the base's, which needs a queue
        self._exceptions_raised: list[BaseException] = []

    @property
    def name(self) -> str:
        return "sync_replicas"

    def create_threads(self, *args: Any, **kwargs: Any) -> list[threading.Thread]:
        del args, kwargs
        return []


class _Builder:
    """Builds the ops of one optimizer.

    Args:
        optimizer: The optimizer.
        task: This worker.
        global_step: Counter of the updates.
    """

    def __init__(self, optimizer: SyncReplicasOptimizer, task: Server, global_step: tf.Variable):
        self._optimizer = optimizer
        self._own = task.cluster.device
        self._index = task.cluster.worker_index
        self._num_workers = task.cluster.num_workers
        self._global_step = global_step
        self._home = global_step.device  # tokens and arrivals lie beside global_step
        with on(self._own):
            self._local_step = tf.Variable(
                0,
                trainable=False,
                collections=[tf.GraphKeys.LOCAL_VARIABLES],
                dtype=tf.int64,
                name="sync_rep_local_step",
                use_resource=True,
            )
            self._stamp = self._local_step.read_value()

    def build(self, pairs: Sequence[tuple[Any, tf.Variable]], name: str | None) -> tuple[SyncOps, tf.Tensor]:
        """Builds everything; returns the ops of the job, and the train op."""
        pushes, averages, prepares = [], [], []
        for gradient, variable in pairs:
            if gradient is None:
                averages.append((None, variable))
                continue
            with on(variable.device):
                push, take, prepare = self._accumulate(gradient, variable)
            pushes.append(push)
            averages.append((take, variable))
            prepares.append(prepare)
        with on(self._home):
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
            arrive = self._arrive(pushes, arrivals, last_arrival)
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
        with on(self._own):
            step = tf.placeholder(tf.int64, [], "step")
            ops = SyncOps(
                required=self._optimizer._required,
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
        """Builds the push of a gradient, its average, and the op that begins at the present step."""
        shared_name = f"sync_replicas/{variable.op.name}"
        if isinstance(gradient, tf.IndexedSlices):
            sums = tf.SparseConditionalAccumulator(
                gradient.dtype, shape=None, shared_name=shared_name, reduction_type="SUM"
            )
            counted = with_count_row(_in_rows(gradient, variable), variable, tf.constant(1.0))
            push = sums.apply_indexed_slices_grad(counted, local_step=self._stamp)
            average = mean_rows(sums.take_indexed_slices_grad(1), variable)
        else:
            sums = tf.ConditionalAccumulator(gradient.dtype, shape=variable.shape, shared_name=shared_name)
            push = sums.apply_grad(gradient, local_step=self._stamp)
            average = sums.take_grad(1)
        return push, average, sums.set_global_step(_value(self._global_step))

    def _arrive(
        self, pushes: Sequence[tf.Operation], arrivals: tf.FIFOQueue, last_arrival: tf.Variable
    ) -> tf.Operation:
        with tf.control_dependencies(pushes):
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
        if optimizer._averages is not None:
            with tf.control_dependencies(after):
                after = [step, optimizer._averages.apply(optimizer._to_average)]
        with tf.control_dependencies(after):
            given = [queue.enqueue(step) for queue in tokens]
        with tf.control_dependencies(given):
            return arrivals.dequeue_many(count)


def _no_op() -> tf.Operation:
    with tf.device(None):
        return tf.no_op()


def _value(global_step: tf.Variable) -> tf.Tensor:
    read = global_step.read_value() if isinstance(global_step, tf.Variable) else tf.identity(global_step)
    return tf.cast(read, tf.int64)


def _in_rows(gradient: tf.IndexedSlices, variable: tf.Variable) -> tf.IndexedSlices:
    """The same gradient, with one row of values for each index."""
    values = tf.reshape(gradient.values, [-1, *variable.shape.as_list()[1:]])
    return tf.IndexedSlices(values, tf.cast(gradient.indices, tf.int64))
