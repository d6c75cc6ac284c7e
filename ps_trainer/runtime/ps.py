"""A parameter-server task: serves until every worker has reported how it ended, or is gone, then ends by itself."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, Interrupted, RunError, StartTimeoutError
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime import control, messages
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.liveness import Liveness
from ps_trainer.runtime.roster_book import RosterBook
from ps_trainer.runtime.run_record import (
    AliveMessage,
    EndNotice,
    LeaseMessage,
    Message,
    Status,
    StatusMessage,
    WorkerEntry,
)
from ps_trainer.runtime.server import session_config
from ps_trainer.runtime.shard_leases import LeaseServer

# A worker's call that brings its last message must return before the ps task ends.
LINGER_SECS = 0.5
# After SIGTERM: time for the workers to see the notice, and for the chief to save a checkpoint.
# Shorter than `job_runner.EXIT_SECS`, at which this process is ended.
NOTICE_SECS = 6.0
FAILED_SECS = 15.0  # for workers to report how they ended when the chief has failed

_INTERRUPTION = (Interrupted(signal.SIGTERM).exit_code, "ended after signals to workers")
# Exit code and last state, by the statuses with which the workers ended; every other mixture is a failure.
_ENDS = {
    frozenset({Status.DONE}): (EXIT_DONE, "done"),
    frozenset({Status.INTERRUPTED}): _INTERRUPTION,
    frozenset({Status.INTERRUPTED, Status.DONE}): _INTERRUPTION,
}
_FAILURE = (EXIT_FAILED, "ended after a worker's failure")


class _Mail(NamedTuple):
    """A message of a worker; or, if it is presumed, of this task in place of a worker that is silent."""

    message: Message
    is_presumed: bool = False


class PsTask:
    """Serves one job, or job after job.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run, of which only the timeouts matter here.
        server: Server of this task.
        keep_serving: Whether to serve the next job when one is done, until a signal.
        time_fn: Monotonic time in seconds.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        config: TrainConfig,
        server: tf.train.Server,
        *,
        keep_serving: bool = False,
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self._cluster = cluster
        self._config = config
        self._keep_serving = keep_serving
        self._time_fn = time_fn
        self._control = control.ControlGraph.shared()
        server_config = session_config(cluster.device, peers=())
        # No peers: the creation of this session must not wait for tasks that are not started yet.
        self._session = tf.Session(server.target, graph=self._control.graph, config=server_config)
        self._leases = LeaseServer(
            server.target,
            server_config,
            read_run=lambda: control.decode(self._session.run(self._control.read)).run,
            write=lambda answers: self._write("leases", answers),
        )
        # The threads of mail and liveness probes only add to this queue. Only `serve` changes the roster.
        self._mail: queue.Queue[_Mail] = queue.Queue()
        self._roster = RosterBook(
            config,
            publish=lambda roster: self._write("roster", roster),
            free_shards=self._leases.give_back,
            time_fn=time_fn,
        )
        tasks = enumerate(cluster.worker_tasks)
        self._liveness = Liveness({i: cluster.jobs[job][index] for i, (job, index) in tasks}, self._lose)

    def serve(self, stop: StopRequest) -> int:
        """Serves until the job is over; returns the exit code.

        It is 0 when every worker was done, 143 when signals ended all others, and 1 when a worker failed.

        Raises:
            StartTimeoutError: No worker joined in time.
            RunError: The chief has ended, and a worker has not reported how it ended.
            Interrupted: A signal came.
        """
        writer = MetricsWriter(self._config.logdir, self._cluster.task_name)
        self._open()
        writer.state(f"serving on {self._cluster.own_address}")
        try:
            while True:
                self._serve_run(stop)
                code, state = _ENDS.get(frozenset(self._roster.statuses()), _FAILURE)
                if not self._keep_serving:
                    time.sleep(LINGER_SECS)
                    writer.state(state, peer_failure=code != EXIT_DONE)
                    return code
                self._begin_run("")
        finally:
            self._close()
            writer.close()

    def _open(self) -> None:
        """Introduces this task on the control plane, and begins to hear the workers."""
        self._session.run(self._control.init_op)
        self._write("hello", control.hello(self._cluster, self._cluster.ps_index, incarnation=uuid.uuid4().hex[:12]))
        threading.Thread(target=self._receive, name="mail", daemon=True).start()
        self._liveness.start()

    def _close(self) -> None:
        self._liveness.close()
        self._leases.close()
        # This also ends the thread of the mail, which waits in a dequeue until then.
        self._session.close()

    def _is_over(self) -> bool:
        """Returns whether every worker has ended, so that none needs this task any more."""
        return len(self._roster.final()) == self._cluster.num_workers

    def _leave_if_asked(self, stop: StopRequest) -> None:
        """Raises the reason why this task ends before the run does, after a notice to the workers."""
        if stop.is_requested:
            self._give_notice(f"was {stop.reason}", NOTICE_SECS)
            stop.check()

    def _serve_run(self, stop: StopRequest) -> None:
        """Reads mail until every worker has ended."""
        roster = self._roster
        started, chief_ended_at = self._time_fn(), None
        while not self._is_over():
            self._leave_if_asked(stop)
            with contextlib.suppress(queue.Empty):
                self._note(self._mail.get(timeout=0.1))
            self._liveness.watch(set(roster.workers) - roster.final())
            for worker, reason in roster.find_silent():
                self._lose(worker, reason)
            now = self._time_fn()
            # A chief that has joined again has not ended any more, so the time is forgotten then.
            chief_ended_at = (chief_ended_at or now) if 0 in roster.final() else None
            roster.give_up_lost(chief_ended_at)
            if not self._keep_serving:
                self._check_joined(now - started)
            if chief_ended_at is not None:
                self._check_missing(now - chief_ended_at)
        logging.info("%s: every worker has ended: %s", self._cluster.task_name, roster.describe())

    def _check_joined(self, waited: float) -> None:
        """Raises StartTimeoutError when the chief, which each run needs, has not joined for too long.

        Other workers are in the roster before the chief only if they have failed. A chief that fails before this task
        serves cannot report it here.
        """
        limit, workers = self._config.start_timeout_secs, self._roster.workers
        if 0 in workers or waited <= limit:
            return
        task, advice = self._cluster.task_name, "start the workers, or raise --start_timeout_secs"
        if not workers:
            raise StartTimeoutError(f"{task}: no worker joined within {limit:.0f} s; {advice}")
        chief, ends = "-".join(map(str, self._cluster.worker_tasks[0])), self._roster.describe()
        raise StartTimeoutError(f"{task}: the chief ({chief}) did not join within {limit:.0f} s, and {ends}; {advice}")

    def _check_missing(self, waited: float) -> None:
        """Raises RunError when a worker is missing for too long after the end of the chief, `waited` seconds ago.

        A chief that is done has waited for all workers that joined, so a missing worker is late or was lost. A chief
        that failed has not waited, but the workers end soon after it.
        """
        is_done = self._roster.workers[0].status is Status.DONE
        if waited > (self._config.start_timeout_secs if is_done else FAILED_SECS):
            missing = sorted(set(range(self._cluster.num_workers)) - self._roster.final())
            raise RunError(
                f"{self._cluster.task_name}: the chief ended {waited:.0f} s ago and worker {missing} has not reported"
                " how it ended; it was not started, or was lost"
            )

    def _give_notice(self, how: str, limit_secs: float) -> None:
        """Tells the workers why they have to end, and waits a moment for them.

        Args:
            how: How this task ends, in words that follow its name.
            limit_secs: Longest wait.
        """
        self._write("notice", EndNotice(reason=f"{self._cluster.task_name} {how}"))
        deadline = self._time_fn() + limit_secs
        while self._time_fn() < deadline and self._roster.present():
            with contextlib.suppress(queue.Empty):
                self._note(self._mail.get(timeout=0.1))
        time.sleep(LINGER_SECS)

    def _lose(self, worker: int, reason: str) -> None:
        """Reports the loss of a worker in its place; called by any thread."""
        status = Status.LOST if self._config.recover_timeout_secs else Status.FAILED
        entry = WorkerEntry(status=status, reason=reason)
        self._mail.put(_Mail(StatusMessage(run_id=self._roster.run_id, worker=worker, entry=entry), is_presumed=True))

    def _note(self, mail: _Mail) -> None:
        """Acts on a message."""
        message, worker = mail.message, mail.message.worker
        if self._roster.is_other_run(message):
            if not self._roster.is_new_run(message):
                return  # from a run that another one has replaced
            self._begin_run(message.run_id)
        self._roster.note_message(worker)
        if isinstance(message, LeaseMessage):
            self._leases.answer(message)
        elif isinstance(message, AliveMessage):
            self._roster.bring_back(worker)
        elif isinstance(message, StatusMessage):
            self._roster.report(worker, message.entry, is_presumed=mail.is_presumed)

    def _begin_run(self, run_id: str) -> None:
        self._leases.close()
        self._roster.begin(run_id)

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
