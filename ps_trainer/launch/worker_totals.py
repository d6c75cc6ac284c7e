"""`WorkerTotals`: steps, rate and staleness of a worker over all its joins of a run, summed up from its reports."""

from __future__ import annotations

from ps_trainer.worker_reports import WorkerReport, span_before


class WorkerTotals:
    """Sums of a worker's reports."""

    def __init__(self) -> None:
        self._steps: int | None = None
        self._timed_steps = 0
        self._secs = 0.0
        self._weighted_staleness = 0.0
        self._staleness_steps = 0
        self._last: WorkerReport | None = None

    @property
    def steps(self) -> int | None:
        """Number of reported steps; None before the first report."""
        return self._steps

    @property
    def steps_per_sec(self) -> float | None:
        """Mean rate over the time in which the worker trained, without the pauses between joins; None if unknown."""
        return self._timed_steps / self._secs if self._secs > 0 else None

    @property
    def staleness(self) -> float | None:
        """Mean of the reported staleness, weighted by the steps of each report; None if no report has one."""
        return self._weighted_staleness / self._staleness_steps if self._staleness_steps else None

    def add(self, report: WorkerReport, *, staleness: float | None = None) -> None:
        """Adds a report; `staleness` is the mean staleness since the previous report."""
        steps, secs = span_before(report, self._last)
        self._last = report
        self._steps = (self._steps or 0) + steps
        if secs is not None and secs > 0:
            self._timed_steps += steps
            self._secs += secs
        if staleness is not None:
            self._weighted_staleness += staleness * steps
            self._staleness_steps += steps
