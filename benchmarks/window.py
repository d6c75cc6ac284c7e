"""From what the workers report to rates over one common window of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ps_trainer.errors import RunError


class Report(NamedTuple):
    """A worker's count of its own steps (`local_step`) at a time (`wall_time`, seconds since the epoch)."""

    wall_time: float
    local_step: int


class Window(NamedTuple):
    """A stretch of wall time, seconds since the epoch."""

    start: float
    end: float

    @property
    def secs(self) -> float:
        """Length in seconds; negative when nothing is common yet."""
        return self.end - self.start


def training_reports(records: Iterable[dict[str, Any]]) -> list[Report]:
    """The reports among a worker's metrics: the records of kind "train"."""
    return [Report(r["wall_time"], r["local_step"]) for r in records if r.get("kind") == "train"]


def common_window(reports: Sequence[Sequence[Report]], warmup_secs: float) -> Window | None:
    """The time in which all workers were training and warm.

    From `warmup_secs` after the last worker's first report to the first of the last reports. None when a
    worker has reported nothing yet.

    Args:
        reports: for each worker, in order of time.
        warmup_secs: left out after the last worker has begun.
    """
    if not all(reports):
        return None
    return Window(max(r[0].wall_time for r in reports) + warmup_secs, min(r[-1].wall_time for r in reports))


def steps_per_sec(reports: Sequence[Report], window: Window) -> float | None:
    """Mean step rate of one worker, between its first and its last report in the window; None without two.

    Raises:
        RunError: the worker's steps went back or stood still from one report to the next.
    """
    inside = [r for r in reports if window.start <= r.wall_time <= window.end]
    for earlier, later in zip(inside, inside[1:], strict=False):
        if later.local_step <= earlier.local_step or later.wall_time <= earlier.wall_time:
            raise RunError(f"a worker's reports do not go forward: {earlier} is followed by {later}")
    if len(inside) < 2:
        return None
    return (inside[-1].local_step - inside[0].local_step) / (inside[-1].wall_time - inside[0].wall_time)
