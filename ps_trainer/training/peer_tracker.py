"""`PeerTracker`: the other workers of a job, as one worker follows them from the start to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from absl import logging

from ps_trainer.cluster.worker_groups import WorkerGroup
from ps_trainer.config import TrainConfig
from ps_trainer.errors import StalledError, StartTimeoutError
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import FINAL, RunRecord, RunStatus, Status, WorkerEntry
from ps_trainer.runtime.watcher import Reactions, Watcher
from ps_trainer.training.absences import Absences
from ps_trainer.training.stage_workers import StageWorkers
from ps_trainer.updates.chief_service import ChiefService

_POLL_SECS = 0.1
_SAY_SECS = 1.0  # shorter waits are not worth a line


class PeerNeed(NamedTuple):
    """The other workers that the update of one worker needs.

    Attributes:
        min_workers: Smallest number of workers that make updates.
        service: Service that hears which workers come and leave; None on other workers than the chief, or without one.
        all_at_once: Whether each step needs every worker, so that the loss of one ends the steps of all.
        is_crash_safe: Whether the state on the ps tasks stays right when a worker dies in the middle of a step.
    """

    min_workers: int
    service: ChiefService | None = None
    all_at_once: bool = False
    is_crash_safe: bool = True


class PeerTracker:
    """Waits for the other workers at the start and at the end, and acts when one of them comes, ends or is lost.

    The other workers are those that train. `StageWorkers` follows the workers that compute stages for this one.

    Args:
        group: Group of this worker, which trains.
        config: Settings of the run.
        controls: Client of each ps task.
        run: Record of the run.
        need: The other workers that the update needs.
        stop: Request by which the job is stopped when this worker cannot continue.
        writer: Log of the task's states, such as a wait.
        on_poll: Callback a few times a second, with `waited_at`. Its errors ask the job to stop.
    """

    def __init__(
        self,
        group: WorkerGroup,
        config: TrainConfig,
        controls: Sequence[PsControl],
        run: RunRecord,
        *,
        need: PeerNeed,
        stop: StopRequest,
        writer: MetricsWriter,
        on_poll: Callable[[float], None],
    ):
        if group.cluster is None:
            raise ValueError("this worker computes a stage for another one, so it has no peers")
        self._cluster = cluster = group.cluster  # only the workers that train are in it
        self._stages = StageWorkers(group, config, stop)
        self._config = config
        self._min_workers = need.min_workers
        self._service = need.service
        self._stop = stop
        self._writer = writer
        self._on_poll = on_poll
        self._absences = Absences(
            config,
            cluster.num_workers,
            self._min_workers,
            need.service,
            needs_all=need.all_at_once,
            is_crash_safe=need.is_crash_safe,
            stop=stop,
            report=writer.state,
        )
        self._started_at = time.monotonic()
        self._watcher = Watcher(
            controls,
            run,
            cluster.worker_index,
            stop,
            Reactions(
                on_worker_start=self._unless_stage(self._absences.on_worker_start, self._stages.on_worker_start),
                # Most rules need no action here: the `join_op` replaces what the worker's former process left behind.
                on_worker_return=self._unless_stage(self._absences.on_worker_return, self._stages.on_worker_return),
                on_worker_end=self._unless_stage(
                    self._absences.on_worker_end, lambda index, status, _: self._stages.on_worker_end(index, status)
                ),
                on_poll=self._poll,
            ),
            lost_after_secs=config.heartbeat_timeout_secs,
            poll_secs=config.watch_secs,
        )

    @property
    def waited_at(self) -> float:
        """Time at which a worker that may come back was last gone, by `time.monotonic`."""
        return self._absences.waited_at

    @property
    def is_target_reached(self) -> bool:
        """Whether the chief has announced that the target metric is reached."""
        return bool(self._watcher.reached)

    @property
    def roster(self) -> dict[int, WorkerEntry]:
        """Last report of each worker that trains, by index."""
        return {i: entry for i, entry in self._watcher.roster.items() if i < self._cluster.num_workers}

    def start(self) -> None:
        """Begins to follow the other workers."""
        self._watcher.start()

    def close(self) -> None:
        """Ends the watcher; returns when it calls nothing any more."""
        self._watcher.close()

    def wait_for_stages(self, limit_secs: float) -> None:
        """Waits until the workers that compute stages for this one have joined.

        Args:
            limit_secs: Longest wait.

        Raises:
            StartTimeoutError: One has not joined in time.
        """
        self._stages.wait(limit_secs)

    def wait_for_start(self, limit_secs: float) -> bool:
        """Waits until all workers are ready to train; after `join_wait_secs`, for as many as the rule needs.

        The early workers wait for the late ones, so that they do not train alone on the first batches.

        Args:
            limit_secs: Longest wait for the workers that the rule needs.

        Returns:
            False if the run has ended in the meantime.

        Raises:
            StartTimeoutError: Fewer workers than the update rule needs came in time.
        """
        entered_at, is_reported = time.monotonic(), False
        while missing := self._not_ready():
            waited = time.monotonic() - self._started_at
            names = ", ".join("{}-{}".format(*self._cluster.worker_tasks[index]) for index in missing)
            num_ready = self._cluster.num_workers - len(missing)
            if waited > self._config.join_wait_secs and num_ready >= self._min_workers:
                logging.warning("starting without %s, which did not join within %.0f s", names, waited)
                for index in missing:
                    if self._service is not None:
                        self._service.worker_left(index, self._ended_join_number(index))
                break
            if waited > limit_secs:
                raise StartTimeoutError(
                    f"update rule {self._config.update} needs {self._min_workers} workers; {names} did not join within"
                    f" {waited:.0f} s. Start them, or look at their logs. To wait longer, raise"
                    " --start_timeout_secs, or --recover_timeout_secs after a loss"
                )
            if not is_reported and time.monotonic() - entered_at > _SAY_SECS:
                self._writer.state(f"waiting for {names}")
                is_reported = True
            self._stop.check()
            self._stop.wait(_POLL_SECS)
        self._stop.check()  # a failed run counts its workers as ready, too
        return self._cluster.is_chief or self._watcher.run_status is not RunStatus.ENDED

    def wait_for_end(self, read_step: Callable[[], int]) -> None:
        """Waits, on the chief, until every worker that joined has ended.

        Args:
            read_step: Function that reads `global_step`.

        Raises:
            StalledError: `global_step` stood still for `stall_timeout_secs`.
        """
        step, moved_at, is_reported = -1, time.monotonic(), False
        while missing := self._not_ended():
            if not is_reported:
                self._writer.state(f"waiting for worker {', '.join(map(str, missing))}")
                is_reported = True
            self._stop.check()
            now_step = read_step()
            if now_step != step:
                step, moved_at = now_step, time.monotonic()
            elif time.monotonic() - max(moved_at, self.waited_at) > self._config.stall_timeout_secs:
                raise StalledError(
                    f"worker {missing} completed no step for {self._config.stall_timeout_secs:.0f} s and did not end;"
                    " look at its log, or raise --stall_timeout_secs"
                )
            self._stop.wait(_POLL_SECS)

    def _poll(self) -> None:
        self._absences.check()
        self._on_poll(self.waited_at)

    def _unless_stage(self, of_worker: Callable[..., None], of_stage: Callable[..., None]) -> Callable[..., None]:
        return lambda index, *details: (of_worker if index < self._cluster.num_workers else of_stage)(index, *details)

    def _ended_join_number(self, index: int) -> int:
        """Returns the join number of the last process that has left, of a worker that is not ready."""
        entry = self.roster.get(index)
        if entry is None:
            return 0
        return entry.joining - 1 if entry.status is Status.JOINED else entry.joining

    def _not_ready(self) -> list[int]:
        # An interrupted worker was often preempted and comes again. Only a rule that needs others waits for that.
        absent = (Status.JOINED, Status.LOST, *((Status.INTERRUPTED,) if self._min_workers > 1 else ()))
        ready = {index for index, entry in self.roster.items() if entry.status not in absent}
        return sorted(set(range(self._cluster.num_workers)) - ready)

    def _not_ended(self) -> list[int]:
        """Returns the workers that still train: those that joined and, in a run up to its data, may still join."""
        is_up_to_data = self._config.max_steps is None and not self.is_target_reached
        # If the run ends with its data, a lost worker still has some to train on.
        ended = FINAL if is_up_to_data else (*FINAL, Status.LOST)
        missing = [i for i, entry in self.roster.items() if i and entry.status not in ended]
        if is_up_to_data and time.monotonic() - self._started_at < self._config.start_timeout_secs:
            missing += [i for i in range(1, self._cluster.num_workers) if i not in self.roster]
        return sorted(missing)
