"""Detects that this process was suspended, so that other tasks' silence in that time is not taken for a failure."""

from __future__ import annotations

_PAUSE_SECS = 2.0  # far longer than the time between two calls, which are due several times a second


class SuspensionDetector:
    """Tells the time for which this process was suspended from the time in which it ran.

    Args:
        now: Monotonic time in seconds.
        limit_secs: Longest time between two calls that does not count as a suspension.
    """

    def __init__(self, now: float, limit_secs: float = _PAUSE_SECS):
        self._called_at = now
        self._limit_secs = limit_secs

    def secs_suspended(self, now: float) -> float:
        """Returns the seconds of a suspension since the last call of this method; 0 without one."""
        passed, self._called_at = now - self._called_at, now
        return passed if passed > self._limit_secs else 0.0
