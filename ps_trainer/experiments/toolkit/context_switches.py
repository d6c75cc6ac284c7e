"""Context switches of the machine, counted by the kernel: how often processes took turns on its cores. Linux only."""

from __future__ import annotations

import pathlib
import threading
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

_STAT = pathlib.Path("/proc/stat")
_SAMPLE_SECS = 0.25


class SwitchWatch:
    """Reads the kernel's count repeatedly while it is entered."""

    def __init__(
        self, time_fn: Callable[[], float] = time.time, stat: pathlib.Path = _STAT, sample_secs: float = _SAMPLE_SECS
    ):
        self._time_fn = time_fn
        self._stat = stat
        self._sample_secs = sample_secs
        self._samples: list[tuple[float, int]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="context switches", daemon=True)

    def __enter__(self) -> SwitchWatch:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.sample()

    def sample(self) -> None:
        """Takes a reading, if the system counts context switches."""
        try:
            lines = self._stat.read_text().splitlines()
        except OSError:
            return
        self._samples += [(self._time_fn(), int(line.split()[1])) for line in lines if line.startswith("ctxt ")]

    def between(self, start: float, end: float) -> float | None:
        """Returns the switches in a window (seconds since the epoch); None where the system does not count them."""
        if not self._samples:
            return None
        times, counts = zip(*self._samples, strict=True)
        return float(np.diff(np.interp([start, end], times, counts))[0])

    def _watch(self) -> None:
        self.sample()
        while not self._ended.wait(self._sample_secs):
            self.sample()
