"""`Sessions`: opens a worker's TensorFlow sessions. Here on its server; `alone_sessions.py` needs no server."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import WorkerGroup
from ps_trainer.config import TrainConfig
from ps_trainer.runtime.server import session_config
from ps_trainer.training.components import Components
from ps_trainer.training.train_graph import TrainGraph

STOP_GRACE_SECS = 5
"""Longest wait for threads of the session's coordinator at the end; TensorFlow's default is 120 s."""


class Sessions(abc.ABC):
    """Opens sessions on the graphs of one worker."""

    @abc.abstractmethod
    def open_plain(self, train: TrainGraph) -> tf.Session:
        """Returns a session whose calls have no deadline."""

    @abc.abstractmethod
    def open_bounded(self, train: TrainGraph) -> tf.Session:
        """Returns a session each call of which has a deadline, for a thread beside the steps."""

    @abc.abstractmethod
    def open_monitored(self, train: TrainGraph) -> tf.train.MonitoredSession:
        """Returns the session of the steps, with the user's hooks. It does not initialise, restore or save anything."""

    @abc.abstractmethod
    def open_worker_only(self, train: TrainGraph, build: Callable[[], Any]) -> tuple[tf.Session, Any]:
        """Builds ops on this worker, and opens a session for them that needs no other task.

        Args:
            train: Graph of the steps; the ops may lie in it or in a separate graph.
            build: Function that builds the ops.

        Returns:
            The session, and what `build` has returned.
        """

    @abc.abstractmethod
    def read_after_steps(self, variables: Sequence[tf.Variable]) -> list[np.ndarray]:
        """Reads variables of this worker after the session of the steps has ended, maybe because of an error.

        Raises:
            tf.errors.OpError: They cannot be read any more.
        """

    def close(self) -> None:  # noqa: B027 - the server's sessions are closed by those who have opened them
        """Ends what outlives the sessions; called once, when the worker ends."""


class ServerSessions(Sessions):
    """Sessions on the server of a cluster's task, which keeps the worker's variables when a session is closed.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run.
        components: Components of the run, with the user's hooks.
        group: Group of this worker, with the devices that compute stages for it.
        target: Target of this task's server.
    """

    def __init__(
        self, cluster: ClusterConfig, config: TrainConfig, components: Components, group: WorkerGroup, target: str
    ):
        self._target = target
        self._own_config = session_config(cluster.device, peers=())
        self._cluster = cluster
        self._config = config
        self._hooks = components.hooks
        self._group = group

    def open_plain(self, train: TrainGraph) -> tf.Session:
        return tf.Session(self._target, graph=train.graph, config=self._session_config(train))

    def open_bounded(self, train: TrainGraph) -> tf.Session:
        config = session_config(self._cluster.device, self._peers(train), self._config.heartbeat_timeout_secs)
        # Uses the loopback address, since only other machines may be able to reach the task's own address.
        return tf.Session(f"grpc://localhost:{self._cluster.own_port}", graph=train.graph, config=config)

    def open_monitored(self, train: TrainGraph) -> tf.train.MonitoredSession:
        return tf.train.MonitoredTrainingSession(
            master=self._target,
            is_chief=self._cluster.is_chief,
            checkpoint_dir=None,
            scaffold=train.scaffold,
            hooks=[hook() for hook in self._hooks],
            # Each hook of TensorFlow's own would add a fetch to every step.
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
            config=self._session_config(train),
            # TensorFlow gives up at once when less than its `recovery_wait_secs`, 30 s, of this time are left.
            max_wait_secs=int(self._config.start_timeout_secs) + 31,
            stop_grace_period_secs=STOP_GRACE_SECS,
        )

    def open_worker_only(self, train: TrainGraph, build: Callable[[], Any]) -> tuple[tf.Session, Any]:
        return open_alone(self._target, self._own_config, build)

    def read_after_steps(self, variables: Sequence[tf.Variable]) -> list[np.ndarray]:
        # By name, in a graph without the other tasks: one of them may be lost.
        build = lambda: [_read_by_name(variable) for variable in variables]  # noqa: E731 - passed on once
        session, reads = open_alone(self._target, self._own_config, build)
        with session:
            return session.run(reads)

    def _session_config(self, train: TrainGraph) -> tf.ConfigProto:
        return session_config(self._cluster.device, self._peers(train), grappler=self._config.grappler)

    def _peers(self, train: TrainGraph) -> tuple[str, ...]:
        """Returns the device filters of the other tasks that hold a part of the graph.

        A worker without a share of colocated parameters is none of them. A session waits for all of its tasks when it
        is opened and when it is closed, and such a worker may be lost.
        """
        if not self._cluster.is_colocated:
            return (*self._cluster.ps_filters, *self._group.devices)
        holders = self._cluster.ps_tasks[: train.store.num_ps]
        return tuple(f"/job:{job}/task:{index}" for job, index in holders)


def open_alone(target: str, config: tf.ConfigProto, build: Callable[[], Any]) -> tuple[tf.Session, Any]:
    """Builds ops in a separate graph, and opens a session on it; returns session and ops."""
    with tf.Graph().as_default() as graph:
        built = build()
    return tf.Session(target, graph=graph, config=config), built


def _read_by_name(variable: tf.Variable) -> tf.Tensor:
    """Reads a variable of another graph; the server keeps it under the same container and name."""
    handle_op = variable.handle.op
    with tf.device(variable.device):
        handle = tf.raw_ops.VarHandleOp(
            dtype=variable.dtype.base_dtype,
            shape=variable.shape,
            container=handle_op.get_attr("container"),
            shared_name=handle_op.get_attr("shared_name"),
        )
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype.base_dtype)
