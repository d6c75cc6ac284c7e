"""`SyncReplicasOptimizer`: every update averages one gradient of each of several workers.

    worker   compute → gradient into each variable's accumulator → arrival → wait for this worker's next token
    chief    wait for R arrivals of this step → take the averages → inner optimizer, global_step + 1 → a token for each

It differs from `tf.train.SyncReplicasOptimizer` in these points:

* A token belongs to one worker, so no worker counts twice in an update. TensorFlow's tokens lie in one queue, from
  which a fast worker may take those of a slow one. Its hook adds R more tokens at the start.
* The chief waits for arrivals, so it can stop waiting for a worker that is lost. TensorFlow's chief waits inside of
  `take_grad`, and the job hangs.
* A sparse gradient is averaged over the gradients, as a dense one is. TensorFlow divides each row by the number of
  workers that have touched it. So a rare row gets a larger step than in the average of the losses.
* `replicas_to_aggregate` may not exceed `total_num_replicas`: a worker would have to count twice.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.errors import OptionError
from ps_trainer.store.ancestors import ancestors
from ps_trainer.tf1 import tasks
from ps_trainer.tf1.placement import device_scope
from ps_trainer.tf1.sync_ops import SyncBuilder, SyncOps
from ps_trainer.updates.sync_replicas_optimizer import quiet_tensorflow

# Not a graph collection: `export_meta_graph` would warn that it cannot write the object.
_of_graph: weakref.WeakKeyDictionary[tf.Graph, SyncReplicasOptimizer] = weakref.WeakKeyDictionary()


def of_graph(graph: tf.Graph) -> SyncReplicasOptimizer | None:
    """Returns the optimizer that has applied gradients in `graph`; None if there is none."""
    return _of_graph.get(graph)


class SyncReplicasOptimizer(tf.train.SyncReplicasOptimizer):
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
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        if not 1 <= replicas_to_aggregate <= total:
            raise OptionError(
                f"replicas_to_aggregate={replicas_to_aggregate}, total_num_replicas={total}: an update takes at least 1"
                " gradient, and at most one of each worker. For larger batches raise the batch size"
            )
        with quiet_tensorflow():
            super().__init__(
                opt, replicas_to_aggregate, total, variable_averages, variables_to_average, use_locking, name
            )
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
            OptionError: The process has no `Server` yet, `total_num_replicas` is not the number of workers, the graph
                has another `SyncReplicasOptimizer` already, or the update needs a placeholder.
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
        total, num_workers = self._total_num_replicas, task.cluster.num_workers
        if total != num_workers:
            raise OptionError(
                f"total_num_replicas={total}, but the cluster has {num_workers} workers; give"
                f" total_num_replicas={num_workers}"
            )
        with tf.name_scope(None, self._name):
            with device_scope(task.cluster.device):
                before = tf.no_op("before")  # runs after the ops of a surrounding `tf.control_dependencies`
            # Only the train op waits for those: the chief's own calls have no feeds, and begin before queue runners do.
            with tf.control_dependencies(None):
                self._ops, train_op = SyncBuilder(self, task, global_step).build(pairs, before, name)
        _check_feeds(self._ops)
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

    # Scripts with a `Supervisor` call these. The job itself begins the updates, so most of it does nothing.

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


def _check_feeds(ops: SyncOps) -> None:
    needed = (op for op in ancestors([ops.update]) if op.type == "Placeholder" and op is not ops.count.op)
    names = sorted(op.name for op in needed)
    if names:
        raise OptionError(
            f"the update depends on the placeholder{'s' * (len(names) > 1)} {', '.join(names)}, and the chief makes"
            " updates without a feed_dict; compute a learning rate from global_step (train.exponential_decay), or"
            " keep it in a tf.Variable"
        )


def _no_op() -> tf.Operation:
    with tf.device(None):
        return tf.no_op()
