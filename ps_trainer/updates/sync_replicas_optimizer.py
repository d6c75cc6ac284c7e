"""`SyncReplicasOptimizer`: TensorFlow's class of that name, without the traps that its stock form has.

It keeps the parts of `tf.train.SyncReplicasOptimizer`. An accumulator for each variable drops gradients of an older
step. A step of the chief takes the average of R gradients, and applies it by the inner optimizer. The workers wait for
tokens with the new global_step. The class `SyncReplicas` of `sync_replicas.py` lists the lines that differ, and why.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.updates.gradient_sums import Value
from ps_trainer.updates.sync_replicas_accumulators import Accumulators, PsVariables

NO_UPDATE = -1
"""A token that lets a worker continue without an update."""

_VERBOSITY_LOCK = threading.Lock()


class SyncReplicasOptimizer(tf.train.SyncReplicasOptimizer):
    """Averages the gradients of `replicas_to_aggregate` workers, and applies the average by another optimizer.

    Args:
        opt: Optimizer that applies the averages. Its `apply_gradients` does not count the update.
        replicas_to_aggregate: Number of gradients of an update, at most `total_num_replicas`.
        total_num_replicas: Number of workers.
        ps_tasks: The ps tasks, in order.
        worker_index: Index of this worker.
        name: Prefix of the names of queue and accumulators.

    Attributes:
        required: Number of gradients that the next update waits for, int32 scalar placeholder of `sync_op`.
        stand_in_step: Value of global_step to which a stand-in belongs, int64 scalar placeholder of `stand_in_op`.
        sync_op: One update, which the chief runs in a loop in place of a queue runner: blocks until `required`
            gradients are there; returns the new global_step.
        stand_in_op: Gives the update at `stand_in_step` a gradient that does not count, in place of a worker that has
            none. It has no effect on another update.
        release_op: Gives every worker a token without an update.
        arrived_steps: For each ps task its global_step when the worker's gradients arrived there, int64 scalar.
        push_ops: Ops that put the worker's gradients into the accumulators; each step runs all of them.
    """

    def __init__(
        self,
        opt: tf.train.Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int,
        *,
        ps_tasks: Sequence[PsVariables],
        worker_index: int,
        name: str = "sync_replicas",
    ):
        with quiet_tensorflow():
            super().__init__(opt, replicas_to_aggregate, total_num_replicas, name=name)
        self._own_name = name
        self._worker_index = worker_index
        self._ps_tasks = ps_tasks
        self.required = tf.placeholder(tf.int32, [], f"{name}/required")
        self.stand_in_step = tf.placeholder(tf.int64, [], f"{name}/stand_in_step")
        self.arrived_steps: list[tf.Tensor] = []
        self.push_ops: list[tf.Operation] = []
        self.sync_op: tf.Tensor
        self.stand_in_op: tf.Operation
        self.release_op: tf.Operation

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[Value, tf.Variable]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Tensor:
        """Builds the worker's push and its wait, and the chief's ops.

        Args:
            grads_and_vars: Gradients, which have arrived on the devices of their variables.
            global_step: The run's global_step, on ps 0.
            name: Not used.

        Returns:
            The worker's token: global_step after an update later than its gradients' step, or `NO_UPDATE`. Int64
            scalar on ps 0.

        Raises:
            ValueError: `global_step` is missing.
        """
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        self._global_step = global_step
        gradients = {variable.ref(): value for value, variable in grads_and_vars}
        averages: list[tuple[Value, tf.Variable]] = []
        stand_ins, pushed, taken = [], [], []
        for index, task in enumerate(self._ps_tasks):
            with tf.device(task.device):
                values = [gradients[variable.ref()] for variable in task.variables]
                accumulators = Accumulators(f"{self._own_name}/ps_{index}", task.variables, values)
                self._accumulator_list += [(accumulator, task.device) for accumulator in accumulators.all]
                arrived_step, push_op = accumulators.push(values, task)
                self.arrived_steps.append(arrived_step)
                pushed.append(push_op)
                count, means = accumulators.take(self.required)
                taken.append(count.op)
                averages += zip(means, task.variables, strict=True)
                stand_ins.append(accumulators.stand_in(self.stand_in_step))
        self.push_ops = pushed
        self.stand_in_op = tf.group(*stand_ins)
        self.chief_init_op = self._build_chief_init()
        update_op = self._opt.apply_gradients(averages)
        queues = self._create_queues()
        self.sync_op = self._build_sync(update_op, taken, queues)
        with tf.device(global_step.device):
            self.release_op = tf.group(*(queue.enqueue(tf.constant(NO_UPDATE, tf.int64)) for queue in queues))
            self._gradients_applied = True
            with tf.control_dependencies([pushed[0]]):
                return self._build_wait(queues[self._worker_index], self._ps_tasks[0].local_step)

    def get_init_tokens_op(self, num_tokens: int = -1) -> tf.Operation:
        """Does not exist here: a token that no update has made would let a worker count twice in an update.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("this optimizer has no initial tokens")

    def get_chief_queue_runner(self) -> Any:
        """Does not exist here: the chief runs `sync_op` in a thread that ends with the run.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("the chief runs sync_op itself")

    def _create_queues(self) -> list[tf.FIFOQueue]:
        """Creates a queue of tokens for each worker; TensorFlow's class has one for all."""
        with tf.device(self._global_step.device):
            names = [f"{self._own_name}/sync_token_q_{worker}" for worker in range(self._total_num_replicas)]
            return [tf.FIFOQueue(-1, [tf.int64], shapes=[[]], name=name, shared_name=name) for name in names]

    def _build_chief_init(self) -> tf.Operation:
        """Builds the op that brings each accumulator to the step of its ps task, as after a restore."""
        ops = []
        steps = {task.device: task.global_step for task in self._ps_tasks}
        for accumulator, device in self._accumulator_list:
            with tf.device(device):
                ops.append(accumulator.set_global_step(steps[device].read_value()))
        return tf.group(*ops)

    def _build_sync(
        self, update_op: tf.Operation, taken: Sequence[tf.Operation], queues: Sequence[tf.FIFOQueue]
    ) -> tf.Tensor:
        """Builds the rest of the chief's step: counts the update, ps 0 last, and hands out the tokens."""
        counted = []
        for task in self._ps_tasks[1:]:
            with tf.device(task.device), tf.control_dependencies([update_op, *taken]):
                counted.append(task.global_step.assign_add(1, read_value=False))
        with tf.device(self._global_step.device):
            # A worker that sees the new global_step may read all parameters.
            with tf.control_dependencies([update_op, *taken, *counted]):
                last = self._global_step.assign_add(1, read_value=False)
            with tf.control_dependencies([last]):
                step = self._global_step.read_value()
            with tf.control_dependencies([queue.enqueue(step) for queue in queues]):
                return tf.identity(step)

    def _build_wait(self, queue: tf.FIFOQueue, local_step: tf.Tensor) -> tf.Tensor:
        """Builds the wait for a token of a later step than `local_step`.

        A late worker finds the tokens of the updates that were made without it. Each lets it continue once in
        TensorFlow's class. Here they are skipped. With an old token the worker would not wait for the update that its
        gradient is in, and would count in it again.
        """

        def is_old(token: tf.Tensor) -> tf.Tensor:
            return tf.logical_and(token <= local_step, tf.not_equal(token, NO_UPDATE))

        def take(token: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([token]):
                return queue.dequeue()

        return tf.while_loop(is_old, take, [queue.dequeue()], parallel_iterations=1)


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Hides the warning that the class is deprecated; the strategies that it names serve no parameter servers."""
    with _VERBOSITY_LOCK:
        verbosity = tf.logging.get_verbosity()
        tf.logging.set_verbosity(tf.logging.ERROR)
        try:
            yield
        finally:
            tf.logging.set_verbosity(verbosity)
