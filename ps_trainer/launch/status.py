"""`Board` and `TaskStatus`: the state of a running cluster, read from the metrics files of its tasks.

A task appends JSON objects to `<logdir>/metrics/<task>.jsonl`; any key may be missing:

    {"kind": "state", "wall_time": 1690000000.0, "state": "waiting for ps-0"}
    {"kind": "train", "wall_time": …, "global_step": 120, "local_step": 60, "steps_per_sec": 55.1,
     "examples_per_sec": 1763.0, "loss": 0.31, "staleness_mean": 0.98, "gradients_dropped": 3}
    {"kind": "eval", "wall_time": …, "global_step": 1000, "metrics": {"loss": 0.08, "accuracy": 0.979}}

    {"kind": "reached", "wall_time": …, "global_step": 203}      only with faults (`training/worker_faults.py`)
    {"kind": "event", "wall_time": …, "event": "raise", "task": "worker-1", "global_step": 100, "fault": …}

A state line may contain `"peer_failure": true`: the task is about to fail only because another task failed.
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
from ps_trainer.launch.worker_totals import WorkerTotals
from ps_trainer.worker_reports import WorkerReport

# Six reports of each worker with the default of --report_secs.
RATE_WINDOW_SECS = 30.0
# Two workers report at nearly the same time. A report lags behind by the steps of a call, and two reports that are
# closer than this lie within that error.
MIN_RATE_SECS = 1.0

# Prefixes of lines that are not states. A later state must not replace them, so they are kept apart.
_NOTE, _WARNING = "note: ", "warning: "
_FAILED = "failed: "  # the start of a failed worker's last state
_DONE = "done"  # a worker that still runs after it only helps the chief to evaluate


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportedEvaluation:
    """An evaluation that a task has reported.

    Attributes:
        global_step: Step of the evaluated parameters.
        wall_time: Time of the evaluation in seconds since the epoch.
        metrics: Test metrics by name.
    """

    global_step: int
    wall_time: float
    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportedEvent:
    """An event that a task has reported.

    Attributes:
        event: Name of the event, such as "raise".
        fault: Fault that caused the event, as the user gave it; None if the task named none.
        global_step: Step of the event; None if the task named none.
    """

    event: str
    fault: str | None
    global_step: int | None


class TaskStatus:
    """The latest reports of one task. Numbers are None until the task has reported them.

    Args:
        process: Process of the task.
        metrics_path: Path of its metrics file.

    Attributes:
        totals: Sums over all reports, for a worker.
        is_done: Whether the task has reported that its part of the run is done; it may still run.
    """

    def __init__(self, process: TaskProcess, metrics_path: pathlib.Path):
        self.process = process
        self.global_step: int | None = None
        self.totals = WorkerTotals()
        self.steps_per_sec: float | None = None
        self.examples_per_sec: float | None = None
        self.loss: float | None = None
        self.staleness: float | None = None
        self.num_reports = 0
        self.evaluations: list[ReportedEvaluation] = []
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.events: list[ReportedEvent] = []
        self.reached_step: int | None = None  # the highest step ever, even if training has since rolled back
        self.is_peer_failure = self.is_done = False
        self._reported_state = "starting"
        self._num_starts = 0
        self._tail = JsonLinesTail(metrics_path)

    @property
    def state(self) -> str:
        """The task's last reported state, or how it ended."""
        if self.process.is_running and not self.process.is_asked_to_end:
            return self._reported_state
        return self.process.outcome()

    @property
    def reason(self) -> str:
        """The reason that the task reported for its failure; empty if it reported none."""
        return self._reported_state.removeprefix(_FAILED) if self._reported_state.startswith(_FAILED) else ""

    def read(self) -> list[tuple[float, int]]:
        """Reads the new lines; returns (wall time, global step) of the new training reports."""
        if self._num_starts != self.process.num_starts:
            self._begin_again()
        seen = []
        for record in self._tail.read():
            wall_time, global_step = _number(record, "wall_time"), _count(record, "global_step")
            kind = record.get("kind")
            if kind == "state" and str(record.get("state")).startswith(_WARNING):
                self.warnings.append(str(record["state"]))
            elif kind == "state" and str(record.get("state")).startswith(_NOTE):
                self.notes.append(str(record["state"]).removeprefix(_NOTE))
            elif kind == "state":
                self._reported_state = str(record.get("state", self._reported_state))
                self.is_peer_failure = record.get("peer_failure") is True
                self.is_done = (self.is_done or self._reported_state == _DONE) and not self.reason
            elif kind == "train":
                self._take_report(record)
                if wall_time is not None and global_step is not None:
                    seen.append((wall_time, global_step))
            elif kind == "eval":
                self._take_evaluation(record)
            elif kind == "event":
                self.events.append(_event(record))
            if kind in ("train", "reached") and global_step is not None:
                self.reached_step = max(global_step, self.reached_step or 0)
        return seen

    def _begin_again(self) -> None:
        """Resets the state of the previous process after a restart."""
        self._num_starts = self.process.num_starts
        self._reported_state = "starting"
        self.is_peer_failure = self.is_done = False

    def _take_report(self, record: Mapping[str, Any]) -> None:
        self.num_reports += 1
        self.global_step = _count(record, "global_step", self.global_step)
        self.steps_per_sec = _number(record, "steps_per_sec", self.steps_per_sec)
        self.examples_per_sec = _number(record, "examples_per_sec", self.examples_per_sec)
        self.loss = _number(record, "loss", self.loss)
        self.staleness = _number(record, "staleness_mean", self.staleness)
        local_step = _count(record, "local_step")
        if local_step is not None:
            report = WorkerReport(local_step, _number(record, "wall_time"), _number(record, "steps_per_sec"))
            self.totals.add(report, staleness=_number(record, "staleness_mean"))

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
    """The status of all tasks, and figures of the whole run.

    Args:
        processes: Tasks in the order of display, not started yet.
        metrics_dir: Folder of the metrics files, which need not exist yet. Existing lines are ignored.
        max_steps: Value of `global_step` at which training ends, or None.
    """

    def __init__(self, processes: Sequence[TaskProcess], metrics_dir: pathlib.Path, max_steps: int | None):
        self.tasks = [TaskStatus(process, metrics_dir / f"{process.name}.jsonl") for process in processes]
        self.max_steps = max_steps
        self._steps: collections.deque[tuple[float, int]] = collections.deque()

    def refresh(self) -> None:
        """Reads the lines that the tasks have written since the last call."""
        # Sorted, because each task's file is read to its end before the next one, and the rate needs the order of time.
        for seen in sorted(step for task in self.tasks for step in task.read()):
            self._steps.append(seen)
        # Two reports stay even if they are further apart than the window: a rate needs two.
        while len(self._steps) > 2 and self._steps[-1][0] - self._steps[0][0] > RATE_WINDOW_SECS:
            self._steps.popleft()

    def status_of(self, process: TaskProcess) -> TaskStatus:
        """Returns the status of that task."""
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
        """The highest `global_step` that a worker has ever reported in this run."""
        return max((task.reached_step for task in self.workers if task.reached_step is not None), default=None)

    @property
    def events(self) -> list[ReportedEvent]:
        """The events that the tasks have reported."""
        return [event for task in self.tasks for event in task.events]

    @property
    def global_steps_per_sec(self) -> float | None:
        """Rate of `global_step` over the last reports of all workers; None if it is unknown."""
        if len(self._steps) < 2:
            return None
        (began_at, first), (ended_at, last) = self._steps[0], self._steps[-1]
        if ended_at - began_at < MIN_RATE_SECS or last < first:  # the latter after a rollback to a checkpoint
            return None
        return (last - first) / (ended_at - began_at)

    @property
    def examples_per_sec(self) -> float | None:
        """Sum of the examples per second of all running workers."""
        return _sum(task.examples_per_sec for task in self.workers if task.process.is_running)

    @property
    def secs_left(self) -> float | None:
        """Seconds until `max_steps` at the current rate, or None if that is unknown."""
        rate = self.global_steps_per_sec
        if self.max_steps is None or self.global_step is None or not rate or rate < 0:
            return None
        return max(0, self.max_steps - self.global_step) / rate

    @property
    def last_evaluation(self) -> ReportedEvaluation | None:
        """The evaluation of the highest step; if there are several, the latest."""
        found = [evaluation for task in self.tasks for evaluation in task.evaluations]
        return max(found, key=lambda e: (e.global_step, e.wall_time), default=None)


def _event(record: Mapping[str, Any]) -> ReportedEvent:
    fault = record.get("fault")
    return ReportedEvent(
        event=str(record.get("event")),
        fault=fault if isinstance(fault, str) else None,
        global_step=_count(record, "global_step"),
    )


def _number(record: Mapping[str, Any], key: str, default: float | None = None) -> float | None:
    value = record.get(key)
    # For Python True is an int.
    return default if isinstance(value, bool) or not isinstance(value, (int, float)) else value


def _count(record: Mapping[str, Any], key: str, default: int | None = None) -> int | None:
    value = _number(record, key)
    # Python's JSON has NaN and Infinity, which `int` rejects.
    return default if value is None or not math.isfinite(value) else int(value)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
