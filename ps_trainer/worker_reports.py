"""`span_before`: the steps between two reports of a worker, which may have rejoined the run in between."""

from __future__ import annotations

from typing import NamedTuple


class WorkerReport(NamedTuple):
    """The steps of a worker, from its report.

    Attributes:
        local_step: Number of steps since the worker joined; starts at 0 again when it rejoins.
        wall_time: Time of the report in seconds since the epoch; None if unknown.
        steps_per_sec: Rate since the previous report of the same join, or since its start; None if unknown.
    """

    local_step: int
    wall_time: float | None = None
    steps_per_sec: float | None = None


class ReportSpan(NamedTuple):
    """The steps of a worker before a report.

    Attributes:
        steps: Number of steps since the previous report of the same join, or since its start.
        secs: Seconds in which the worker made them, without the pause before a join; None if unknown.
    """

    steps: int
    secs: float | None


def span_before(report: WorkerReport, previous: WorkerReport | None) -> ReportSpan:
    """Returns the steps between a worker's previous report, None for the first one, and this report.

    The worker has rejoined in between if its steps did not increase, or if all its steps since the join fit between the
    two reports. The steps between the last report of a join and the loss are unknown, and are not counted.
    """
    secs_between = None
    if previous is not None and previous.wall_time is not None and report.wall_time is not None:
        secs_between = max(0.0, report.wall_time - previous.wall_time)
    has_rejoined = previous is None or _has_rejoined(report, previous, secs_between)
    steps = report.local_step - (0 if previous is None or has_rejoined else previous.local_step)
    if not report.steps_per_sec:
        return ReportSpan(steps, None if has_rejoined else secs_between)
    secs = steps / report.steps_per_sec
    return ReportSpan(steps, secs if secs_between is None else min(secs, secs_between))


def _has_rejoined(report: WorkerReport, previous: WorkerReport, secs_between: float | None) -> bool:
    # A worker reports only after a step, so an equal count is one of another join.
    if report.local_step <= previous.local_step:
        return True
    rate = report.steps_per_sec
    return rate is not None and rate > 0 and secs_between is not None and report.local_step / rate <= secs_between
