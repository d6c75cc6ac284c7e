"""A parameter-server task: serves until every worker has said how it ended, or is gone, then ends by itself."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, RunError, StartTimeoutError
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime import control, messages
from ps_trainer.runtime.liveness import Liveness
from ps_trainer.runtime.server import session_config
from ps_trainer.runtime.shard_leases import LeaseDesk
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.runtime.suspension import SuspensionDetector

# A worker's last message is answered before the ps that got it goes.
_LINGER_SECS = 0.5
# After SIGTERM: time for the workers to see the notice, and for the chief to save a checkpoint.
_NOTICE_SECS = 6.0
_LATE_SECS = 5.0  # for lost workers to come back when the chief is done, and to hear that the run has ended
_FAILED_SECS = 15.0  # for workers to say how they ended when the chief has failed


class PsTask:
    """Serves one job, or job after job.

    Args:
        cluster: of this task.
        config: only its timeouts matter here.
        server: this task's server.
        keep_serving: serve the next job when one is done, until a signal.
        clock: seconds, monotonic.
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
        self._mail: queue.Queue[dict[str, Any]] = queue.Queue()
        self._run_id = ""
        self._workers: dict[int, dict[str, Any]] = {}
        self._old_runs: set[str] = set()
        self._heard_at: dict[int, float] = {}
        self._pause = SuspensionDetector(clock())
        tasks = enumerate(cluster.worker_tasks)
        self._liveness = Liveness({i: cluster.jobs[job][index] for i, (job, index) in tasks}, self._lose)

    def serve(self, stop: StopRequest) -> int:
        """Serves until the job is over; returns the exit code, 0 when every worker was done.

        Raises:
            StartTimeoutError: no worker joined in time.
            RunError: the chief is done, and a worker never said anything.
            Interrupted: a signal came.
        """
        writer = MetricsWriter(self._config.logdir, self._cluster.task_name)
        self._session.run(self._control.init_op)
        incarnation = {"incarnation": uuid.uuid4().hex[:12]}
        self._write("hello", control.hello(self._cluster, self._cluster.task_index) | incarnation)
        threading.Thread(target=self._receive, name="mail", daemon=True).start()
        self._liveness.start()
        writer.state(f"serving on {self._cluster.own_address}")
        try:
            while True:
                self._serve_run(stop)
                code = EXIT_DONE if self._statuses() == {control.DONE} else EXIT_FAILED
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
        """Reads mail until every worker's last word is in."""
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
        """A chief that is done has waited for the workers that joined, so who is missing now is late or lost.

        One that failed waits for nobody, and nobody is waited for long.
        """
        is_done = self._workers[0]["status"] == control.DONE
        if waited > (self._config.start_timeout_secs if is_done else _FAILED_SECS):
            missing = sorted(set(range(self._cluster.num_workers)) - self._final())
            raise RunError(
                f"{self._cluster.task_name}: the chief ended {waited:.0f} s ago and worker {missing} never said"
                " how it ended; it was not started, or was lost"
            )

    def _leave_on_notice(self, stop: StopRequest) -> None:
        """Tells the workers why they have to end, waits a moment for them, and raises the reason."""
        self._write("notice", {"reason": f"{self._cluster.task_name} was {stop.reason}"})
        deadline = self._clock() + _NOTICE_SECS
        while self._clock() < deadline and set(self._workers) - self._final():
            with contextlib.suppress(queue.Empty):
                self._note(self._mail.get(timeout=0.1))
        time.sleep(_LINGER_SECS)
        stop.check()

    def _lose(self, worker: int, reason: str) -> None:
        """Says, in place of a worker that is gone, that it is."""
        status = control.LOST if self._config.recover_timeout_secs else control.FAILED
        message = {"run_id": self._run_id, "worker": worker, "status": status, "reason": reason}
        self._mail.put(message | {"is_presumed": True})

    def _note(self, message: dict[str, Any]) -> None:
        """Enters a word of a worker, or said in its place, into the roster."""
        run_id, worker, status = message["run_id"], message["worker"], message["status"]
        if run_id and run_id != self._run_id:
            if status != control.JOINED or run_id in self._old_runs:
                return  # a word of a run that another one has replaced
            self._forget_run()
            self._run_id = run_id
        before = self._workers.get(worker, {})
        self._heard_at[worker] = self._clock()
        if status == control.LEASE:
            self._leases.answer(message)
            return
        if status == control.ALIVE:
            if before.get("status") != control.LOST or not before.get("is_presumed"):
                return
            message = before["was"]
            status = message["status"]
            logging.info("worker %d is back", worker)
        elif status == control.LOST:
            if not before or before["status"] in (*control.FINAL, control.LOST):
                return
            message = message | {"was": before, "at": self._clock()}
        # A process may end before it has a number; those of processes before it are over then.
        joining = max(message.get("joining", 0), before.get("joining", 0))
        self._workers[worker] = message | {"joining": joining}
        if status not in (control.ALIVE, control.TRAINING):
            self._leases.give_back(worker)
        if status in (control.FAILED, control.LOST):
            logging.error("worker %d %s: %s", worker, status, message.get("reason"))
        elif status != control.TRAINING:
            logging.info("worker %d %s", worker, status)
        self._write("roster", {"run_id": self._run_id, "workers": self._workers})

    def _look_for_silence(self, now: float) -> None:
        """Loses workers whose heartbeat has stopped, though the kernel answers for their port: frozen ones."""
        if paused := self._pause.look(now):  # their words wait in the mail
            self._heard_at = {worker: heard + paused for worker, heard in self._heard_at.items()}
        for worker, entry in self._workers.items():
            silent = now - self._heard_at[worker]
            if entry["status"] in (control.JOINED, control.TRAINING) and silent > self._config.heartbeat_timeout_secs:
                self._heard_at[worker] = now
                self._lose(worker, f"no sign of life for {silent:.0f} s: it is frozen, or cut off")

    def _give_up_lost(self, now: float, chief_ended_at: float | None) -> None:
        """Lost workers have failed when they do not come back in time, nor soon after the chief has ended the run."""
        limit = self._config.recover_timeout_secs
        if chief_ended_at is not None:
            patience = _LATE_SECS if self._workers[0]["status"] == control.DONE else 0.0
            limit = min(limit, patience)
        for entry in list(self._workers.values()):
            since = max(entry.get("at", now), chief_ended_at or 0.0)
            if entry["status"] == control.LOST and now - since >= limit:
                reason = f"{entry['reason']}; it did not come back within {limit:.0f} s"
                self._note(entry | {"status": control.FAILED, "reason": reason})

    def _forget_run(self) -> None:
        self._old_runs.add(self._run_id)
        self._run_id, self._workers, self._heard_at = "", {}, {}
        self._leases.close()

    def _receive(self) -> None:
        while True:
            try:
                text = self._session.run(self._control.receive)
            except (tf.errors.OpError, RuntimeError):
                return  # the session was closed: the task ends
            try:
                self._mail.put(messages.message(text, self._cluster.num_workers))
            except ValueError as error:
                logging.warning("%s: a message was dropped: %s; its text: %.200r", self._cluster.task_name, error, text)

    def _write(self, field: str, value: dict[str, Any]) -> None:
        self._session.run(self._control.write[field], {self._control.value: json.dumps(value)})

    def _final(self) -> set[int]:
        return {index for index, worker in self._workers.items() if worker["status"] in control.FINAL}

    def _statuses(self) -> set[str]:
        return {worker["status"] for worker in self._workers.values()}

    def _describe(self) -> str:
        return ", ".join(f"worker {index} {self._workers[index]['status']}" for index in sorted(self._workers))
