"""Signals that ask the launcher to end, recorded instead of raised."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class SignalRecorder:
    """While entered, SIGINT, SIGTERM and SIGHUP are written down and do nothing else.

    A handler that raised could strike between the start of a process and the note of its pid, and leave
    that process behind. Off the main thread, where Python allows no handlers, nothing is installed.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._received: list[tuple[float, int]] = []
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> SignalRecorder:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN:
                    continue  # started by nohup, which is meant to outlive its terminal
                self._previous[signum] = signal.signal(signum, self._record)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    @property
    def first(self) -> int | None:
        """Number of the first signal received, or None."""
        return self._received[0][1] if self._received else None

    def has_ctrl_c_after(self, time_secs: float) -> bool:
        """Whether a SIGINT came later than that time of the clock."""
        return any(signum == signal.SIGINT and at > time_secs for at, signum in self._received)

    def _record(self, signum: int, frame: FrameType | None) -> None:
        self._received.append((self._clock(), signum))
