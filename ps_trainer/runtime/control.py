"""The control plane: a few strings and a queue on every ps task, by which the tasks of a job find each other.

Every ps task holds, in a container of its own that no training session touches:

    hello    who the ps task is: version, its index, the cluster's size      written by the ps at its start
    run      the run in progress: id, key, status, settings                  written by the chief, on ps 0
    roster   for the run: what each worker said last                         written by the ps
    leases   what ps 0 gave each worker of the data (`shard_leases.py`)          written by the ps
    notice   why the job has to end, when this ps was told to (SIGTERM)      written by the ps
    mail     queue of what workers say: joined, training, lease, done …    read by the ps

All but the queue are JSON, and `messages.py` says what is in it. A client (`PsControl`) is a session on the ps
task itself: it needs no server of its own, and each of its calls has a deadline.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

import ps_trainer
from ps_trainer.cluster import network
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.runtime import messages, task_info
from ps_trainer.runtime.messages import (  # noqa: F401 - here for those who talk over the control plane
    ALIVE,
    DONE,
    ENDED,
    FAILED,
    FINAL,
    INTERRUPTED,
    JOINED,
    LEASE,
    LOST,
    READY,
    STARTING,
    TRAINING,
)

CONTAINER = "ps-trainer"  # TensorFlow takes no underscore here

_FIELDS = ("hello", "run", "roster", "notice", "leases")


class PsState(NamedTuple):
    """What a ps task's control plane says; each a dict, empty where nothing was said.

    Attributes:
        hello: {"version", "ps", "num_ps", "num_workers", "incarnation"}; the last is new each time the ps starts.
        run: {"run_id", "key", "status", "agreement", "partners", "ps", "start", "reached", "failure"}: "partners" are
            circles of worker indices that send tensors to each other, once it is ready, "ps" holds the incarnations on
            which the run's state lies, "start" how it came there, {"step", "how"}, once it has, "reached" in words that
            its target metric is reached, "failure", once it has ended, how it failed; empty if it is done.
        roster: {"run_id", "workers": {"<index>": {"status", "reason", "error", "summary"}}}.
        notice: {"reason"}.
        leases: of the run, {"<worker>": {"<kind>": {"request", "lease", "generation"}}}: the answers to a worker's last
            questions.
    """

    hello: dict[str, Any]
    run: dict[str, Any]
    roster: dict[str, Any]
    notice: dict[str, Any]
    leases: dict[str, Any] = MappingProxyType({})


class ControlGraph:
    """The control plane of one ps task as a graph.

    It names no device, so it is that of the task whose session runs it: whoever serves at an address tells
    of itself, even where the address was given for another task.
    """

    def __init__(self):
        self.graph = tf.Graph()
        with self.graph.as_default(), self.graph.container(CONTAINER):
            variables = {
                name: tf.get_variable(
                    f"control/{name}", [], tf.string, initializer=tf.constant_initializer("{}"), use_resource=True
                )
                for name in _FIELDS
            }
            self.init_op = tf.group(*(variable.initializer for variable in variables.values()))
            self.read = [variable.read_value() for variable in variables.values()]
            self.value = tf.placeholder(tf.string, [])
            self.write = {name: v.assign(self.value, read_value=False) for name, v in variables.items()}
            mail = tf.FIFOQueue(-1, [tf.string], [()], shared_name="control/mail")
            self.send = mail.enqueue(self.value)
            self.receive = mail.dequeue()


class PsControl:
    """A client of one ps task's control plane. Its methods may be called from any thread.

    Args:
        address: "host:port" of the ps task.
        ps: its index.
        call_timeout_secs: deadline of each call.
        patience_secs: for how long a call that is to be patient is repeated, where the ps task is too slow for that.

    All methods raise `tf.errors.OpError` when the ps task does not answer in time; what cannot be understood is no
    answer.
    """

    def __init__(self, address: str, ps: int, call_timeout_secs: float = 3.0, patience_secs: float = 0.0):
        self.address = address
        self.ps = ps
        self._target = f"grpc://{address}"
        self._graph = ControlGraph()
        # The filter matches no task: the session has the devices of the ps task itself, and waits for no other.
        self._config = tf.ConfigProto(
            operation_timeout_in_ms=int(call_timeout_secs * 1000), device_filters=["/job:none"]
        )
        self._call_timeout_secs = call_timeout_secs
        self._patience_secs = patience_secs
        self._session: tf.Session | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The task's name and address, for messages."""
        return f"ps-{self.ps} ({self.address})"

    def read(self, *, is_patient: bool = False) -> PsState:
        """The control plane's present state.

        Args:
            is_patient: for who does not ask again anyway.
        """
        return decode(self._patiently(self._graph.read) if is_patient else self._run(self._graph.read))

    def write_run(self, run: dict[str, Any]) -> None:
        """Replaces the run record; it is patient."""
        self._patiently(self._graph.write["run"], {self._graph.value: json.dumps(run)})

    def say(self, message: dict[str, Any]) -> None:
        """Puts a worker's message into the mail; once, as one that is late may have arrived."""
        self._run(self._graph.send, {self._graph.value: json.dumps(message)})

    def close(self) -> None:
        """Closes the connection for good: calls of threads that do not know of it yet fail."""
        with self._lock:
            self._is_closed = True
            session, self._session = self._session, None
            if session is not None:
                _close(session)

    def _patiently(self, fetches: Any, feeds: dict[tf.Tensor, str] | None = None) -> Any:
        """Repeats a call that may be made more than once."""
        deadline = time.monotonic() + self._patience_secs
        while True:
            try:
                return self._run(fetches, feeds)
            except tf.errors.DeadlineExceededError:
                if time.monotonic() > deadline:
                    raise

    def _run(self, fetches: Any, feeds: dict[tf.Tensor, str] | None = None) -> Any:
        with self._lock:
            if self._is_closed:
                raise tf.errors.CancelledError(None, None, f"the connection to {self.name} was closed")
            try:
                if self._session is None:
                    self._check_port()
                    self._session = tf.Session(self._target, graph=self._graph.graph, config=self._config)
                return self._session.run(fetches, feeds)
            except tf.errors.OpError:
                self._give_up_session()
                raise

    def _give_up_session(self) -> None:
        """Lets go of a session that failed: where the ps task was replaced it never works again.

        Closing it waits for the ps task up to the call's deadline, so nobody waits for that.
        """
        session, self._session = self._session, None
        if session is not None:
            threading.Thread(target=_close, args=(session,), name=f"close-{self.name}", daemon=True).start()

    def _check_port(self) -> None:
        """Raises UnavailableError where nothing listens: a session would look for it up to the call's deadline."""
        fault = network.fault_of(self.address, self._call_timeout_secs)
        if fault:
            raise tf.errors.UnavailableError(None, None, f"no connection to {self.name}: {fault}")


def _close(session: tf.Session) -> None:
    with contextlib.suppress(tf.errors.OpError):  # the ps may be gone, and its end of the session with it
        session.close()


def hello(cluster: ClusterConfig, ps: int) -> dict[str, Any]:
    """What ps task `ps` says of itself, and a worker compares with its own view."""
    return {
        "version": ps_trainer.__version__,
        "ps": ps,
        "num_ps": cluster.num_ps,
        "num_workers": cluster.num_workers,
        "facts": task_info.of(cluster),
    }


def decode(values: list[bytes]) -> PsState:
    """`PsState` from the fetched strings.

    Raises:
        tf.errors.DataLossError: one cannot be understood.
    """
    try:
        return PsState(*map(messages.record, _FIELDS, values))
    except ValueError as error:
        raise tf.errors.DataLossError(None, None, str(error)) from error
