"""`ColocatedPs`: the ps task inside of a worker's process, for a run whose workers hold the parameters.

The worker's own server holds its share of the parameters (`--placement=colocated`). So the process has two parts: the
worker's job, and this task in a thread beside it. The process ends when both have ended:

    the worker's job       this task                                                      exit code
    ────────────────       ─────────                                                      ─────────
    is done                serves until every other worker has ended                      0, or 1 if the run failed
    has failed             gives notice, since its share is about to go; others end       the worker's
    was ended by a signal  gives notice, and serves while the chief saves a checkpoint    128 + signal
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import PeerFailedError
from ps_trainer.runtime import lost_task_errors, ps
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.ps import PsTask
from ps_trainer.runtime.run_record import Status

_JOIN_SECS = 5.0  # for the thread to end after its own deadlines


class _JobEnd(NamedTuple):
    """The end of the worker's job; `error` is None if it is done."""

    error: BaseException | None


class ColocatedPs(PsTask):
    """Serves this process's share of the parameters, and its control plane, beside a worker's job.

    Args:
        cluster: Cluster, with this worker's place in it.
        config: Settings of the run, of which only the timeouts matter here.
        server: Server of the worker.

    Attributes:
        holds_parameters: Whether this process holds a share; as far as is known before the worker has found its run.
    """

    def __init__(self, cluster: ClusterConfig, config: TrainConfig, server: tf.train.Server):
        # A worker waits for the others with its own deadline, so this task needs none for the first of them.
        super().__init__(cluster, config, server, keep_serving=True)
        self.holds_parameters = True
        self._job_end: _JobEnd | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, stop: StopRequest) -> None:
        """Begins to serve; an error of this task asks the worker's job to stop.

        Args:
            stop: Stop request of the process. This task leaves only for a signal: the other reasons concern the job.
        """
        self._open()
        self._thread = threading.Thread(target=self._serve_beside, args=(stop,), name="parameters", daemon=True)
        self._thread.start()

    def stay(self, stop: StopRequest) -> None:
        """Serves, after the worker's job is done, until every other worker has ended.

        Raises:
            PeerFailedError: The run has failed after this worker was done.
            RunError: A worker is missing after the end of the chief.
            Interrupted: A signal came.
        """
        self._end_job(stop, None)
        while not self._wait_for_end(0.1):
            continue  # the thread keeps the deadlines
        if self._error is not None:
            raise self._error
        chief = self._roster.workers.get(0)
        if chief is not None and chief.status is not Status.DONE:
            reason = chief.reason or "it gave no reason"
            raise PeerFailedError(
                f"the run failed after {self._cluster.task_name} was done: worker 0 {chief.status}: {reason}"
            )

    def leave(self, stop: StopRequest, error: BaseException) -> None:
        """Ends the service after the worker's job has failed; the other workers get notice and a moment to end."""
        self._end_job(stop, error)
        self._wait_for_end(ps.FAILED_SECS + _JOIN_SECS)

    def _end_job(self, stop: StopRequest, error: BaseException | None) -> None:
        # The error that stopped the job must not end this process before the others have ended.
        stop.start_over()
        self._job_end = _JobEnd(error)

    def _wait_for_end(self, secs: float) -> bool:
        """Waits for the end of the thread; returns whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(secs)
        return not self._thread.is_alive()

    def _serve_beside(self, stop: StopRequest) -> None:
        try:
            self._serve_run(stop)
            time.sleep(ps.LINGER_SECS)
        except BaseException as error:  # noqa: BLE001 - raised by `stay`, or in the job
            self._error = error
            if self._job_end is None:
                stop.request(lost_task_errors.reason_to_stop(error, is_colocated=True))
        finally:
            self._close()

    def _is_over(self) -> bool:
        # Until the job has ended, the worker may rejoin and need this task again.
        if self._job_end is None:
            return False
        # Without a chief that has joined here, this process holds no parameters that a run needs. The run has ended
        # before a restarted worker came, or never began.
        if super()._is_over() or 0 not in self._roster.workers:
            return True
        # Without a share, the process may have been restarted in the middle of the run. Then its roster lacks workers
        # that were done before, and the chief, which waits for all of them, ends last.
        return not self.holds_parameters and 0 in self._roster.final()

    def _leave_if_asked(self, stop: StopRequest) -> None:
        if stop.signal is not None:
            self._give_notice(f"was {stop.signal}", ps.NOTICE_SECS)
            raise stop.signal
        if self._job_end is not None and self._job_end.error is not None:
            self._give_notice(f"failed: {lost_task_errors.reason(self._job_end.error)}", ps.FAILED_SECS)
            raise self._job_end.error
