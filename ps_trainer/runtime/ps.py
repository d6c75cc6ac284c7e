"""A parameter-server task: serves until every worker has reported how it ended, or is gone, then ends by itself."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, RunError, StartTimeoutError
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime import control, messages
from ps_trainer.runtime.liveness import Liveness
from ps_trainer.runtime.run_record import (
    FINAL,
    AliveMessage,
    EndNotice,
    LeaseMessage,
    Message,
    Roster,
    Status,
    StatusMessage,
    WorkerEntry,
)
from ps_trainer.runtime.server import session_config
from ps_trainer.runtime.shard_leases import LeaseDesk
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.runtime.suspension import SuspensionDetector

# A worker's call that brings its last message must return before the ps task ends.
_LINGER_SECS = 0.5
# After SIGTERM: time for the workers to see the notice, and for the chief to save a checkpoint.
_NOTICE_SECS = 6.0
_LATE_SECS = 5.0  # for lost workers to come back when the chief is done, and to hear that the run has ended
_FAILED_SECS = 15.0  # for workers to report how they ended when the chief has failed


class _Mail(NamedTuple):
    """A message of a worker; or, if it is presumed, of this task in place of a worker that is silent."""

    message: Message
    is_presumed: bool = False


class _Loss(NamedTuple):
    """The loss of a worker that may come back.

    Attributes:
        before: Its entry before the loss.
        since: Time of the loss.
        is_presumed: Whether this task concluded it from the worker's silence. Then a sign of life disproves it.
    """

    before: WorkerEntry
    since: float
    is_presumed: bool


class PsTask:
    """Serves one job, or job after job.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run, of which only the timeouts matter here.
        server: Server of this task.
        keep_serving: Whether to serve the next job when one is done, until a signal.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        config: TrainConfig,
        server: tf.train.Server,
        *,
        keep_serving: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._cluster = cluster
        self._config = config
        self._keep_serving = keep_serving
        self._clock = clock
        self._control = control.ControlGraph()
        own = session_config(cluster.device, peers=())
        self._session = tf.Session(server.target, graph=self._control.graph, config=own)
        self._leases = LeaseDesk(
            server.target,
            own,
            read_run=lambda: control.decode(self._session.run(self._control.read)).run,
            write=lambda answers: self._write("leases", answers),
        )
        self._mail: queue.Queue[_Mail] = queue.Queue()
        self._run_id = ""
        self._workers: dict[int, WorkerEntry] = {}
        self._losses: dict[int, _Loss] = {}  # of the workers whose entry is LOST
        self._old_runs: set[str] = set()
        self._heard_at: dict[int, float] = {}
        self._suspension = SuspensionDetector(clock())
        tasks = enumerate(cluster.worker_tasks)
        self._liveness = Liveness({i: cluster.jobs[job][index] for i, (job, index) in tasks}, self._lose)

    def serve(self, stop: StopRequest) -> int:
        """Serves until the job is over; returns the exit code, 0 when every worker was done.

        Raises:
            StartTimeoutError: No worker joined in time.
            RunError: The chief has ended, and a worker never reported how it ended.
            Interrupted: A signal came.
        """
        writer = MetricsWriter(self._config.logdir, self._cluster.task_name)
        self._session.run(self._control.init_op)
        self._write("hello", control.hello(self._cluster, self._cluster.task_index, incarnation=uuid.uuid4().hex[:12]))
        threading.Thread(target=self._receive, name="mail", daemon=True).start()
        self._liveness.start()
        writer.state(f"serving on {self._cluster.own_address}")
        try:
            while True:
                self._serve_run(stop)
                code = EXIT_DONE if self._statuses() == {Status.DONE} else EXIT_FAILED
                if not self._keep_serving:
                    time.sleep(_LINGER_SECS)
                    writer.state(
                        "done" if code == EXIT_DONE else "ended after a worker's failure",
                        peer_failure=code != EXIT_DONE,
                    )
                    return code
                self._forget_run()
        finally:
            self._liveness.close()
            self._leases.close()
            self._session.close()
            writer.close()

    def _serve_run(self, stop: StopRequest) -> None:
        """Reads mail until every worker has ended."""
        started, chief_ended_at = self._clock(), None
        while len(self._final()) < self._cluster.num_workers:
            if stop.requested:
                self._leave_on_notice(stop)
            with contextlib.suppress(queue.Empty):
                self._note(self._mail.get(timeout=0.1))
            self._liveness.watch(set(self._workers) - self._final())
            now = self._clock()
            self._look_for_silence(now)
            chief_ended_at = (chief_ended_at or now) if 0 in self._final() else None
            self._give_up_lost(now, chief_ended_at)
            if not self._workers and not self._keep_serving and now - started > self._config.start_timeout_secs:
                raise StartTimeoutError(
                    f"{self._cluster.task_name}: no worker joined within {self._config.start_timeout_secs:.0f} s;"
                    " start the workers, or raise --start_timeout_secs"
                )
            if chief_ended_at is not None:
                self._check_missing(now - chief_ended_at)
        logging.info("%s: every worker has ended: %s", self._cluster.task_name, self._describe())

    def _check_missing(self, waited: float) -> None:
        """Raises RunError when a worker is missing for too long after the end of the chief, `waited` seconds ago.

        A chief that is done has waited for all workers that joined, so a missing worker is late or was lost. A chief
        that failed has not waited, but the workers end soon after it.
        """
        is_done = self._workers[0].status is Status.DONE
        if waited > (self._config.start_timeout_secs if is_done else _FAILED_SECS):
            missing = sorted(set(range(self._cluster.num_workers)) - self._final())
            raise RunError(
                f"{self._cluster.task_name}: the chief ended {waited:.0f} s ago and worker {missing} never said"
                " how it ended; it was not started, or was lost"
            )

    def _leave_on_notice(self, stop: StopRequest) -> None:
        """Tells the workers why they have to end, waits a moment for them, and raises the reason."""
        self._write("notice", EndNotice(reason=f"{self._cluster.task_name} was {stop.reason}"))
        deadline = self._clock() + _NOTICE_SECS
        while self._clock() < deadline and set(self._workers) - self._final():
            with contextlib.suppress(queue.Empty):
                self._note(self._mail.get(timeout=0.1))
        time.sleep(_LINGER_SECS)
        stop.check()

    def _lose(self, worker: int, reason: str) -> None:
        """Reports the loss of a worker in its place; called by any thread."""
        status = Status.LOST if self._config.recover_timeout_secs else Status.FAILED
        entry = WorkerEntry(status=status, reason=reason)
        self._mail.put(_Mail(StatusMessage(run_id=self._run_id, worker=worker, entry=entry), is_presumed=True))

    def _note(self, mail: _Mail) -> None:
        """Acts on a message."""
        message, worker = mail.message, mail.message.worker
        if message.run_id and message.run_id != self._run_id and not self._take_up_run(message):
            return  # from a run that another one has replaced
        self._heard_at[worker] = self._clock()
        if isinstance(message, LeaseMessage):
            self._leases.answer(message)
        elif isinstance(message, AliveMessage):
            loss = self._losses.get(worker)
            if loss is not None and loss.is_presumed:
                logging.info("worker %d is back", worker)
                self._enter(worker, loss.before)
        elif isinstance(message, StatusMessage):
            self._report(worker, message.entry, is_presumed=mail.is_presumed)

    def _take_up_run(self, message: Message) -> bool:
        """Takes up the run of a message, if a worker joins it for the first time here; returns whether it does."""
        is_joining = isinstance(message, StatusMessage) and message.entry.status is Status.JOINED
        if not is_joining or message.run_id in self._old_runs:
            return False
        self._forget_run()
        self._run_id = message.run_id
        return True

    def _report(self, worker: int, entry: WorkerEntry, *, is_presumed: bool) -> None:
        """Enters the report of a worker, or of this task in its place, into the roster."""
        before = self._workers.get(worker)
        if entry.status is not Status.LOST:
            self._enter(worker, entry)
        elif before is not None and before.status not in (*FINAL, Status.LOST):
            self._enter(worker, entry)
            self._losses[worker] = _Loss(before, self._clock(), is_presumed)

    def _enter(self, worker: int, entry: WorkerEntry) -> None:
        """Makes `entry` the worker's entry in the roster."""
        before = self._workers.get(worker)
        # A process that ends before it has joined has no number. It is the successor of the process that had the last.
        joining = max(entry.joining, before.joining if before is not None else 0)
        self._workers[worker] = dataclasses.replace(entry, joining=joining)
        self._losses.pop(worker, None)
        if entry.status is not Status.TRAINING:
            self._leases.give_back(worker)
        if entry.status in (Status.FAILED, Status.LOST):
            logging.error("worker %d %s: %s", worker, entry.status, entry.reason)
        elif entry.status is not Status.TRAINING:
            logging.info("worker %d %s", worker, entry.status)
        self._write("roster", Roster(run_id=self._run_id, workers=self._workers))

    def _look_for_silence(self, now: float) -> None:
        """Loses workers whose heartbeat has stopped though their port answers: frozen ones, which the kernel hides."""
        if paused := self._suspension.look(now):  # while this task was frozen, their heartbeats queued up in the mail
            self._heard_at = {worker: heard + paused for worker, heard in self._heard_at.items()}
        for worker, entry in self._workers.items():
            silent = now - self._heard_at[worker]
            if entry.status in (Status.JOINED, Status.TRAINING) and silent > self._config.heartbeat_timeout_secs:
                self._heard_at[worker] = now
                self._lose(worker, f"no sign of life for {silent:.0f} s: it is frozen, or cut off")

    def _give_up_lost(self, now: float, chief_ended_at: float | None) -> None:
        """Turns losses into failures: after `recover_timeout_secs`, or soon after the chief has ended the run."""
        limit = self._config.recover_timeout_secs
        if chief_ended_at is not None:
            patience = _LATE_SECS if self._workers[0].status is Status.DONE else 0.0
            limit = min(limit, patience)
        for worker, loss in list(self._losses.items()):
            if now - max(loss.since, chief_ended_at or 0.0) >= limit:
                entry = self._workers[worker]
                reason = f"{entry.reason or 'it gave no reason'}; it did not come back within {limit:.0f} s"
                self._enter(worker, dataclasses.replace(entry, status=Status.FAILED, reason=reason))

    def _forget_run(self) -> None:
        self._old_runs.add(self._run_id)
        self._run_id, self._workers, self._losses, self._heard_at = "", {}, {}, {}
        self._leases.close()

    def _receive(self) -> None:
        while True:
            try:
                text = self._session.run(self._control.receive)
            except (tf.errors.OpError, RuntimeError):
                return  # the session was closed: the task ends
            try:
                self._mail.put(_Mail(messages.decode_message(text, self._cluster.num_workers)))
            except ValueError as error:
                logging.warning("%s: a message was dropped: %s; its text: %.200r", self._cluster.task_name, error, text)

    def _write(self, field: str, record: Any) -> None:
        self._session.run(self._control.write[field], {self._control.value: messages.encode(record)})

    def _final(self) -> set[int]:
        return {index for index, entry in self._workers.items() if entry.status in FINAL}

    def _statuses(self) -> set[Status]:
        return {entry.status for entry in self._workers.values()}

    def _describe(self) -> str:
        return ", ".join(f"worker {index} {self._workers[index].status}" for index in sorted(self._workers))
