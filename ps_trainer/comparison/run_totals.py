"""`RunTotals`: figures of a run over all joins of its workers, from their reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.comparison.run_lines import ReportLine
from ps_trainer.worker_reports import WorkerReport, span_before


class TimedSteps(NamedTuple):
    """The steps of a worker before a report.

    Attributes:
        steps: Number of the steps.
        examples: Number of examples in the steps.
        begin: Begin of the first step in epoch seconds.
        end: Time of the report in epoch seconds.
    """

    steps: int
    examples: float
    begin: float
    end: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunTotals:
    """Figures of a run. They count every step that a worker reported, also one that a rollback undid.

    Attributes:
        steps: Number of steps of all workers.
        examples: Number of examples in the steps.
        examples_per_sec: Examples per second of all workers, without the time in which no worker trained.
        last_step: `global_step` in the last report.
        staleness_mean: Mean staleness of the used gradients.
        gradients_dropped: Number of gradients that no update used; None if the workers pushed none.
        push_bytes_per_step: Bytes to other tasks per step of a worker.
        pull_bytes_per_step: Bytes from other tasks per step of a worker.
    """

    steps: int
    examples: int
    examples_per_sec: float
    last_step: int
    staleness_mean: float | None
    gradients_dropped: int | None
    push_bytes_per_step: float | None
    pull_bytes_per_step: float | None


def timed_steps(reports: Sequence[ReportLine]) -> Iterator[TimedSteps]:
    """Yields the steps before each report of a worker, over all its joins."""
    previous, previous_end = None, -np.inf
    for line in reports:
        report = WorkerReport(line.local_step, line.wall_time, line.steps_per_sec)
        steps, secs = span_before(report, previous)
        examples = steps * line.examples_per_sec / line.steps_per_sec if line.steps_per_sec else 0.0
        # Rounding must not let the steps begin before the previous report.
        yield TimedSteps(steps, examples, max(previous_end, line.wall_time - (secs or 0.0)), line.wall_time)
        previous, previous_end = report, line.wall_time


def of_reports(
    reports_of: Sequence[Sequence[ReportLine]], examples: float, times: Sequence[tuple[float, float]], last_step: int
) -> RunTotals:
    """Returns the totals of a run.

    Args:
        reports_of: Reports of each worker.
        examples: Number of examples of all workers.
        times: Begin and end of steps or groups of steps of any worker.
        last_step: `global_step` of the last step.
    """
    timed_of = [list(timed_steps(reports)) for reports in reports_of]
    pairs = [
        (report, timed.steps)
        for reports, timed_reports in zip(reports_of, timed_of, strict=True)
        for report, timed in zip(reports, timed_reports, strict=True)
    ]
    pushed = any(report.staleness_mean is not None or report.gradients_dropped is not None for report, _ in pairs)
    busy = _covered_secs([*times, *((timed.begin, timed.end) for timed_reports in timed_of for timed in timed_reports)])
    return RunTotals(
        steps=sum(steps for _, steps in pairs),
        examples=round(examples),
        examples_per_sec=examples / max(busy, 1e-9),
        last_step=last_step,
        staleness_mean=_mean(
            [(report, steps - (report.gradients_dropped or 0)) for report, steps in pairs],
            lambda report: report.staleness_mean,
        ),
        gradients_dropped=sum(report.gradients_dropped or 0 for report, _ in pairs) if pushed else None,
        push_bytes_per_step=_mean(pairs, lambda report: report.push_bytes_per_step),
        pull_bytes_per_step=_mean(pairs, lambda report: report.pull_bytes_per_step),
    )


def _mean(pairs: Sequence[tuple[ReportLine, int]], figure_of: Callable[[ReportLine], float | None]) -> float | None:
    """Returns the mean of a figure, weighted; None where no report has it."""
    found = [(figure, max(1, weight)) for report, weight in pairs if (figure := figure_of(report)) is not None]
    total = sum(weight for _, weight in found)
    return sum(figure * weight for figure, weight in found) / total if total else None


def _covered_secs(times: Sequence[tuple[float, float]]) -> float:
    """Returns the length of the union of intervals."""
    covered, last = 0.0, -np.inf
    for begin, end in sorted(times):
        covered += max(0.0, end - max(begin, last))
        last = max(last, end)
    return covered
