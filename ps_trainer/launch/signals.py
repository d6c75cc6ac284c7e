"""Signals that ask the launcher to end, recorded instead of raised."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class SignalRecorder:
    """Context manager that records SIGINT, SIGTERM and SIGHUP instead of letting them act.

    A handler that raised could interrupt the launcher between the start of a process and the record of its pid, and
    leave that process behind. Off the main thread Python allows no handlers, so none are installed there.

    Args:
        time_fn: Monotonic time in seconds.
    """

    def __init__(self, time_fn: Callable[[], float] = time.monotonic):
        self._time_fn = time_fn
        self._received: list[tuple[float, int]] = []
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> SignalRecorder:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN:
                    continue  # nohup started this process, so it must outlive its terminal
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
        """Returns whether a SIGINT arrived after that time, which `time_fn` gave."""
        return any(signum == signal.SIGINT and at > time_secs for at, signum in self._received)

    def _record(self, signum: int, frame: FrameType | None) -> None:
        self._received.append((self._time_fn(), signum))
