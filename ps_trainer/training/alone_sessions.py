"""`AloneSessions`: the sessions of a process that trains alone, without a server.

Without a server, TensorFlow's variables belong to a session and end with it. So there is one session (`_StateSession`)
for setting up, steps and saving, and each of them gets an object that does not end it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.runtime.server import process_config
from ps_trainer.training.components import Components
from ps_trainer.training.sessions import STOP_GRACE_SECS, Sessions
from ps_trainer.training.train_graph import TrainGraph


class AloneSessions(Sessions):
    """Sessions of a process that trains alone.

    Args:
        cluster: Configuration of the process.
        config: Settings of the run.
        components: Components of the run, with the user's hooks.
    """

    def __init__(self, cluster: ClusterConfig, config: TrainConfig, components: Components):
        self._hooks = components.hooks
        # As in a cluster, so that the same kernels run.
        self._session_config = process_config(cluster, config)
        self._session_config.graph_options.rewrite_options.disable_meta_optimizer = not config.grappler
        self._opened: _StateSession | None = None

    def open_plain(self, train: TrainGraph) -> tf.Session:
        return _Borrowed(self._session_of(train))

    def open_bounded(self, train: TrainGraph) -> tf.Session:
        """Opens a session as `open_plain` does: no other task can keep a call waiting."""
        return self.open_plain(train)

    def open_monitored(self, train: TrainGraph) -> tf.train.MonitoredSession:
        return tf.train.MonitoredSession(
            session_creator=_Steps(self._session_of(train), train.scaffold),
            hooks=[hook() for hook in self._hooks],
            stop_grace_period_secs=STOP_GRACE_SECS,
        )

    def open_worker_only(self, train: TrainGraph, build: Callable[[], Any]) -> tuple[tf.Session, Any]:
        with train.graph.as_default():
            built = build()
        return self.open_plain(train), built

    def read_after_steps(self, variables: Sequence[tf.Variable]) -> list[np.ndarray]:
        return self._opened.run(list(variables)) if self._opened is not None else []

    def close(self) -> None:
        if self._opened is not None:
            self._opened.end()

    def _session_of(self, train: TrainGraph) -> _StateSession:
        if self._opened is None or self._opened.graph is not train.graph:
            self.close()
            self._opened = _StateSession(train.graph, self._session_config)
        return self._opened


def use_threads(cluster: ClusterConfig, config: TrainConfig) -> None:
    """Sets the numbers of threads of this process, before the first session or dataset.

    TensorFlow takes them from whatever comes first. With other threads a product of large matrices is summed in another
    order, and its last bit differs. A process in which TensorFlow computes already keeps its threads.
    """
    threads = process_config(cluster, config)
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(threads.intra_op_parallelism_threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads.inter_op_parallelism_threads)


class _StateSession(tf.Session):
    """The session that holds the state of the run.

    `close` does not end it at the end of the steps. But a stop request closes it from another thread, to end a call
    that blocks, such as a wait for data. TensorFlow can cancel a call only by the end of its session. Then the values
    of all variables move to a new session, from which the chief saves its last checkpoint.
    """

    def __init__(self, graph: tf.Graph, config: tf.ConfigProto):
        super().__init__("", graph=graph, config=config)
        self._own_config = config
        self._stepping_thread: int | None = None
        self._successor: tf.Session | None = None
        self._lock = threading.Lock()
        with graph.as_default():
            variables = [*tf.global_variables(), *tf.local_variables()]
            self._assigns = [(variable, *_assign_of(variable)) for variable in variables]

    def begin_steps(self) -> None:
        """Notes that this thread makes the steps, until it calls `close`."""
        self._stepping_thread = threading.get_ident()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        if self._successor is not None:
            return self._successor.run(*args, **kwargs)
        return super().run(*args, **kwargs)

    def close(self) -> None:
        """Ends the steps; from another thread while steps are made: cancels all calls, and moves the variables."""
        if threading.get_ident() == self._stepping_thread:
            self._stepping_thread = None
        elif self._stepping_thread is not None:
            with self._lock:
                if self._successor is None:
                    self._move()

    def end(self) -> None:
        """Ends the session for good."""
        super().close()
        if self._successor is not None:
            self._successor.close()

    def _move(self) -> None:
        successor = tf.Session("", graph=self.graph, config=self._own_config)
        for variable, value, assign_op in self._assigns:
            with contextlib.suppress(tf.errors.FailedPreconditionError):  # one without a value yet
                successor.run(assign_op, {value: super().run(variable)})
        self._successor = successor
        super().close()


class _Borrowed:
    """The session of the state, for users who close what they have opened; here the state stays."""

    def __init__(self, session: _StateSession):
        self.graph = session.graph
        self.run = session.run
        self.make_callable = session.make_callable
        self._session = session
        self._entered = contextlib.ExitStack()

    def close(self) -> None:
        """Does nothing."""

    def __enter__(self) -> _Borrowed:
        self._entered.enter_context(self.graph.as_default())
        self._entered.enter_context(self._session.as_default())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.close()


class _Steps(tf.train.SessionCreator):
    """Prepares the session of the state for the steps, as `tf.train.ChiefSessionCreator` prepares a new session."""

    def __init__(self, session: _StateSession, scaffold: tf.train.Scaffold):
        self._session = session
        self._scaffold = scaffold

    def create_session(self) -> tf.Session:
        self._scaffold.finalize()
        self._session.run(self._scaffold.local_init_op)
        self._session.begin_steps()
        return self._session


def _assign_of(variable: tf.Variable) -> tuple[tf.Tensor, tf.Operation]:
    """Returns a placeholder of the variable's shape, and the op that assigns it to the variable."""
    with tf.device(variable.device):
        value = tf.placeholder(variable.dtype.base_dtype, variable.shape)
        return value, variable.assign(value, read_value=False)
