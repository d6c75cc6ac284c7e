"""`WorkerTask`: a task of a run. It finds the run, reports how it goes, and rejoins after a loss."""

from __future__ import annotations

import abc
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, Interrupted, LostError, PeerFailedError, StartTimeoutError
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime import control, preflight, task_info
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.heartbeat import Heartbeat
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.training import chief
from ps_trainer.training.loop import explained
from ps_trainer.training.recovery_policy import RecoveryPolicy


class WorkerTask(abc.ABC):
    """One worker task of a job.

    Args:
        cluster: with this task's place in it.
        config: the run.
    """

    def __init__(self, cluster: ClusterConfig, config: TrainConfig):
        self._cluster = cluster
        self._config = config
        self._controls: list[PsControl] = []
        self._run: dict[str, Any] = {"run_id": ""}
        self._joining = 0  # number of this worker's last joining; those of its processes before this one count
        self._recovery = RecoveryPolicy(config)
        self._facts = task_info.of(cluster)
        self._writer = MetricsWriter(config.logdir, cluster.task_name)

    @abc.abstractmethod
    def _take_part(self, stop: StopRequest) -> None:
        """Finds the run and does this task's part in it; the ps tasks are there."""

    def work(self, stop: StopRequest) -> int:
        """Takes part until the run ends; returns exit code 0.

        Raises:
            PsTrainerError: the job failed, here or elsewhere.
            Interrupted: a signal came; the chief has saved a checkpoint.
        """
        try:
            self._work_through_losses(stop)
        except BaseException as error:
            status = control.INTERRUPTED if isinstance(error, Interrupted) else control.FAILED
            self._say(status, reason=str(error), error=type(error).__name__)
            self._writer.state(f"failed: {error}", peer_failure=isinstance(error, PeerFailedError | LostError))
            raise
        else:
            self._say(control.DONE, summary=self._figures())
            self._writer.state("done")
            return EXIT_DONE
        finally:
            for ps in self._controls:
                ps.close()
            self._close()
            self._writer.close()

    def _figures(self) -> dict[str, Any]:
        """What is told of this task in the run's summary."""
        return {}

    def _close(self) -> None:  # noqa: B027 - most have nothing to end
        """Ends what this task has begun; called once, however it ended."""

    def _work_through_losses(self, stop: StopRequest) -> None:
        """Takes part; again, when a part of the job was lost that may come back."""
        stop.patience_secs = self._config.recover_timeout_secs
        while True:
            try:
                self._writer.state("waiting for the ps tasks")
                limit = self._recovery.limit_secs
                controls = preflight.wait_for_ps(self._cluster, self._config, stop, limit_secs=limit)
                for ps in self._controls:  # not before: there may be a last word to say
                    ps.close()
                self._controls = controls
                self._take_part(stop)
                return
            except StartTimeoutError as error:
                raise self._recovery.explain(error) from error
            except (LostError, tf.errors.OpError) as raised:
                loss = explained(raised, stop, self._has_state)
                if not self._recovery.may_follow(loss):
                    raise loss from (None if loss is raised else raised)
                stop.renew()
                self._writer.state(self._recovery.note(loss))
                self._say(control.LOST, reason=str(loss))

    def _join(self, stop: StopRequest) -> bool:
        """Waits for the chief's run and joins it; returns False where it has ended before."""
        self._writer.state("waiting for the chief")
        before = self._run["run_id"]
        limit = self._recovery.limit_secs
        self._run = preflight.wait_for_run(self._controls, self._cluster, self._config, stop, limit_secs=limit)
        if self._run["status"] == control.ENDED:
            logging.info("the run ended before this worker came")
            return False
        if self._run["run_id"] != before and self._run["start"]["how"] == chief.INITIALISED:
            self._recovery.check_start()
        self._say_joined()
        return True

    def _say_joined(self) -> None:
        """Says that this task joins, with a number larger than those of its joinings before.

        Raises:
            tf.errors.OpError: ps 0 does not answer.
        """
        state = self._controls[0].read(is_patient=True)
        before = preflight.last_joining(state, self._run, self._cluster.worker_index)
        self._joining = max(self._joining, before) + 1
        self._say(control.JOINED)

    def _heartbeat(self) -> Heartbeat:
        timeout = self._config.heartbeat_timeout_secs
        return Heartbeat(self._controls, self._run["run_id"], self._cluster.worker_index, timeout)

    def _has_state(self) -> bool:
        """Whether every ps task still is the one on which the run was set up."""
        return preflight.incarnations(self._controls) == self._run["ps"]

    def _say(self, status: str, **content: Any) -> None:
        message = {"run_id": self._run["run_id"], "worker": self._cluster.worker_index, "status": status, **content}
        message |= {"facts": self._facts, "joining": self._joining}
        preflight.say_everywhere(self._controls, message)
