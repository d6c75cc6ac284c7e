"""A worker that computes a stage of the model for another one: its server does that, and it stays until it is done."""

from __future__ import annotations

import threading

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.groups import Group
from ps_trainer.config import TrainConfig
from ps_trainer.errors import PeerFailedError
from ps_trainer.runtime.run_record import RunStatus, Status
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.runtime.watcher import Watcher
from ps_trainer.training.worker_task import WorkerTask

_POLL_SECS = 0.1


class StageHost(WorkerTask):
    """Lends its device to the worker that trains for its group.

    That worker's session has the stage's ops here; parameters come to them from the ps tasks, and gradients go back,
    without a detour. This task builds no graph and reads no data: it joins the run, so that all know whether it is
    there, and ends when the other one has ended.

    Args:
        cluster: with this task's place in it.
        config: the run.
        group: of this task.
        server: this task's server.
    """

    def __init__(self, cluster: ClusterConfig, config: TrainConfig, group: Group, server: tf.train.Server):
        super().__init__(cluster, config)
        self._group = group
        self._server = server  # lives as long as this task
        self._is_over = threading.Event()

    def _take_part(self, stop: StopRequest) -> None:
        if not self._join(stop):
            return
        with self._heartbeat():
            watcher = Watcher(
                self._controls,
                self._current_run,
                self._cluster.worker_index,
                stop,
                on_worker_start=self._worker_started,
                on_worker_return=lambda index: None,
                on_worker_end=lambda index, status, joining: self._worker_ended(index, status, stop),
                on_poll=lambda: None,
                lost_after_secs=self._config.heartbeat_timeout_secs,
            )
            self._say(Status.TRAINING)
            self._writer.state(f"computing stage {self._group.stage} for {self._group.names[0]}")
            watcher.start()
            try:
                while not (self._is_over.is_set() or self._is_left_behind(watcher)):
                    stop.check()
                    stop.wait(_POLL_SECS)
                stop.check()  # the run has failed meanwhile
            finally:
                watcher.close()

    def _is_left_behind(self, watcher: Watcher) -> bool:
        """Whether the run is over, and the worker that would say how it ended for this group is gone or never came."""
        trainer = watcher.roster.get(self._group.members[0])
        return watcher.run_status is RunStatus.ENDED and (trainer is None or trainer.status is Status.LOST)

    def _worker_started(self, index: int) -> None:
        if index == self._group.members[0]:
            self._recovery.note_step(0)  # what was lost before is not lost in a row with what may be lost now

    def _worker_ended(self, index: int, status: Status, stop: StopRequest) -> None:
        """A worker that is lost may come back, and needs this stage again; one that failed does not."""
        if index != self._group.members[0] or status == Status.LOST:
            return
        if status == Status.DONE:
            self._is_over.set()
        else:
            stop.request(PeerFailedError(f"{self._group.names[0]} {status}, for which this task computes a stage"))
