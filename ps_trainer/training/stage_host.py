"""`StageHost`: a worker that computes a stage of the model for another worker, and ends with that worker."""

from __future__ import annotations

import threading

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import WorkerGroup
from ps_trainer.config import TrainConfig
from ps_trainer.errors import PeerFailedError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import RunStatus, Status
from ps_trainer.runtime.watcher import Reactions, Watcher
from ps_trainer.training.worker_task import WorkerTask

_POLL_SECS = 0.1


class StageHost(WorkerTask):
    """Lends its device to the worker that trains for its group.

    The session of that worker places the stage's ops on this task's server. They exchange parameters and gradients with
    the ps tasks directly. This task builds no graph and reads no data. It joins the run, so that all tasks notice its
    loss, and ends when the other worker has ended.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run.
        group: Group of this task.
        server: Server of this task.
    """

    def __init__(self, cluster: ClusterConfig, config: TrainConfig, group: WorkerGroup, server: tf.train.Server):
        super().__init__(cluster, config)
        self._group = group
        self._server = server  # kept, since TensorFlow ends a server without a reference to it
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
                Reactions(
                    on_worker_start=self._worker_started,
                    on_worker_end=lambda index, status, join_number: self._worker_ended(index, status, stop),
                ),
                lost_after_secs=self._config.heartbeat_timeout_secs,
                poll_secs=self._config.watch_secs,
            )
            self._send_status(Status.TRAINING)
            self._writer.state(f"computing stage {self._group.stage} for {self._group.names[0]}")
            watcher.start()
            try:
                while not (self._is_over.is_set() or self._is_left_behind(watcher)):
                    stop.check()
                    stop.wait(_POLL_SECS)
                stop.check()  # a failed run ends the loop, too
            finally:
                watcher.close()

    def _is_left_behind(self, watcher: Watcher) -> bool:
        """Returns whether the run is over, and the worker that trains for this group is lost or never came."""
        trainer = watcher.roster.get(self._group.members[0])
        return watcher.run_status is RunStatus.ENDED and (trainer is None or trainer.status is Status.LOST)

    def _worker_started(self, index: int) -> None:
        if index == self._group.members[0]:
            self._recovery.note_step(0)  # a step for the group, so earlier losses do not count for the limit

    def _worker_ended(self, index: int, status: Status, stop: StopRequest) -> None:
        """Ends this task with the worker that trains for its group. One that is lost may come back, and need it."""
        if index != self._group.members[0] or status == Status.LOST:
            return
        if status == Status.DONE:
            self._is_over.set()
        else:
            stop.request(PeerFailedError(f"{self._group.names[0]} {status}, for which this task computes a stage"))
