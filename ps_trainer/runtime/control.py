"""The control plane: strings and queues on every ps task, by which the tasks of a job find each other.

Every ps task holds these, in a container that no training session touches:

    hello    introduction of the ps task                            `Hello`      the ps task writes it at its start
    run      the run in progress; on ps 0 only                      `RunRecord`  the chief writes it
    roster   last report of each worker of that run                 `Roster`     the ps task writes it
    leases   shards of the data that each worker got; on ps 0 only  `Leases`     the ps task writes it
    notice   reason why this ps task ends the job early             `EndNotice`  the ps task writes it
    mail     queue of the workers' messages                         `Message`    workers write, the ps task reads
    parts    queue of results of an evaluation; on ps 0 only        `PartResult` workers write, the chief reads
    next     number of the next part of that evaluation             an integer   chief and workers count it up

All but the number are JSON. `run_record.py` documents the records, and `messages.py` checks what it reads. A client
(`PsClient`) is a session on the ps task itself. It needs no separate server, and every call has a deadline. A process
that trains alone holds the control plane itself (`alone_control.py`). Both are a `PsControl`.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

import ps_trainer
from ps_trainer.cluster import network
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.runtime import messages, task_fingerprint
from ps_trainer.runtime.run_record import (
    EndNotice,
    Hello,
    Leases,
    Message,
    PartResult,
    Roster,
    RunRecord,
    WorkerEntry,
)

CONTAINER = "ps-trainer"  # TensorFlow takes no underscore here


class PsState(NamedTuple):
    """Contents of a ps task's control plane; a record that was not written yet is None.

    Attributes:
        hello: Introduction of the ps task.
        run: The run in progress.
        roster: Last reports of the workers, maybe of an earlier run.
        notice: Announcement that the ps task ends the job.
        leases: Answers to the workers' questions about shards.
    """

    hello: Hello | None = None
    run: RunRecord | None = None
    roster: Roster | None = None
    notice: EndNotice | None = None
    leases: Leases = MappingProxyType({})

    @property
    def incarnation(self) -> str:
        """Text that tells this ps task from one that was started in its place; empty before it has begun."""
        return self.hello.incarnation if self.hello is not None else ""

    def workers_of(self, run_id: str) -> Mapping[int, WorkerEntry]:
        """Returns the last reports of the workers of run `run_id`, by index; empty if the roster is of another run."""
        return self.roster.workers if self.roster is not None and self.roster.run_id == run_id else {}


class ControlGraph:
    """The control plane of any ps task as a graph.

    It names no device, so its ops run on the task whose session runs it. Thus a task that serves at a wrong address
    still introduces itself, and a worker can say which task it has found.
    """

    @classmethod
    @functools.cache
    def shared(cls) -> ControlGraph:
        """Returns the graph for all sessions of this process: it is the same for all ps tasks, and is built once."""
        return cls()

    def __init__(self) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default(), self.graph.container(CONTAINER):
            # An empty JSON object stands for a record that was not written yet (`messages.decode_record`).
            variables = {
                name: tf.get_variable(
                    f"control/{name}", [], tf.string, initializer=tf.constant_initializer("{}"), use_resource=True
                )
                for name in PsState._fields
            }
            next_part = tf.get_variable(
                "control/next_part", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=True
            )
            self.init_op = tf.group(next_part.initializer, *(variable.initializer for variable in variables.values()))
            self.read = [variable.read_value() for variable in variables.values()]
            self.value = tf.placeholder(tf.string, [])
            self.write = {name: v.assign(self.value, read_value=False) for name, v in variables.items()}
            # No limit to its length: the enqueue of a worker must not wait until the ps task reads.
            mail = tf.FIFOQueue(-1, [tf.string], [()], shared_name="control/mail")
            self.send = mail.enqueue(self.value)
            self.receive = mail.dequeue()
            self.begin_parts = next_part.initializer
            # This op alone counts and reads in one step, so that no two workers get the same number.
            self.take_part = tf.raw_ops.ResourceCountUpTo(resource=next_part.handle, limit=2**31 - 1, T=tf.int64)
            parts = tf.FIFOQueue(-1, [tf.string], [()], shared_name="control/parts")
            self.send_part = parts.enqueue(self.value)
            # Only the chief reads, so the size cannot fall in between, and the call never waits.
            self.receive_parts = parts.dequeue_many(parts.size())
        self.graph.finalize()


class PsControl(abc.ABC):
    """Access to one ps task's control plane. Its methods may be called from any thread.

    Args:
        address: "host:port" of the ps task; of a process that trains alone, a description.
        ps: Index of the ps task.
        task_name: Name of the task; None = the name of a task of the job ps.
    """

    def __init__(self, address: str, ps: int, *, task_name: str | None = None):
        self.address = address
        self.ps = ps
        self._task_name = task_name or f"ps-{ps}"

    @property
    def name(self) -> str:
        """The task's name and address, for messages."""
        return f"{self._task_name} ({self.address})"

    @abc.abstractmethod
    def read(self, *, is_patient: bool = False) -> PsState:
        """Returns the current contents of the control plane.

        Args:
            is_patient: Whether to repeat a call that is too late, for callers that do not ask again anyway.
        """

    @abc.abstractmethod
    def write_run(self, run: RunRecord) -> None:
        """Replaces the run record; repeats a call that is too late."""

    @abc.abstractmethod
    def send(self, message: Message) -> None:
        """Puts a worker's message into the mail. Tries once only: a message that is too late may have arrived."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the connection for good. Later calls, of threads that do not know of this yet, fail."""


class PsClient(PsControl):
    """Access by a session on the ps task.

    Args:
        address: "host:port" of the ps task.
        ps: Index of the ps task.
        call_timeout_secs: Deadline of each call.
        patience_secs: Time for which a patient call is repeated when the ps task misses that deadline.
        task_name: Name of the task; None = the name of a task of the job ps.

    All methods raise `tf.errors.OpError` when the ps task does not answer in time, or when its answer is not valid.
    """

    def __init__(
        self,
        address: str,
        ps: int,
        call_timeout_secs: float = 3.0,
        patience_secs: float = 0.0,
        *,
        task_name: str | None = None,
    ):
        super().__init__(address, ps, task_name=task_name)
        self._target = f"grpc://{address}"
        self._graph = ControlGraph.shared()
        # The filter matches no task. Without it, the session would wait until every task of the cluster is there.
        self._config = tf.ConfigProto(
            operation_timeout_in_ms=int(call_timeout_secs * 1000), device_filters=["/job:none"]
        )
        self._call_timeout_secs = call_timeout_secs
        self._patience_secs = patience_secs
        self._session: tf.Session | None = None
        self._is_closed = False
        # Heartbeat, watcher, shard reader and job share a client. The lock is held during a call, so that no other
        # thread uses a session that just failed.
        self._lock = threading.Lock()

    def read(self, *, is_patient: bool = False) -> PsState:
        return decode(self._patiently(self._graph.read) if is_patient else self._run(self._graph.read))

    def write_run(self, run: RunRecord) -> None:
        self._patiently(self._graph.write["run"], {self._graph.value: messages.encode(run)})

    def send(self, message: Message) -> None:
        self._run(self._graph.send, {self._graph.value: messages.encode_message(message)})

    def begin_parts(self) -> None:
        """Begins to count the parts of an evaluation at 0."""
        self._run(self._graph.begin_parts)

    def take_part(self) -> int:
        """Returns the number of the next part of an evaluation, which no other caller gets."""
        return int(self._run(self._graph.take_part))

    def send_part(self, result: PartResult) -> None:
        """Leaves the result of a part for the chief."""
        self._run(self._graph.send_part, {self._graph.value: messages.encode(result)})

    def receive_parts(self) -> list[PartResult]:
        """Returns the results that were left since the last call; does not wait. Skips what is not a valid result."""
        found = []
        for text in self._run(self._graph.receive_parts):
            try:
                found.append(messages.decode_part(text))
            except ValueError as error:
                logging.warning("%s: a result of an evaluation was dropped: %s", self.name, error)
        return found

    def close(self) -> None:
        with self._lock:
            # The lock above waits for a call of another thread, which ends by its deadline.
            self._is_closed = True
            session, self._session = self._session, None
            if session is not None:
                _close(session)

    def _patiently(self, fetches: Any, feeds: dict[tf.Tensor, str] | None = None) -> Any:
        """Repeats a call that is too late; for calls that do no harm when they are made twice."""
        deadline = time.monotonic() + self._patience_secs
        while True:
            try:
                return self._run(fetches, feeds)
            except tf.errors.DeadlineExceededError:
                # Only a late answer is worth the wait here. After other errors, such as a closed port, the callers
                # decide.
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
        """Drops a session that failed: if the ps task was replaced, the session never works again.

        `close` waits for the ps task up to the deadline of a call, so another thread calls it.
        """
        session, self._session = self._session, None
        if session is not None:
            threading.Thread(target=_close, args=(session,), name=f"close-{self.name}", daemon=True).start()

    def _check_port(self) -> None:
        """Raises UnavailableError where nothing listens; a session would try for as long as a call may take."""
        fault = network.fault_of(self.address, self._call_timeout_secs)
        if fault:
            raise tf.errors.UnavailableError(None, None, f"no connection to {self.name}: {fault}")


def _close(session: tf.Session) -> None:
    with contextlib.suppress(tf.errors.OpError):  # the ps may be gone, and its end of the session with it
        session.close()


def hello(cluster: ClusterConfig, ps: int, incarnation: str = "") -> Hello:
    """Returns the introduction of ps task `ps`, by which a worker finds out whether both have the same cluster."""
    return Hello(
        version=ps_trainer.__version__,
        ps=ps,
        num_ps=cluster.num_ps,
        num_workers=cluster.num_workers,
        incarnation=incarnation,
        fingerprint=task_fingerprint.of(cluster),
    )


def decode(values: list[bytes]) -> PsState:
    """Decodes `PsState` from the fetched strings.

    Raises:
        tf.errors.DataLossError: One of them is not a valid record.
    """
    try:
        return PsState(*map(messages.decode_record, PsState._fields, values))
    except ValueError as error:
        # An `OpError`, so that callers treat an invalid record like a ps task that did not answer.
        raise tf.errors.DataLossError(None, None, str(error)) from error
