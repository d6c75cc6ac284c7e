"""`Summary`: figures of a schedule, computed block by block, so that long runs need little memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ps_trainer.simulation.schedule import DROPPED, LOCAL, Schedule, ScheduleBlock, StepColumns, before_of_worker

WARMUP_SHARE = 0.2
"""Share of the updates, at the start, that all figures leave out."""


class TimeSpread(NamedTuple):
    """Mean and percentiles of durations, in seconds."""

    mean: float
    p10: float
    p50: float
    p90: float


class Summary(NamedTuple):
    """Figures of a run without its first updates.

    Attributes:
        num_workers: Number of workers in the cluster.
        num_updates: Number of updates that are counted.
        num_warmup_updates: Number of updates that are left out.
        duration_secs: Seconds from the last update left out to the last update.
        update_secs: Time from one update to the next.
        step_secs: Time from the end of a worker's step to the end of its next step, including waiting.
        num_steps: Number of steps that ended.
        staleness: int64; staleness[i] is the number of used gradients with staleness i.
        used: int64 [num_workers], used gradients of each worker.
        dropped: int64 [num_workers], dropped gradients of each worker.
        local: int64 [num_workers], steps without a push of each worker.
        mean_staleness: float64 [num_workers], mean staleness of each worker's used gradients; NaN if it has none.
        wait_share: float64 [num_workers], share of its time that each worker waits for others.
    """

    num_workers: int
    num_updates: int
    num_warmup_updates: int
    duration_secs: float
    update_secs: TimeSpread
    step_secs: TimeSpread
    num_steps: int
    staleness: np.ndarray
    used: np.ndarray
    dropped: np.ndarray
    local: np.ndarray
    mean_staleness: np.ndarray
    wait_share: np.ndarray

    @property
    def updates_per_sec(self) -> float:
        """Updates per second of virtual time."""
        return self.num_updates / self.duration_secs

    @property
    def gradients_per_sec(self) -> float:
        """Used gradients per second of virtual time."""
        return int(self.used.sum()) / self.duration_secs

    @property
    def dropped_share(self) -> float:
        """Share of the pushed gradients that are dropped."""
        pushed = int(self.used.sum() + self.dropped.sum())
        return int(self.dropped.sum()) / pushed if pushed else 0.0

    def staleness_mean(self) -> float:
        """Computes the mean staleness of the used gradients."""
        return float(np.average(np.arange(len(self.staleness)), weights=self.staleness))

    def staleness_deviation(self) -> float:
        """Computes the standard deviation of the staleness of the used gradients."""
        squares = (np.arange(len(self.staleness)) - self.staleness_mean()) ** 2
        return float(np.sqrt(np.average(squares, weights=self.staleness)))

    def staleness_percentile(self, percent: float) -> int:
        """Computes the staleness that `percent` of the used gradients do not exceed."""
        cumulated = np.cumsum(self.staleness)
        return int(np.searchsorted(cumulated, percent / 100 * cumulated[-1]))


class Summariser:
    """Makes a `Summary` of blocks.

    Args:
        num_workers: Number of workers in the cluster.
        num_updates: Number of updates of the whole run.
    """

    def __init__(self, num_workers: int, num_updates: int):
        self._num_workers = num_workers
        self._num_updates = num_updates
        self._num_warmup = int(WARMUP_SHARE * num_updates)
        # Infinite until the last update of the warm-up is seen: no step before it counts.
        self._begin = 0.0 if not self._num_warmup else np.inf
        self._num_seen = 0
        self._ended = np.zeros(num_workers)  # end of each worker's last step
        self._update_secs: list[np.ndarray] = []
        self._step_secs: list[np.ndarray] = []
        self._staleness = np.zeros(1, np.int64)
        self._counts = {kind: np.zeros(num_workers, np.int64) for kind in ("used", "dropped", "local")}
        self._sums = {kind: np.zeros(num_workers) for kind in ("staleness", "waited", "taken")}

    def add(self, block: ScheduleBlock) -> None:
        """Adds the next block."""
        seen = self._num_seen + len(block.update_secs)
        if self._num_seen < self._num_warmup <= seen:
            self._begin = block.update_secs[self._num_warmup - 1 - self._num_seen]
        self._num_seen = seen
        self._update_secs.append(block.update_secs)
        # Also for steps of the warm-up: the first counted step of a worker begins where its last one ended.
        before = before_of_worker(block.steps.worker, block.steps.t_push_done, self._ended)
        counted = block.steps.t_push_done > self._begin
        self._count(block.steps.select(counted), before[counted])

    def result(self) -> Summary:
        """Computes the summary of all blocks that were added."""
        updates = np.concatenate(self._update_secs)
        first = self._num_warmup
        intervals = np.diff(updates[max(first - 1, 0) :], prepend=[0.0] if not first else [])
        steps = np.concatenate(self._step_secs)
        # A worker without used gradients has the mean 0 / 0: NaN, and no warning.
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_staleness = self._sums["staleness"] / self._counts["used"]
            wait_share = self._sums["waited"] / self._sums["taken"]
        return Summary(
            num_workers=self._num_workers,
            num_updates=len(updates) - first,
            num_warmup_updates=first,
            duration_secs=float(updates[-1] - self._begin),
            update_secs=_spread(intervals),
            step_secs=_spread(steps),
            num_steps=len(steps),
            staleness=self._staleness,
            mean_staleness=mean_staleness,
            wait_share=wait_share,
            **self._counts,
        )

    def _count(self, steps: StepColumns, before: np.ndarray) -> None:
        is_used = steps.update >= 0
        masks = {"used": is_used, "dropped": steps.update == DROPPED, "local": steps.update == LOCAL}
        for kind, mask in masks.items():
            self._counts[kind] += np.bincount(steps.worker[mask], minlength=self._num_workers)
        values = {
            "staleness": np.where(is_used, steps.staleness, 0),
            "waited": steps.t_start - before,
            "taken": steps.t_push_done - before,
        }
        for kind, value in values.items():
            self._sums[kind] += np.bincount(steps.worker, value, self._num_workers)
        staleness = np.bincount(steps.staleness[is_used], minlength=len(self._staleness))
        staleness[: len(self._staleness)] += self._staleness
        self._staleness = staleness
        # Percentiles need all durations until the end; four bytes each are exact enough for them.
        self._step_secs.append(values["taken"].astype(np.float32))


def summarise(blocks: Iterable[ScheduleBlock], num_workers: int, num_updates: int) -> Summary:
    """Computes the summary of a whole run from its blocks.

    Args:
        blocks: All blocks of the schedule.
        num_workers: Number of workers in the cluster.
        num_updates: Number of updates of the run.
    """
    summariser = Summariser(num_workers, num_updates)
    for block in blocks:
        summariser.add(block)
    return summariser.result()


def summarise_schedule(schedule: Schedule) -> Summary:
    """Computes the summary of a schedule."""
    block = ScheduleBlock(schedule.steps, schedule.update_secs)
    return summarise([block], schedule.num_workers, schedule.num_updates)


def _spread(secs: np.ndarray) -> TimeSpread:
    return TimeSpread(float(np.mean(secs)), *(float(p) for p in np.percentile(secs, [10, 50, 90])))
