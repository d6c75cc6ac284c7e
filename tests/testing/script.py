"""Scripted arrival order on a real in-process cluster: which worker's gradient is pushed when.

    with InProcessCluster(1, 2) as cluster, Turnstile(cluster) as gate:
        gate.start(config)  # its model is `Linear` or `EmbeddedLinear`, built inside the turnstile
        gate.play([0, 1, 1, 0])
        gate.values()  # the parameters on the ps tasks, while every worker stands at the gate

The gate is in the model's forward pass: a worker arrives there with its batch and the parameters' values, and computes
loss and gradient behind it. A wait at the gate takes no thread, because it is a queue's dequeue. All servers of a
process share one pool of threads, which blocking workers would use up.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from models import layers
from models.layers import ModelOutput
from ps_trainer.config import TrainConfig
from ps_trainer.runtime.server import session_config
from ps_trainer.store import extents
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.trace import trace
from tests.testing.cluster import InProcessCluster, load_once, wait_until
from tests.testing.components import NUM_CLASSES, VOCAB_SIZE, RowOptions, Rows

DEADLINE_SECS = 120.0
TABLE_DIM = 4


class Linear:
    """Softmax regression on "x": `kernel` [6, 4] and `bias` [4]. Its NumPy form is `oracles.linear`."""

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> ModelOutput:
        kernel, bias = _get_kernel_and_bias(batch["x"])
        x_BF, kernel, bias = behind_gate(batch, training, [batch["x"], kernel, bias])
        return layers.classifier_output(tf.nn.bias_add(tf.matmul(x_BF, kernel), bias), batch["label"])


class EmbeddedLinear:
    """Softmax regression on "x" and the mean of embedded "ids". Its NumPy form is `oracles.embedded_linear`."""

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> ModelOutput:
        rows_BND = layers.embedding("table", VOCAB_SIZE, TABLE_DIM, batch["ids"])
        features_BF = tf.concat([tf.reduce_mean(rows_BND, axis=1), batch["x"]], axis=1)
        kernel, bias = _get_kernel_and_bias(features_BF)
        features_BF, kernel, bias = behind_gate(batch, training, [features_BF, kernel, bias])
        return layers.classifier_output(tf.nn.bias_add(tf.matmul(features_BF, kernel), bias), batch["label"])


class Turnstile:
    """Lets the steps of a cluster's workers pass in the order of the test.

    Models that are built inside its context have its gate; only one turnstile exists at a time. Leaving the context
    opens the gate. Every wait ends with an AssertionError after `DEADLINE_SECS`, or when a worker has failed.

    Args:
        cluster: Cluster whose workers follow the script.
    """

    active: Turnstile | None = None
    _numbers = itertools.count()

    def __init__(self, cluster: InProcessCluster):
        # A container's name may consist of letters, digits, dots, dashes and slashes.
        self.name = f"turnstile-{next(self._numbers)}"
        self.calls: dict[int, Any] = {}
        self._cluster = cluster
        self._num_arrived = [0] * cluster.num_workers
        self._is_open = False
        self._lock = threading.Lock()
        self._sessions: dict[int, tuple[tf.Session, tf.Operation]] = {}
        self._readers: dict[tuple[Any, ...], tuple[tf.Session, list[tf.Tensor]]] = {}
        self._store: ParameterStore | None = None

    def start(self, config: TrainConfig, workers: Sequence[int] | None = None, **overrides: Any) -> list[Any]:
        """Starts the given workers (default: all) in threads, and keeps their calls in `calls`."""
        shared = overrides.pop("components", None) or load_once(config, self._cluster.num_workers)
        for worker in range(self._cluster.num_workers) if workers is None else workers:
            components = shared if worker else shared._replace(layout=self._noting(shared.layout))
            self.calls[worker] = self._cluster.start(config, worker, components=components, **overrides)
        return list(self.calls.values())

    def play(self, script: Sequence[int], present: Sequence[int] | None = None) -> None:
        """Lets one worker after the other make one step; returns when the last step is over.

        A step is over when it is recorded and its worker is at the gate again or has ended. So only one worker moves in
        each entry. It suits only rules in which a step does not need another worker's step.

        Args:
            script: Worker of each step.
            present: Workers that must have arrived at the gate before the first step; None means all that were started.
                A rule that lets a worker begin late needs fewer.
        """
        for worker in self.calls if present is None else present:
            self.wait_arrived(worker, 1)
        for worker in script:
            arrived, steps = self._num_arrived[worker], self.steps(worker)
            self.release(worker)
            self.wait_steps(worker, steps + 1)
            self.wait_arrived(worker, arrived + 1, or_ended=True)

    def release(self, worker: int) -> None:
        """Lets `worker` pass once, now or when it arrives; returns at once."""
        if worker not in self._sessions:
            self._sessions[worker] = self._open_session(worker)
        session, enqueue_op = self._sessions[worker]
        session.run(enqueue_op)

    def steps(self, worker: int) -> int:
        """Completed steps of `worker`."""
        return len(self.calls[worker].made[-1].losses)

    def wait_steps(self, worker: int, count: int) -> None:
        """Waits until `worker` has completed `count` steps."""
        self._wait(lambda: self.steps(worker) >= count, f"worker {worker} has made {count} steps")

    def wait_arrived(self, worker: int, count: int, *, or_ended: bool = False) -> None:
        """Waits until `worker` has arrived at the gate `count` times: its previous step is over, and it has pulled."""

        def has_come() -> bool:
            ended = or_ended and not self.calls[worker].worker._stall_watch.is_watching
            return self._num_arrived[worker] >= count or ended

        self._wait(has_come, f"worker {worker} has come to the gate {count} times")

    def values(self) -> dict[str, np.ndarray]:
        """The model's variables and "global_step" on the ps tasks now, by name; worker 0 must have started."""
        store = self._store
        *pieces, step = self.read([*(piece.variable for piece in store.pieces), store.clocks[0]])
        parts = [(piece.extents, value) for piece, value in zip(store.pieces, pieces, strict=True)]
        return extents.from_pieces(store.specs, parts) | {"global_step": step}

    def clocks(self) -> list[int]:
        """The number of updates that each ps task has applied; worker 0 must have started."""
        return [int(clock) for clock in self.read(self._store.clocks)]

    def read(self, variables: Sequence[tf.Variable]) -> list[np.ndarray]:
        """The values of ps variables now. Tests poll them, so their graph and session are kept for the next call."""
        key = tuple(variable.ref() for variable in variables)
        if key not in self._readers:
            with tf.Graph().as_default():
                reads = [_read_of(variable) for variable in variables]
                self._readers[key] = (self._session(0, "/job:ps"), reads)
        session, reads = self._readers[key]
        return session.run(reads)

    @property
    def num_ps(self) -> int:
        """Number of ps tasks."""
        return self._cluster.num_ps

    def count_accumulated(self, names: Sequence[str]) -> np.ndarray:
        """The number of gradients in the counting accumulator of each ps task, by the names of the accumulators."""
        container = self.calls[0].worker._current_run.run_id
        key = ("accumulated", container)
        if key not in self._readers:
            counts = []
            with tf.Graph().as_default() as graph, graph.container(container):
                for ps, name in enumerate(names):
                    with tf.device(f"/job:ps/task:{ps}"):
                        same = tf.ConditionalAccumulator(tf.float32, [], shared_name=name, reduction_type="SUM")
                        counts.append(same.num_accumulated())
                self._readers[key] = (self._session(0, "/job:ps"), counts)
        session, counts = self._readers[key]
        return np.array(session.run(counts))

    def open(self) -> None:
        """Lets all workers pass from now on."""
        with self._lock:
            self._is_open = True
        for worker in self.calls:
            self.release(worker)

    def build_gate(self, worker_B: tf.Tensor, after: Sequence[tf.Tensor]) -> tf.Operation:
        """The op in a model's graph at which a worker waits once it has computed `after`."""
        with tf.control_dependencies(after):
            num_tokens = tf.numpy_function(self._arrive, [worker_B[0]], tf.int32)
        return _tokens(self.name).dequeue_many(num_tokens).op

    def __enter__(self) -> Turnstile:
        assert Turnstile.active is None
        Turnstile.active = self
        return self

    def __exit__(self, *_: Any) -> None:
        Turnstile.active = None
        self.open()
        for session, _ in [*self._sessions.values(), *self._readers.values()]:
            session.close()

    def _arrive(self, worker: np.int64) -> np.int32:
        with self._lock:
            self._num_arrived[worker] += 1
            return np.int32(0 if self._is_open else 1)

    def _wait(self, condition: Callable[[], bool], wish: str) -> None:
        def holds() -> bool:
            errors = [call.error for call in self.calls.values() if call.error is not None]
            if errors:
                raise AssertionError(f"a worker failed before {wish}") from errors[0]
            return condition()

        try:
            wait_until(holds, DEADLINE_SECS)
        except AssertionError as error:
            steps = {worker: self.steps(worker) for worker in self.calls}
            raise AssertionError(f"{wish}: {error}; steps {steps}, arrivals {self._num_arrived}") from error

    def _noting(self, layout: Callable[..., ParameterStore]) -> Callable[..., ParameterStore]:
        def create(*args: Any, **kwargs: Any) -> ParameterStore:
            self._store = layout(*args, **kwargs)
            return self._store

        return create

    def _open_session(self, worker: int) -> tuple[tf.Session, tf.Operation]:
        with tf.Graph().as_default():
            with tf.device(self._cluster.task("worker", worker).device):
                enqueue_op = _tokens(self.name).enqueue([True])
            return self._session(worker), enqueue_op

    def _session(self, worker: int, *peers: str) -> tf.Session:
        task = self._cluster.task("worker", worker)
        return tf.Session(f"grpc://{task.own_address}", config=session_config(task.device, peers))


def initial_values(model: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """A cluster's parameters before the first step of `model` with that seed, by name."""
    batch = worker_batch(0, 1, 1, 0)

    def build() -> None:
        model.build({name: tf.placeholder(value.dtype, value.shape) for name, value in batch.items()}, training=False)

    return trace(build, seed).initial_values()


def worker_batch(worker: int, num_workers: int, batch_size: int, step: int) -> dict[str, np.ndarray]:
    """The batch of `Rows` (with its default options) that `worker` reads in its step number `step`, from 0."""
    arrays = Rows(RowOptions()).arrays
    own = np.arange(worker, len(arrays["label"]), num_workers)
    picked = own[np.arange(step * batch_size, (step + 1) * batch_size) % len(own)]
    return {name: array[picked] for name, array in arrays.items()}


def _get_kernel_and_bias(features_BF: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    num_features = int(features_BF.shape[1])
    kernel = tf.get_variable("kernel", [num_features, NUM_CLASSES], initializer=tf.glorot_uniform_initializer())
    bias = tf.get_variable("bias", [NUM_CLASSES], initializer=tf.zeros_initializer())
    return tf.convert_to_tensor(kernel), tf.convert_to_tensor(bias)


def behind_gate(batch: Mapping[str, tf.Tensor], training: bool, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """`values` as seen behind the gate: no op that depends on them runs before the gate opens."""
    if Turnstile.active is None or not training:
        return list(values)
    with tf.control_dependencies([Turnstile.active.build_gate(batch["worker"], values)]):
        return [tf.identity(value) for value in values]


def _tokens(name: str) -> tf.FIFOQueue:
    """The queue of tokens that let a worker pass, on the device of the scope; it is not in the run's container."""
    with tf.get_default_graph().container(name):
        return tf.FIFOQueue(-1, [tf.bool], shapes=[[]], shared_name=name)


def _read_of(variable: tf.Variable) -> tf.Tensor:
    """A read op, in the default graph, of a variable of another graph."""
    handle = variable.handle.op
    with tf.device(variable.device):
        same = tf.raw_ops.VarHandleOp(
            dtype=variable.dtype.base_dtype,
            shape=variable.shape,
            shared_name=handle.get_attr("shared_name").decode(),
            container=handle.get_attr("container").decode(),
        )
        return tf.raw_ops.ReadVariableOp(resource=same, dtype=variable.dtype.base_dtype)
