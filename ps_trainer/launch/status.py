"""What is known about the tasks of a run while it goes on, gathered from their metrics files.

A task appends JSON objects to `<logdir>/metrics/<task>.jsonl`; any key may be missing:

    {"kind": "state", "wall_time": 1690000000.0, "state": "waiting for ps-0"}
    {"kind": "train", "wall_time": …, "global_step": 120, "local_step": 60, "steps_per_sec": 55.1,
     "examples_per_sec": 1763.0, "loss": 0.31, "staleness_mean": 0.98, "dropped": 0}
    {"kind": "eval", "wall_time": …, "global_step": 1000, "metrics": {"loss": 0.08, "accuracy": 0.979}}

    {"kind": "reached", "wall_time": …, "global_step": 203}      of a drill: see `disturbances/worker_faults.py`
    {"kind": "event", "wall_time": …, "event": "raise", "task": "worker-1", "global_step": 100, "fault": …}

A state line may carry `"peer_failure": true`: the task is about to fail only because another one did.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.tail import JsonLinesTail

RATE_WINDOW_SECS = 30.0

_FAILED = "failed: "  # how a worker's last state begins


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportedEvaluation:
    """One evaluation: value of `global_step`, time of day in seconds, metrics by name."""

    global_step: int
    wall_time: float
    metrics: Mapping[str, float]


class TaskStatus:
    """The latest of one task. Numbers are None until the task has reported them.

    Args:
        process: the task.
        metrics_path: its metrics file.
    """

    def __init__(self, process: TaskProcess, metrics_path: pathlib.Path):
        self.process = process
        self.global_step: int | None = None
        self.local_step: int | None = None
        self.steps_per_sec: float | None = None
        self.examples_per_sec: float | None = None
        self.loss: float | None = None
        self.staleness: float | None = None
        self.num_reports = 0
        self.evaluations: list[ReportedEvaluation] = []
        self.events: list[Mapping[str, Any]] = []
        self.reached_step: int | None = None  # the highest ever, also where training has gone back since
        self.is_peer_failure = False
        self._reported_state = "starting"
        self._first_report: tuple[float, int] | None = None  # wall time, local step
        self._last_report: tuple[float, int] | None = None
        self._num_starts = 0
        self._tail = JsonLinesTail(metrics_path)

    @property
    def state(self) -> str:
        """What the task says that it does, or how it ended."""
        if self.process.is_running and not self.process.is_asked_to_end:
            return self._reported_state
        return self.process.outcome()

    @property
    def reason(self) -> str:
        """Why it failed, in its own words; empty where it has not said."""
        return self._reported_state.removeprefix(_FAILED) if self._reported_state.startswith(_FAILED) else ""

    @property
    def mean_steps_per_sec(self) -> float | None:
        """The worker's own steps per second between its first and its last report."""
        first, last = self._first_report, self._last_report
        if first is None or last is None or first[0] >= last[0]:
            return self.steps_per_sec
        return (last[1] - first[1]) / (last[0] - first[0])

    def read(self) -> list[tuple[float, int]]:
        """Takes in the new lines; returns (wall time, global step) of the new training reports."""
        if self._num_starts != self.process.num_starts:
            self._begin_again()
        seen = []
        for record in self._tail.read():
            wall_time, global_step = _number(record, "wall_time"), _count(record, "global_step")
            kind = record.get("kind")
            if kind == "state":
                self._reported_state = str(record.get("state", self._reported_state))
                self.is_peer_failure = record.get("peer_failure") is True
            elif kind == "train":
                self._take_report(record)
                if wall_time is not None and global_step is not None:
                    seen.append((wall_time, global_step))
            elif kind == "eval":
                self._take_evaluation(record)
            elif kind == "event":
                self.events.append(record)
            if kind in ("train", "reached") and global_step is not None:
                self.reached_step = max(global_step, self.reached_step or 0)
        return seen

    def _begin_again(self) -> None:
        """The task is a new process."""
        self._num_starts = self.process.num_starts
        self._reported_state = "starting"
        self.is_peer_failure = False
        self._first_report = self._last_report = None

    def _take_report(self, record: Mapping[str, Any]) -> None:
        self.num_reports += 1
        self.global_step = _count(record, "global_step", self.global_step)
        self.local_step = _count(record, "local_step", self.local_step)
        self.steps_per_sec = _number(record, "steps_per_sec", self.steps_per_sec)
        self.examples_per_sec = _number(record, "examples_per_sec", self.examples_per_sec)
        self.loss = _number(record, "loss", self.loss)
        self.staleness = _number(record, "staleness_mean", self.staleness)
        wall_time, local_step = _number(record, "wall_time"), _count(record, "local_step")
        if wall_time is not None and local_step is not None:
            self._last_report = (wall_time, local_step)
            self._first_report = self._first_report or self._last_report

    def _take_evaluation(self, record: Mapping[str, Any]) -> None:
        given = record.get("metrics")
        names = given if isinstance(given, Mapping) else {}
        metrics = {str(name): value for name in names if (value := _number(names, name)) is not None}
        step = _count(record, "global_step") or 0
        self.global_step = step if self.process.job_name == "evaluator" else self.global_step
        self.loss = metrics.get("loss", self.loss) if self.process.job_name == "evaluator" else self.loss
        self.evaluations.append(
            ReportedEvaluation(global_step=step, wall_time=_number(record, "wall_time") or 0.0, metrics=metrics)
        )


class Board:
    """The status of all tasks, and what follows from them together.

    Args:
        processes: the tasks, in the order of display; not yet started.
        metrics_dir: folder of the metrics files; need not exist yet. Lines already there do not count.
        max_steps: value of `global_step` at which training ends, or None.
    """

    def __init__(self, processes: Sequence[TaskProcess], metrics_dir: pathlib.Path, max_steps: int | None):
        self.tasks = [TaskStatus(process, metrics_dir / f"{process.name}.jsonl") for process in processes]
        self.max_steps = max_steps
        self._steps: collections.deque[tuple[float, int]] = collections.deque()

    def refresh(self) -> None:
        """Takes in what the tasks have written since."""
        for seen in sorted(step for task in self.tasks for step in task.read()):
            self._steps.append(seen)
        while len(self._steps) > 2 and self._steps[-1][0] - self._steps[0][0] > RATE_WINDOW_SECS:
            self._steps.popleft()

    def status_of(self, process: TaskProcess) -> TaskStatus:
        """The status of that task."""
        return next(task for task in self.tasks if task.process is process)

    @property
    def workers(self) -> list[TaskStatus]:
        """The worker tasks."""
        return [task for task in self.tasks if task.process.job_name == "worker"]

    @property
    def global_step(self) -> int | None:
        """The highest `global_step` that a worker reported."""
        return max((task.global_step for task in self.workers if task.global_step is not None), default=None)

    @property
    def reached_step(self) -> int | None:
        """The highest `global_step` that a worker has ever reached in this run, as far as is known."""
        return max((task.reached_step for task in self.workers if task.reached_step is not None), default=None)

    @property
    def events(self) -> list[Mapping[str, Any]]:
        """The events that tasks have written of themselves."""
        return [event for task in self.tasks for event in task.events]

    @property
    def global_steps_per_sec(self) -> float | None:
        """Rate of `global_step` over the last reports (all workers together); None where it is not known."""
        if len(self._steps) < 2 or self._steps[-1][0] <= self._steps[0][0] or self._steps[-1][1] < self._steps[0][1]:
            return None  # the latter when training has gone back to a checkpoint
        return (self._steps[-1][1] - self._steps[0][1]) / (self._steps[-1][0] - self._steps[0][0])

    @property
    def examples_per_sec(self) -> float | None:
        """Examples per second of the running workers together."""
        return _sum(task.examples_per_sec for task in self.workers if task.process.is_running)

    @property
    def secs_left(self) -> float | None:
        """Seconds until `max_steps` at the present rate, or None where that is not known."""
        rate = self.global_steps_per_sec
        if self.max_steps is None or self.global_step is None or not rate or rate < 0:
            return None
        return max(0, self.max_steps - self.global_step) / rate

    @property
    def last_evaluation(self) -> ReportedEvaluation | None:
        """The evaluation of the highest step, the latest of several."""
        found = [evaluation for task in self.tasks for evaluation in task.evaluations]
        return max(found, key=lambda e: (e.global_step, e.wall_time), default=None)


def _number(record: Mapping[str, Any], key: str, default: float | None = None) -> float | None:
    value = record.get(key)
    return default if isinstance(value, bool) or not isinstance(value, (int, float)) else value


def _count(record: Mapping[str, Any], key: str, default: int | None = None) -> int | None:
    value = _number(record, key)
    return default if value is None or not math.isfinite(value) else int(value)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
