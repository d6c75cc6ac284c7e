"""`RecordedRun`: the curves and figures of one run, read from the files in its folder.

A run with `--step_log` gives a point per step, any other run one per report (`--report_secs`).
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.comparison import json_files, recorded_summary, run_lines, run_totals
from ps_trainer.comparison.recorded_summary import RecordedSummary
from ps_trainer.comparison.run_lines import EvaluationLine, EventLine, ReportLine
from ps_trainer.comparison.run_totals import RunTotals
from ps_trainer.errors import RunError, UsageError
from ps_trainer.metrics.step_record import StepRecord

X_AXES = {
    "step": "global step",
    "examples": "examples of all workers",
    "secs": "seconds since the first step",
}
# Events of the launcher that disturb a run. Their counterparts, such as `restore` after `cut`, are not drawn.
DISTURBANCES = ("kill", "term", "freeze", "cut", "slow", "raise")


class RunCurve(NamedTuple):
    """Values over each of the `X_AXES`.

    Attributes:
        x: float64 [n] for each key of `X_AXES`.
        y: float64 [n].
    """

    x: Mapping[str, np.ndarray]
    y: np.ndarray


class Disturbance(NamedTuple):
    """A disturbance: seconds since the first step, global step or None, and words such as "kill worker-1"."""

    secs: float
    step: int | None
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """One run.

    Attributes:
        name: Name of its folder, or a longer part of the path where two runs have the same.
        settings: Flags of the run by name, with `num_ps` and `num_workers`.
        summary: Figures of summary.json; None for each while the run trains, and if the chief was killed.
        totals: Figures of the reports, over all joins of the workers.
        loss: Training loss, mean over the steps of a report.
        metrics: Test metrics by name, one point per evaluation.
        throughput: Examples per second of all workers.
        events: Disturbances, in order of time.
    """

    name: str
    settings: Mapping[str, Any]
    summary: RecordedSummary
    totals: RunTotals
    loss: RunCurve
    metrics: Mapping[str, RunCurve]
    throughput: RunCurve
    events: Sequence[Disturbance]

    @property
    def update(self) -> str | None:
        """Name of the update rule; None in a folder without config.json."""
        return self.settings.get("update")

    @property
    def global_step(self) -> int:
        """`global_step` at the end, or in the last report if summary.json lacks it."""
        return self.totals.last_step if self.summary.global_step is None else self.summary.global_step

    @property
    def has_partial_summary(self) -> bool:
        """True if summary.json covers fewer steps than the workers reported: workers have joined more than once."""
        return self.summary.local_steps < self.totals.steps

    @property
    def has_partial_gradients(self) -> bool:
        """True if the counts of gradients in summary.json are partial; some update rules count over all joins."""
        return self.has_partial_summary and (self._pushes or 0) < self.totals.steps

    @property
    def gradients_used(self) -> int | None:
        """Number of gradients that updates used, by summary.json; None if it counts none."""
        dropped = self.summary.total(lambda worker: worker.gradients_dropped) or 0
        return self._pushes - dropped if self._pushes else None

    @property
    def gradients_dropped(self) -> int | None:
        """Number of gradients that no update used, by summary.json; None if it counts none."""
        return self.summary.total(lambda worker: worker.gradients_dropped) if self._pushes else None

    @property
    def _pushes(self) -> int | None:
        return self.summary.total(lambda worker: worker.pushes)

    @property
    def num_ps(self) -> int | None:
        """Number of ps tasks; None in a folder without config.json."""
        return self.settings.get("num_ps")

    @property
    def num_workers(self) -> int | None:
        """Number of workers; None in a folder without config.json."""
        return self.settings.get("num_workers")


def read(logdir: pathlib.Path, name: str | None = None) -> RecordedRun:
    """Reads a run, also one that still trains.

    Args:
        logdir: `--logdir` of the run.
        name: Name to show; None = the folder's.

    Raises:
        UsageError: There is no such folder, or it holds no run.
        RunError: A file is damaged, or no worker has reported a step.
    """
    if not logdir.exists():
        raise UsageError(f"{logdir} does not exist; give the --logdir of a run")
    if not logdir.is_dir():
        raise UsageError(f"{logdir} is a file; give the --logdir of a run, which is a folder")
    if not (logdir / "metrics").is_dir():
        raise UsageError(f"{logdir} holds no run: it has no folder metrics/; give the --logdir of a run")
    tasks = {path.stem: run_lines.read_metrics(path) for path in sorted((logdir / "metrics").glob("*.jsonl"))}
    workers = {task: _worker_points(logdir, task, lines.reports) for task, lines in tasks.items() if _is_worker(task)}
    workers = {task: points for task, points in workers.items() if len(points.wall_time)}
    if not workers:
        raise RunError(f"no worker of {logdir} has reported a step yet; wait for --report_secs, or give another run")
    settings = _settings(logdir / "config.json")
    axes = _Axes(workers)
    totals = run_totals.of_reports(
        [tasks[task].reports for task in workers],
        examples=sum(points.examples[-1] for points in workers.values()),
        times=[time for points in workers.values() for time in zip(points.begin, points.wall_time, strict=True)],
        last_step=axes.last_step,
    )
    return RecordedRun(
        name=name or logdir.resolve().name,
        settings=settings,
        summary=recorded_summary.read(logdir / "summary.json"),
        totals=totals,
        loss=axes.loss(),
        metrics=axes.metrics([evaluation for lines in tasks.values() for evaluation in lines.evaluations]),
        throughput=axes.throughput(),
        events=axes.events([event for lines in tasks.values() for event in lines.events]),
    )


def read_all(logdirs: Sequence[pathlib.Path]) -> list[RecordedRun]:
    """Reads several runs and gives each its own name.

    Raises:
        UsageError: A folder is given twice, or `read` rejects one.
        RunError: The same as for `read`.
    """
    paths = [path.resolve() for path in logdirs]
    if len(set(paths)) < len(paths):
        raise UsageError("a run is given twice; give each folder once")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return [read(path, "/".join(path.parts[-depth:])) for path in paths]


class _Points(NamedTuple):
    """Reports of one worker in order of time: arrays [n]. `examples` counts over all joins of the worker.

    `begin` is the time at which the first step of each report began.
    """

    wall_time: np.ndarray
    step: np.ndarray
    examples: np.ndarray
    loss: np.ndarray
    begin: np.ndarray


class _Axes:
    """Relates time, step and examples of a run to each other, by the reports of all workers."""

    def __init__(self, workers: Mapping[str, _Points]):
        self._workers = workers
        self._start = min(points.begin[0] for points in workers.values())
        times = np.concatenate([points.wall_time for points in workers.values()])
        steps = np.concatenate([points.step for points in workers.values()])
        self._order = np.argsort(times, kind="stable")
        self._time, self._step = times[self._order], steps[self._order]

    @property
    def last_step(self) -> int:
        """`global_step` in the last report."""
        return int(self._step[-1])

    def loss(self) -> RunCurve:
        """Returns the mean loss of all workers: each point averages as many successive values as there are workers."""
        losses = np.concatenate([points.loss for points in self._workers.values()])[self._order]
        groups = np.arange(0, len(losses), len(self._workers))
        sizes = np.diff([*groups, len(losses)])
        times, steps, means = (np.add.reduceat(v, groups) / sizes for v in (self._time, self._step, losses))
        return RunCurve(self._x(times, steps), means)

    def throughput(self) -> RunCurve:
        """Returns the examples per second of all workers, between points at equal distances in time."""
        ends = np.linspace(self._start, self._time[-1], num=1 + max(1, min(60, len(self._time) // len(self._workers))))
        examples, middles = self._examples(ends), (ends[1:] + ends[:-1]) / 2
        return RunCurve(self._x(middles, self._step_at(middles)), np.diff(examples) / np.maximum(np.diff(ends), 1e-9))

    def metrics(self, evaluations: Sequence[EvaluationLine]) -> dict[str, RunCurve]:
        """Returns the test metrics. An evaluation belongs to the moment at which the run reached its step."""
        curves = {}
        for name in dict.fromkeys(name for evaluation in evaluations for name in evaluation.metrics):
            chosen = sorted((one.global_step, one.metrics[name]) for one in evaluations if name in one.metrics)
            steps, values = (np.array(column, np.float64) for column in zip(*chosen, strict=True))
            curves[name] = RunCurve(self._x(self._time_of(steps), steps), values)
        return curves

    def events(self, events: Sequence[EventLine]) -> list[Disturbance]:
        """Returns the disturbances among the events."""
        return [
            Disturbance(event.wall_time - self._start, event.global_step, f"{event.event} {event.task}")
            for event in sorted(events, key=lambda event: event.wall_time)
            if event.event in DISTURBANCES
        ]

    def _x(self, times: np.ndarray, steps: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "step": np.asarray(steps, np.float64),
            "examples": self._examples(times),
            "secs": times - self._start,
        }

    def _examples(self, times: np.ndarray) -> np.ndarray:
        """Returns the examples that all workers have processed at these times, interpolated between two reports.

        While a worker is away, from its last report to its next join, it processes none.
        """
        return sum(
            np.interp(
                times,
                np.column_stack([points.begin, points.wall_time]).ravel(),
                np.column_stack([[0.0, *points.examples[:-1]], points.examples]).ravel(),
            )
            for points in self._workers.values()
        )

    def _step_at(self, times: np.ndarray) -> np.ndarray:
        return np.interp(times, [self._start, *self._time], [min(self._step[0], 0.0), *self._step])

    def _time_of(self, steps: np.ndarray) -> np.ndarray:
        """Returns the time at which the run first reached each step; a rolled-back run reaches some steps twice."""
        highest = np.maximum.accumulate(self._step)
        return np.interp(steps, [0.0, *highest], [self._start, *self._time])


def _worker_points(logdir: pathlib.Path, task: str, reports: Sequence[ReportLine]) -> _Points:
    steps = [step for step in run_lines.read_steps(logdir / "steps" / f"{task}.jsonl") if step.loss is not None]
    chosen: Sequence[StepRecord | ReportLine] = steps or reports
    if not chosen:
        none = np.zeros(0)
        return _Points(none, none, none, none, none)
    if steps:
        examples = np.cumsum([step.examples for step in steps], dtype=np.float64)
        ends = np.array([step.wall_time for step in steps])
        begin = np.maximum(
            ends - np.array([step.t_end - step.t_start for step in steps]), np.array([-np.inf, *ends[:-1]])
        )
    else:
        timed = list(run_totals.timed_steps(reports))
        examples = np.cumsum([report.examples for report in timed])
        begin = np.array([report.begin for report in timed])
    wall_time = np.array([report.wall_time for report in chosen])
    step = np.array([report.global_step for report in chosen], np.float64)
    loss = np.array([report.loss for report in chosen], np.float64)
    return _Points(wall_time, step, examples, loss, begin)


def _is_worker(task: str) -> bool:
    return task.startswith(("worker-", "chief-"))


def _settings(path: pathlib.Path) -> dict[str, Any]:
    """Returns the flags of the run in config.json, with `num_ps` and `num_workers`; empty without the file."""
    config = json_files.read_object(path)
    cluster = json_files.member(config, "cluster", json_files.OBJECT, path, {})
    counts = {}
    for job, name in (("ps", "num_ps"), ("worker", "num_workers")):
        tasks = json_files.member(cluster, job, (*json_files.LIST, *json_files.OBJECT), path, None)
        if tasks is not None:
            counts[name] = len(tasks)
    if "num_workers" in counts:
        counts.setdefault("num_ps", 0)  # the workers hold the parameters
    return counts | json_files.member(config, "train", json_files.OBJECT, path, {})
