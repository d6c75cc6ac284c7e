"""`WorkerTotals`: steps, rate and staleness of a worker over all its joins of a run, summed up from its reports."""

from __future__ import annotations


class WorkerTotals:
    """Sums of a worker's reports.

    `local_step` starts at 0 again when the worker rejoins, so each report adds only the steps since the previous one.
    The steps between the last report of a join and the loss are unknown, and are not counted.
    """

    def __init__(self) -> None:
        self._steps: int | None = None
        self._timed_steps = 0
        self._secs = 0.0
        self._weighted_staleness = 0.0
        self._staleness_steps = 0
        self._last: tuple[int, float | None] | None = None  # local step and wall time; None = a new join

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

    def rejoin(self) -> None:
        """Notes that the next report belongs to a new join."""
        self._last = None

    def add(
        self,
        local_step: int,
        *,
        wall_time: float | None = None,
        steps_per_sec: float | None = None,
        staleness: float | None = None,
    ) -> None:
        """Adds a report.

        Args:
            local_step: Number of steps since the worker joined.
            wall_time: Time of the report in seconds since the epoch.
            steps_per_sec: Rate since the previous report of this join, or since its start.
            staleness: Mean staleness since then.
        """
        if self._last is not None and local_step < self._last[0]:
            self.rejoin()
        before, reported_at = self._last or (0, None)
        steps = local_step - before
        self._last = (local_step, wall_time)
        self._steps = (self._steps or 0) + steps
        secs = None
        if reported_at is not None and wall_time is not None:
            secs = wall_time - reported_at
        elif steps_per_sec:
            secs = steps / steps_per_sec  # the start of a join is in no report
        if secs is not None and secs > 0:
            self._timed_steps += steps
            self._secs += secs
        if staleness is not None:
            self._weighted_staleness += staleness * steps
            self._staleness_steps += steps
