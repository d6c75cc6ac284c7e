"""A process's own pauses: while it is frozen itself, nothing follows from the silence of others."""

from __future__ import annotations

_PAUSE_SECS = 2.0  # between two looks at the clock that are due many times a second


class SuspensionDetector:
    """Tells pauses of this process from time in which it ran.

    Args:
        now: seconds, monotonic.
        limit_secs: longest time between two looks that is no pause.
    """

    def __init__(self, now: float, limit_secs: float = _PAUSE_SECS):
        self._looked_at = now
        self._limit_secs = limit_secs

    def look(self, now: float) -> float:
        """Seconds for which this process has been paused since the last look; 0 where it was not."""
        passed, self._looked_at = now - self._looked_at, now
        return passed if passed > self._limit_secs else 0.0
