"""`RosterBook`: the workers of the run that a ps task serves, by their own reports and by their silence."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from absl import logging

from ps_trainer.config import TrainConfig
from ps_trainer.runtime.run_record import FINAL, Message, Roster, Status, StatusMessage, WorkerEntry
from ps_trainer.runtime.suspension import SuspensionDetector

_LATE_SECS = 5.0  # for lost workers to come back when the chief is done, and to hear that the run has ended


class _Loss(NamedTuple):
    """The loss of a worker that may come back.

    Attributes:
        before: Its entry before the loss.
        since: Time of the loss.
        is_presumed: Whether the ps task concluded it from the worker's silence. Then a sign of life disproves it.
    """

    before: WorkerEntry
    since: float
    is_presumed: bool


class RosterBook:
    """Keeps the roster of one run after the other.

    Args:
        config: Settings of the run, of which only the timeouts matter here.
        publish: Function that writes the roster to the control plane.
        free_shards: Function that frees the shards of a worker which does not train any more.
        time_fn: Monotonic time in seconds.

    Attributes:
        run_id: Name of the run; empty before a worker has joined one.
        workers: Last report of each worker, by index.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        publish: Callable[[Roster], None],
        free_shards: Callable[[int], None],
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self._config = config
        self._publish = publish
        self._free_shards = free_shards
        self._time_fn = time_fn
        self._losses: dict[int, _Loss] = {}  # of the workers whose entry is LOST
        self._old_runs: set[str] = set()
        self._heard_at: dict[int, float] = {}
        self._suspension = SuspensionDetector(time_fn())
        self.run_id = ""
        self.workers: dict[int, WorkerEntry] = {}

    def final(self) -> set[int]:
        """Returns the indices of the workers that have ended."""
        return {index for index, entry in self.workers.items() if entry.status in FINAL}

    def present(self) -> set[int]:
        """Returns the indices of the workers that have joined, and have neither ended nor are lost."""
        return {index for index, entry in self.workers.items() if entry.status not in (*FINAL, Status.LOST)}

    def statuses(self) -> set[Status]:
        """Returns the statuses that workers have."""
        return {entry.status for entry in self.workers.values()}

    def describe(self) -> str:
        """Returns the status of each worker, for the log."""
        return ", ".join(f"worker {index} {self.workers[index].status}" for index in sorted(self.workers))

    def is_other_run(self, message: Message) -> bool:
        """Returns whether a message belongs to another run than this one."""
        return bool(message.run_id) and message.run_id != self.run_id

    def is_new_run(self, message: Message) -> bool:
        """Returns whether a worker joins, with this message, a run that this ps task has not served yet."""
        is_joining = isinstance(message, StatusMessage) and message.entry.status is Status.JOINED
        return is_joining and message.run_id not in self._old_runs

    def begin(self, run_id: str) -> None:
        """Begins an empty roster for run `run_id`, which may be empty too."""
        self._old_runs.add(self.run_id)
        self.run_id, self.workers, self._losses, self._heard_at = run_id, {}, {}, {}

    def note_message(self, worker: int) -> None:
        """Notes a sign of life of a worker."""
        self._heard_at[worker] = self._time_fn()

    def bring_back(self, worker: int) -> None:
        """Undoes a loss that was concluded from the worker's silence."""
        loss = self._losses.get(worker)
        if loss is not None and loss.is_presumed:
            logging.info("worker %d is back", worker)
            self._enter(worker, loss.before)

    def report(self, worker: int, entry: WorkerEntry, *, is_presumed: bool = False) -> None:
        """Enters the report of a worker.

        Args:
            worker: Index of the worker.
            entry: The report.
            is_presumed: Whether the ps task reports in place of the worker.
        """
        before = self.workers.get(worker)
        if entry.status is not Status.LOST:
            self._enter(worker, entry)
        elif before is not None and before.status not in (*FINAL, Status.LOST):
            # A later loss hides neither how the worker ended nor the first reason of its loss.
            self._enter(worker, entry)
            self._losses[worker] = _Loss(before, self._time_fn(), is_presumed)

    def find_silent(self) -> Iterator[tuple[int, str]]:
        """Finds the workers whose heartbeat has stopped, and gives index and reason for each.

        A frozen worker is found only here, since its kernel still answers for its port.
        """
        now = self._time_fn()
        # While this task was frozen, their heartbeats queued up in the mail.
        if paused := self._suspension.secs_suspended(now):
            self._heard_at = {worker: heard + paused for worker, heard in self._heard_at.items()}
        for worker, entry in self.workers.items():
            silent = now - self._heard_at[worker]
            if entry.status in (Status.JOINED, Status.TRAINING) and silent > self._config.heartbeat_timeout_secs:
                # The caller only queues this loss. Without this line the next look would find it again.
                self._heard_at[worker] = now
                yield worker, f"no sign of life for {silent:.0f} s: it is frozen, or cut off"

    def give_up_lost(self, chief_ended_at: float | None) -> None:
        """Turns losses into failures: after `recover_timeout_secs`, or soon after the chief has ended the run.

        Args:
            chief_ended_at: Time of the chief's end; None before it.
        """
        limit = self._config.recover_timeout_secs
        if chief_ended_at is not None:
            # A chief that failed ends the run for all workers, so nothing is gained by a wait for a lost one.
            patience = _LATE_SECS if self.workers[0].status is Status.DONE else 0.0
            limit = min(limit, patience)
        for worker, loss in list(self._losses.items()):
            if self._time_fn() - max(loss.since, chief_ended_at or 0.0) >= limit:
                entry = self.workers[worker]
                reason = f"{entry.reason or 'it gave no reason'}; it did not rejoin within {limit:.0f} s"
                self._enter(worker, dataclasses.replace(entry, status=Status.FAILED, reason=reason))

    def _enter(self, worker: int, entry: WorkerEntry) -> None:
        """Makes `entry` the worker's entry, and publishes the roster."""
        before = self.workers.get(worker)
        # A process that ends before it has joined has no join number. It succeeds the process that had the last one.
        join_number = max(entry.joining, before.joining if before is not None else 0)
        self.workers[worker] = dataclasses.replace(entry, joining=join_number)
        self._losses.pop(worker, None)
        if entry.status is not Status.TRAINING:
            # Also when it joins: a new process does not know the shards that its former process held.
            self._free_shards(worker)
        if entry.status in (Status.FAILED, Status.LOST):
            logging.error("worker %d %s: %s", worker, entry.status, entry.reason)
        elif entry.status is not Status.TRAINING:
            logging.info("worker %d %s", worker, entry.status)
        self._publish(Roster(run_id=self.run_id, workers=self.workers))
