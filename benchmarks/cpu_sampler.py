"""`CpuSampler`: the processor time that the processes of a benchmark used, and that was idle, over time (Linux)."""

from __future__ import annotations

import os
import pathlib
import threading
import time
from types import TracebackType

import numpy as np

_TICKS = os.sysconf("SC_CLK_TCK")
_INTERVAL_SECS = 0.2


class CpuSampler:
    """Samples the processor time in a thread, as a context.

    It counts this process's descendants while they live. So time that a process used after its last sample is missing.
    """

    def __init__(self) -> None:
        self._samples: list[tuple[float, float, float]] = []
        self._last_of: dict[int, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu use", daemon=True)

    def __enter__(self) -> CpuSampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(10)

    def used_secs(self, start: float, end: float) -> float:
        """Seconds that the descendants used on all cores between two times since the epoch."""
        return self._between(1, start, end)

    def idle_secs(self, start: float, end: float) -> float:
        """Seconds in which the machine's cores were idle between two times, added up."""
        return self._between(2, start, end)

    def _between(self, column: int, start: float, end: float) -> float:
        times = [sample[0] for sample in self._samples]
        first, last = np.interp([start, end], times, [sample[column] for sample in self._samples])
        return float(last - first)

    def _run(self) -> None:
        while not self._is_over.wait(_INTERVAL_SECS):
            self._last_of |= _descendants(os.getpid())
            self._samples.append((time.time(), sum(self._last_of.values()), _idle_secs()))


def _descendants(ancestor: int) -> dict[int, float]:
    """Returns the seconds that each descendant of a process has used, by process id."""
    parents, secs = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            parents[int(entry.name)] = int(fields[1])
            secs[int(entry.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
    found = {ancestor}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return {one: secs[one] for one in found - {ancestor}}


def _idle_secs() -> float:
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / _TICKS  # idle, and idle during input or output
