"""`Wait`: a wait for another task, with a limit and a log line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from absl import logging

POLL_SECS = 0.1
_LOG_SECS = 10.0


class Wait:
    """The time that a wait has lasted.

    Args:
        limit_secs: Longest time to wait.
        time_fn: Monotonic time in seconds.
    """

    def __init__(self, limit_secs: float, time_fn: Callable[[], float] = time.monotonic):
        self._time_fn = time_fn
        self._limit = limit_secs
        self._start = self._logged = time_fn()

    def secs(self) -> float:
        """Returns the seconds since the wait began."""
        return self._time_fn() - self._start

    def is_over(self) -> bool:
        """Returns whether the wait has lasted longer than its limit."""
        return self.secs() > self._limit

    def log(self, message: str) -> None:
        """Logs what the task waits for, unless it did so a moment ago."""
        if self._time_fn() - self._logged > _LOG_SECS:
            self._logged = self._time_fn()
            logging.info("%s (%.0f of %.0f s)", message, self.secs(), self._limit)
