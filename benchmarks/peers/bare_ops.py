"""A step of bare TensorFlow ops: what the engine allows for a workload, without anything of ps_trainer around it.

    python -m benchmarks.peers.bare_ops --ps_hosts=… --worker_hosts=… --job_name=worker --task_index=0 --workload=deep

The servers are those of ps_trainer, with the same settings. One flat variable on each ps task holds an even share of
the dense parameters. A step reads it, computes the workload's gradient and subtracts it, in one `session.run`. So one
tensor travels each way. Rows of tables lie on the first ps task. There is no clock, no staleness, no check, and no pull
ahead. `--no-compute` sends tensors of the same sizes and computes nothing. Without `--ps_hosts` the parameters are
colocated: each worker's own server holds such a share.

`--steps_per_call=K` makes K such steps in one `session.run`, by a `tf.while_loop`: what the engine allows where a call
holds several steps. Each round reads the parameters again, after its ps task has applied the round before. So a ps task
needs no request for a read, and one small message from the worker tells it that another round follows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

from ps_trainer.runtime import environment

environment.prepare(is_ps=False)

import tensorflow.compat.v1 as tf  # noqa: E402 - the environment comes first

from benchmarks import peer_models, peer_workloads  # noqa: E402
from benchmarks.peers.raw_socket import connect  # noqa: E402
from benchmarks.peers.step_reporter import StepReporter  # noqa: E402
from ps_trainer.cluster.config import ClusterConfig  # noqa: E402
from ps_trainer.config import TrainConfig  # noqa: E402
from ps_trainer.models import layers  # noqa: E402
from ps_trainer.models.layers import tables  # noqa: E402
from ps_trainer.runtime.server import create_server, session_config  # noqa: E402

_POLL_SECS = 0.05


def main() -> None:
    """Runs one task."""
    flags = _parse_flags()
    jobs = {"ps": flags.ps_hosts, "worker": flags.worker_hosts}
    cluster = ClusterConfig(
        jobs={name: tuple(hosts.split(",")) for name, hosts in jobs.items() if hosts},
        job_name=flags.job_name,
        task_index=flags.task_index,
        is_colocated=not flags.ps_hosts,
    )
    server = create_server(cluster, TrainConfig())
    if flags.job_name == "ps":
        server.join()
    else:
        _train(flags, cluster, server)


def _parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps_hosts", help="host:port,host:port,…; without it the workers hold the parameters")
    parser.add_argument("--worker_hosts", required=True, help="host:port,host:port,…")
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--task_index", required=True, type=int)
    parser.add_argument("--workload", default="deep", choices=list(peer_workloads.PEER_WORKLOADS))
    parser.add_argument("--compute", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--steps_per_call", type=int, default=1, help="steps in one call of the session, in a loop")
    parser.add_argument("--report_file")
    parser.add_argument("--losses_file")
    flags = parser.parse_args()
    if flags.steps < 1 or flags.steps_per_call < 1:
        parser.error(f"--steps={flags.steps} and --steps_per_call={flags.steps_per_call} must be at least 1")
    flags.steps_per_call = min(flags.steps_per_call, flags.steps)
    if flags.steps % flags.steps_per_call:
        parser.error(f"--steps={flags.steps} must be a multiple of --steps_per_call={flags.steps_per_call}")
    return flags


def _train(flags: argparse.Namespace, cluster: ClusterConfig, server: tf.train.Server) -> None:
    if flags.steps_per_call > 1:
        # The loop then consists of ops that each lie on the device which they are given; a `While` op has one device.
        tf.disable_control_flow_v2()
    with tf.Graph().as_default(), tf.device(cluster.device):
        graph = BareGraph(flags.workload, cluster.ps_devices, flags.task_index, cluster.device)
        fetches = graph.build(computes=flags.compute, steps_per_call=flags.steps_per_call)
        init_op, is_ready = graph.init_op, tf.reduce_all(tf.stack(graph.initialized()))
        local_init_op = tf.local_variables_initializer()
        config = session_config(cluster.device, cluster.ps_filters)
        report = StepReporter(flags.report_file, flags.losses_file)
        for address in cluster.ps_addresses:
            # TensorFlow itself would not wait for a task that starts later, with these settings.
            connect(int(address.rpartition(":")[2])).close()
        with tf.Session(server.target, config=config) as session:
            session.run(local_init_op)
            if flags.task_index == 0:
                session.run(init_op)
            while not session.run(is_ready):
                time.sleep(_POLL_SECS)
            call = session.make_callable(fetches)
            for _ in range(flags.steps // flags.steps_per_call):
                losses, *_ = call()
                report.count_steps(losses if flags.steps_per_call > 1 else [losses])
    report.close()


class BareGraph:
    """The variables of a workload on the ps tasks, and a worker's step, in the default graph.

    Args:
        workload: Key of `PEER_WORKLOADS`.
        ps_devices: Device of each task that holds parameters.
        worker: Index of the worker.
        worker_device: Device of the worker.

    Attributes:
        init_op: Op that the first worker runs.
    """

    def __init__(self, workload: str, ps_devices: Sequence[str], worker: int, worker_device: str):
        self._workload = workload
        self._ps_devices = ps_devices
        self._worker_device = worker_device
        batch = peer_workloads.batch(workload, worker)
        self._iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(batch).repeat())
        self._specs: list[tuple[str, tf.TensorShape, Any]] = []
        self._tables: dict[str, tf.Variable] = {}
        self._flat: list[tf.Variable] = []
        self._build_model(self._note)
        with tf.device(ps_devices[0]):
            for name, shape, initial in self._specs:
                if isinstance(initial, tuple):
                    self._tables[name] = self._variable(name, shape, initial[0])
        dense = [(shape, initial) for _, shape, initial in self._specs if not isinstance(initial, tuple)]
        if dense:
            # Computed on the first ps task: the values do not pass through the worker.
            with tf.device(ps_devices[0]):
                values = tf.concat([tf.reshape(initial(shape, tf.float32), [-1]) for shape, initial in dense], axis=0)
                parts = tf.split(values, self._shares(int(values.shape[0])))
            for ps, part in enumerate(parts):
                with tf.device(ps_devices[ps]):
                    self._flat.append(tf.Variable(part, name=f"flat{ps}", use_resource=True, trainable=False))
        self.init_op = tf.group(*(variable.initializer for variable in self._variables()))

    def initialized(self) -> list[tf.Tensor]:
        """Returns whether each variable has its value."""
        checks = []
        for variable in self._variables():
            with tf.device(variable.device):
                checks.append(tf.raw_ops.VarIsInitializedOp(resource=variable.handle))
        return checks

    def build(self, *, computes: bool, steps_per_call: int = 1) -> tuple[tf.Tensor, ...]:
        """Builds a call.

        Args:
            computes: Whether the gradient is computed; otherwise a tensor of the same size travels in its place.
            steps_per_call: Number of steps; above 1 a loop makes them.

        Returns:
            The loss, float32 scalar, or in a loop the losses, float32 [steps_per_call]; and the ops to run.
        """
        # Of local variables, since a constant would be known to be the same in each step.
        sent = None
        if not computes:
            sent = [tf.Variable(tf.zeros(v.shape), collections=["local_variables"]) for v in self._flat]
        if steps_per_call == 1:
            loss, updates = self._build_step(sent)
            return loss, tf.group(*(op for ops in updates for op in ops))
        return self._build_loop(sent, steps_per_call)

    def _build_loop(self, sent: Sequence[tf.Variable] | None, num_steps: int) -> tuple[tf.Tensor, ...]:
        """Builds a loop of steps. On each ps task a value passes through it, which orders the steps there."""
        holders = self._ps_devices[: len(self._flat) or 1]
        values = []
        for device in holders:
            with tf.device(device):
                values.append(tf.constant(0.0))

        def make_step(number: tf.Tensor, losses: tf.Tensor, *begun: tf.Tensor) -> list[tf.Tensor]:
            with tf.device(self._worker_device):
                loss, updates = self._build_step(sent, begun)
                losses = tf.concat([losses[1:], tf.reshape(loss, [1])], axis=0)
                losses.set_shape([num_steps])
                following = [number + 1, losses]
            for device, value, ops in zip(holders, begun, updates, strict=False):
                with tf.device(device), tf.control_dependencies(ops):
                    following.append(tf.identity(value))
            return following

        first = [tf.constant(0), tf.zeros([num_steps]), *values]
        with tf.device(_beside_input):
            # One round at a time: a gradient that does not depend on the parameters, as in `scalar`, would run ahead.
            _, losses, *ended = tf.while_loop(
                lambda number, *_: number < num_steps, make_step, first, parallel_iterations=1
            )
        return losses, *(value.op for value in ended)

    def _build_step(
        self, sent: Sequence[tf.Variable] | None, begun: Sequence[tf.Tensor] = ()
    ) -> tuple[tf.Tensor, list[list[tf.Operation]]]:
        """Builds the loss of a step, and its updates on each ps task.

        Args:
            sent: Local variables that travel in place of the gradients; None if these are computed.
            begun: In a loop the tensor of each ps task after which the step begins there.
        """
        # In a loop, what an update follows on its ps task: a gradient need not depend on what the step has read. And a
        # constant that follows nothing else would wait for a message of the worker.
        before = [[value] for value in begun] or [[] for _ in self._ps_devices]
        reads = []
        for ps, variable in enumerate(self._flat):
            with tf.device(variable.device), tf.control_dependencies(begun[ps : ps + 1]):
                reads.append(variable.read_value())
            before[ps] += reads[-1:] if begun else []
        loss, row_gradients = self._build_loss(reads, before[0])
        if sent is None:
            gradients = tf.gradients(loss, reads) if reads else []
        else:
            gradients = [variable.read_value() for variable in sent]
        updates: list[list[tf.Operation]] = [[] for _ in self._ps_devices]
        for ps, (variable, gradient) in enumerate(zip(self._flat, gradients, strict=True)):
            with tf.control_dependencies(before[ps]):
                updates[ps].append(_subtract(variable, gradient))
        for name, slices in row_gradients.items():
            with tf.control_dependencies(before[0]):
                updates[0].append(_subtract_rows(self._tables[name], slices))
        if sent is not None:
            with tf.control_dependencies([tf.identity(read)[:1] for read in reads]):
                loss = tf.constant(0.0)
        return loss, updates

    def _build_loss(
        self, reads: list[tf.Tensor], before: list[tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.IndexedSlices]]:
        """Builds the loss and the gradients of rows. In a loop, look-ups follow `before`, and are added to it."""
        sizes = [shape.num_elements() for _, shape, initial in self._specs if not isinstance(initial, tuple)]
        parts = iter(tf.split(tf.concat(reads, axis=0) if len(reads) > 1 else reads[0], sizes) if reads else ())
        values = {
            name: tf.reshape(next(parts), shape)
            for name, shape, initial in self._specs
            if not isinstance(initial, tuple)
        }
        if before:
            begun = before[:1]

            def look_up(table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
                with tf.device(table.device), tf.control_dependencies(begun):
                    rows = table.sparse_read(ids)
                before.append(rows)
                # The gradient asks for the shape of the rows, which would be a message.
                return tf.identity(rows)

            tf.add_to_collection(tables.TABLE_LOOKUP, look_up)
        loss = self._build_model(lambda name, shape, initial: {**values, **self._tables}[name])
        gradients = tf.gradients(loss, list(self._tables.values())) if self._tables else []
        return loss, dict(zip(self._tables, gradients, strict=True))

    def _build_model(self, give: Callable[[str, tf.TensorShape, Any], Any]) -> tf.Tensor:
        def getter(getter: Any, name: str, shape: Any = None, **kwargs: Any) -> Any:
            is_table = layers.EMBEDDING_TABLES in (kwargs.get("collections") or ())
            initial = (kwargs["initializer"],) if is_table else kwargs["initializer"]
            return give(name, tf.TensorShape(shape), initial)

        with tf.variable_scope("", custom_getter=getter, reuse=tf.AUTO_REUSE):
            model = peer_models.PeerModel(peer_models.WorkloadOptions(workload=self._workload))
            return model.build(self._iterator.get_next(), training=True).loss

    def _note(self, name: str, shape: tf.TensorShape, initial: Any) -> Any:
        self._specs.append((name, shape, initial))
        return tf.zeros(shape) if not isinstance(initial, tuple) else tf.zeros([1, shape[-1]])

    def _shares(self, size: int) -> list[int]:
        count = len(self._ps_devices)
        return [size * (ps + 1) // count - size * ps // count for ps in range(count)]

    def _variable(self, name: str, shape: tf.TensorShape, initial: Any) -> tf.Variable:
        return tf.Variable(
            lambda: initial(shape, tf.float32), name=name, shape=shape, use_resource=True, trainable=False
        )

    def _variables(self) -> list[tf.Variable]:
        return [*self._flat, *self._tables.values()]


def _beside_input(op: tf.Operation) -> str:
    """Returns the device of an op of the loop itself: that of its first input, so that no value changes its task."""
    return op.device or (op.inputs[0].device if op.inputs else "")


def _subtract(variable: tf.Variable, gradient: tf.Tensor) -> tf.Operation:
    with tf.device(variable.device):
        rate = tf.constant(peer_workloads.LEARNING_RATE)
        return tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)


def _subtract_rows(table: tf.Variable, slices: tf.IndexedSlices) -> tf.Operation:
    with tf.device(table.device):
        values = tf.identity(slices.values) * peer_workloads.LEARNING_RATE
        return tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=tf.identity(slices.indices), updates=values)


if __name__ == "__main__":
    main()
