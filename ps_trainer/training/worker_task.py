"""`WorkerTask`: a task of a run. It finds the run, reports how it goes, and rejoins after a loss."""

from __future__ import annotations

import abc

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, Interrupted, LostError, PeerFailedError, RunError, StartTimeoutError
from ps_trainer.metrics.figures import WorkerFigures
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime import lost_task_errors, preflight, run_setup, task_fingerprint
from ps_trainer.runtime.colocated_ps import ColocatedPs
from ps_trainer.runtime.control import PsControl, PsState
from ps_trainer.runtime.heartbeat import Heartbeat
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import INITIALISED, RunRecord, RunStatus, Status, StatusMessage, WorkerEntry
from ps_trainer.training.recovery_policy import RecoveryPolicy
from ps_trainer.training.step_errors import translate


class WorkerTask(abc.ABC):
    """One worker task of a job.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run.
    """

    def __init__(self, cluster: ClusterConfig, config: TrainConfig):
        self._cluster = cluster
        self._config = config
        self._controls: list[PsControl] = []
        self._run: RunRecord | None = None  # before this task has found one
        self._join_number = 0  # counts the joins of this worker's earlier processes too
        self._recovery = RecoveryPolicy(config)
        self._fingerprint = task_fingerprint.of(cluster)
        self._writer = MetricsWriter(config.logdir, cluster.task_name)
        self._share: ColocatedPs | None = None  # what this process holds of the parameters

    @abc.abstractmethod
    def _take_part(self, stop: StopRequest) -> None:
        """Finds the run and does this task's part in it; the ps tasks answer already."""

    def work(self, stop: StopRequest) -> int:
        """Takes part until the run ends; returns exit code 0.

        Raises:
            PsTrainerError: The job failed, in this task or in another one.
            Interrupted: A signal came; the chief has saved a checkpoint.
        """
        try:
            return self._work(stop) if self._share is None else self._work_and_serve(self._share, stop)
        finally:
            for ps in self._controls:
                ps.close()
            self._close()
            self._writer.close()

    def _work_and_serve(self, share: ColocatedPs, stop: StopRequest) -> int:
        """Takes part, and serves this process's share of the parameters until no other worker needs it."""
        share.start(stop)
        try:
            code = self._work(stop)
        except BaseException as error:
            share.leave(stop, error)
            raise
        try:
            share.stay(stop)
        except RunError as error:
            self._writer.state(f"failed: {error}", peer_failure=True, error=type(error).__name__)
            raise
        return code

    def _work(self, stop: StopRequest) -> int:
        try:
            self._work_through_losses(stop)
        except BaseException as error:
            status = Status.INTERRUPTED if isinstance(error, Interrupted) else Status.FAILED
            self._send_status(status, reason=lost_task_errors.reason(error), error=type(error).__name__)
            is_effect = isinstance(error, PeerFailedError | LostError)
            self._writer.state(f"failed: {error}", peer_failure=is_effect, error=type(error).__name__)
            raise
        else:
            self._send_status(Status.DONE, summary=self._figures())
            self._writer.state("done")
            self._after_done(stop)
            return EXIT_DONE

    def _after_done(self, stop: StopRequest) -> None:  # noqa: B027 - most tasks end then
        """Does what a task that is done can still do for others; never raises, and returns when `stop` is requested."""

    def _figures(self) -> WorkerFigures | None:
        """Returns the figures of this task's steps for the run's summary; None for a task that makes no steps."""
        return None

    def _close(self) -> None:  # noqa: B027 - most tasks have nothing to end
        """Ends what this task has started; called once, however the task ended."""

    @property
    def _current_run(self) -> RunRecord:
        """The run that this task has found."""
        if self._run is None:
            raise RuntimeError("this task has not found a run yet")
        return self._run

    def _work_through_losses(self, stop: StopRequest) -> None:
        """Takes part, and does so again when a part of the job was lost that may come back."""
        stop.patience_secs = self._config.recover_timeout_secs
        while True:
            try:
                holders = "workers, which hold the parameters" if self._cluster.is_colocated else "ps tasks"
                self._writer.state(f"waiting for the {holders}")
                limit = self._recovery.limit_secs
                controls = preflight.wait_for_ps(self._cluster, self._config, stop, limit_secs=limit)
                # Until here the old clients are needed: if the wait fails, `work` reports that through them.
                for ps in self._controls:
                    ps.close()
                self._controls = controls
                self._take_part(stop)
                return
            except StartTimeoutError as error:
                raise self._recovery.explain(error) from error
            except (LostError, tf.errors.OpError) as raised:
                loss = self._translate_error(raised, stop)
                if not isinstance(loss, LostError) or not self._recovery.may_follow(loss):
                    raise loss from (None if loss is raised else raised)
                # Raises a reason that is final, such as a signal during the loss; then the task does not wait.
                stop.renew()
                self._writer.state(self._recovery.note(loss))
                self._send_status(Status.LOST, reason=str(loss))

    def _join(self, stop: StopRequest) -> bool:
        """Waits for the chief's run and joins it; returns False if the run has ended already."""
        self._writer.state("waiting for the chief")
        before = self._run
        limit = self._recovery.limit_secs
        run = preflight.wait_for_run(
            self._controls,
            self._cluster,
            self._config,
            stop,
            limit_secs=limit,
            on_starting=lambda run: self._prepare(run, stop),
        )
        self._run = run
        if self._share is not None:
            self._share.holds_parameters = run.holds_state(self._cluster.ps_index)
        if run.status is RunStatus.ENDED:
            logging.info("the run ended before this worker joined")
            return False
        is_other = before is None or before.run_id != run.run_id
        if is_other and run.start is not None and run.start.how == INITIALISED:
            self._recovery.check_start()
        chief = self._say_joined().workers_of(run.run_id).get(0)
        is_new_chief = chief is not None and chief.joining == 1
        if is_other and is_new_chief and self._recovery.reached and run.start is not None:
            # A chief whose process was lost with the state does not know which step the run had reached.
            self._report_rollback(run.start.step)
        return True

    def _report_rollback(self, step: int) -> None:
        """Reports that the run continues from `step`, and how far this task has seen it before."""
        reached = max(step, self._recovery.reached)
        self._writer.event("recovered", self._cluster.task_name, step, reached=reached, rolled_back=reached - step)

    def _prepare(self, run: RunRecord, stop: StopRequest) -> None:  # noqa: B027 - most tasks have nothing to prepare
        """Prepares this task's part in a run that the chief sets up; called again and again until the run is ready."""

    def _say_joined(self) -> PsState:
        """Reports that this task joins, under a join number larger than at each earlier join.

        Returns:
            The contents of ps 0 before that.

        Raises:
            tf.errors.OpError: The ps task 0 does not answer.
        """
        state = self._controls[0].read(is_patient=True)
        before = preflight.last_join_number(state, self._current_run.run_id, self._cluster.worker_index)
        # ps 0 knows the joins of earlier processes; this process knows those that a restarted ps 0 has forgotten.
        self._join_number = max(self._join_number, before) + 1
        self._send_status(Status.JOINED)
        return state

    def _note_end(self, failure: str) -> None:
        """Writes the end of the run into its record, on the chief.

        Args:
            failure: Sentence which says how the run failed; empty if it is done.
        """
        try:
            self._controls[0].write_run(self._current_run.replace(status=RunStatus.ENDED, failure=failure))
        except tf.errors.OpError as error:
            logging.warning("ps 0 is gone before the end of the run was noted: %s", type(error).__name__)

    def _heartbeat(self) -> Heartbeat:
        timeout = self._config.heartbeat_timeout_secs
        return Heartbeat(self._controls, self._current_run.run_id, self._cluster.worker_index, timeout)

    def _translate_error(self, raised: BaseException, stop: StopRequest) -> BaseException:
        return translate(raised, stop, self._has_state, is_colocated=self._cluster.is_colocated)

    def _has_state(self) -> bool:
        """Returns whether the state of the run is still on the ps tasks."""
        return self._run is None or run_setup.is_state_there(self._controls, self._run)

    def _send_status(
        self,
        status: Status,
        *,
        reason: str | None = None,
        error: str | None = None,
        summary: WorkerFigures | None = None,
    ) -> None:
        """Reports a status to every ps task."""
        entry = WorkerEntry(
            status=status,
            joining=self._join_number,
            fingerprint=self._fingerprint,
            reason=reason,
            error=error,
            summary=summary,
        )
        run_id = self._run.run_id if self._run is not None else ""
        message = StatusMessage(run_id=run_id, worker=self._cluster.worker_index, entry=entry)
        preflight.send_to_all(self._controls, message)
