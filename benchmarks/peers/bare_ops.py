"""A step of bare TensorFlow ops: what the engine allows for a workload, without anything of ps_trainer around it.

    python -m benchmarks.peers.bare_ops --ps_hosts=… --worker_hosts=… --job_name=worker --task_index=0 --workload=deep

The servers are those of ps_trainer, with the same settings. One flat variable on each ps task holds an even share of
the dense parameters. A step reads it, computes the workload's gradient and subtracts it, in one `session.run`. So one
tensor travels each way. Rows of tables lie on the first ps task. There is no clock, no staleness, no check, and no pull
ahead. `--no-compute` sends tensors of the same sizes and computes nothing. Without `--ps_hosts` the parameters are
colocated: each worker's own server holds such a share.
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
    parser.add_argument("--report_file")
    parser.add_argument("--losses_file")
    return parser.parse_args()


def _train(flags: argparse.Namespace, cluster: ClusterConfig, server: tf.train.Server) -> None:
    with tf.Graph().as_default(), tf.device(cluster.device):
        graph = BareGraph(flags.workload, cluster.ps_devices, flags.task_index)
        fetches = graph.build(computes=flags.compute)
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
            step = session.make_callable(fetches)
            for _ in range(flags.steps):
                loss, _ = step()
                report.count_step(loss)
    report.close()


class BareGraph:
    """The variables of a workload on the ps tasks, and a worker's step, in the default graph.

    Args:
        workload: Key of `PEER_WORKLOADS`.
        ps_devices: Device of each task that holds parameters.
        worker: Index of the worker.

    Attributes:
        init_op: Op that the first worker runs.
    """

    def __init__(self, workload: str, ps_devices: Sequence[str], worker: int):
        self._workload = workload
        self._ps_devices = ps_devices
        batch = peer_workloads.batch(workload, worker)
        dataset = tf.data.Dataset.from_tensors(batch).repeat()
        self._batch = tf.data.make_one_shot_iterator(dataset).get_next()
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

    def build(self, *, computes: bool) -> tuple[tf.Tensor, tf.Operation]:
        """Builds the loss and the update of a step.

        Args:
            computes: Whether the gradient is computed; otherwise a tensor of the same size travels in its place.
        """
        reads = []
        for variable in self._flat:
            with tf.device(variable.device):
                reads.append(variable.read_value())
        loss, row_gradients = self._build_loss(reads)
        if computes:
            gradients = tf.gradients(loss, reads) if reads else []
        else:
            # Of local variables, since a constant would be known to be the same in each step.
            gradients = [tf.Variable(tf.zeros(v.shape), collections=["local_variables"]).read_value() for v in reads]
        updates = [_subtract(variable, gradient) for variable, gradient in zip(self._flat, gradients, strict=True)]
        updates += [_subtract_rows(self._tables[name], slices) for name, slices in row_gradients.items()]
        if not computes:
            with tf.control_dependencies([tf.identity(read)[:1] for read in reads]):
                loss = tf.constant(0.0)
        return loss, tf.group(*updates)

    def _build_loss(self, reads: list[tf.Tensor]) -> tuple[tf.Tensor, dict[str, tf.IndexedSlices]]:
        sizes = [shape.num_elements() for _, shape, initial in self._specs if not isinstance(initial, tuple)]
        parts = iter(tf.split(tf.concat(reads, axis=0) if len(reads) > 1 else reads[0], sizes) if reads else ())
        values = {
            name: tf.reshape(next(parts), shape)
            for name, shape, initial in self._specs
            if not isinstance(initial, tuple)
        }
        loss = self._build_model(lambda name, shape, initial: {**values, **self._tables}[name])
        tables = list(self._tables)
        gradients = tf.gradients(loss, [self._tables[name] for name in tables]) if tables else []
        return loss, dict(zip(tables, gradients, strict=True))

    def _build_model(self, give: Callable[[str, tf.TensorShape, Any], Any]) -> tf.Tensor:
        def getter(getter: Any, name: str, shape: Any = None, **kwargs: Any) -> Any:
            is_table = layers.EMBEDDING_TABLES in (kwargs.get("collections") or ())
            initial = (kwargs["initializer"],) if is_table else kwargs["initializer"]
            return give(name, tf.TensorShape(shape), initial)

        with tf.variable_scope("", custom_getter=getter, reuse=tf.AUTO_REUSE):
            model = peer_models.PeerModel(peer_models.WorkloadOptions(workload=self._workload))
            return model.build(self._batch, training=True).loss

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
