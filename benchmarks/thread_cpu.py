"""`ThreadMeter`: the CPU time of processes by the names of their threads, which tell what a thread does (Linux)."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

_PROC = pathlib.Path("/proc")
_NANO = 1e-9


class ThreadKind(NamedTuple):
    """The threads of one name.

    Attributes:
        job_name: Job of their tasks.
        name: Name that the kernel shows.
    """

    job_name: str
    name: str


class ThreadMeter:
    """Takes samples of the threads' counters, and gives their CPU time between two times.

    A sample reads a file of each thread, of which a task has up to a hundred.

    Args:
        time_fn: Function that returns seconds since the epoch.
        proc: Folder of the kernel's counters.
    """

    def __init__(self, time_fn: Callable[[], float] = time.time, proc: pathlib.Path = _PROC):
        self._time_fn = time_fn
        self._proc = proc
        self._seen: dict[tuple[int, str], float] = {}  # CPU seconds at the last sample, by pid and thread
        self._totals: defaultdict[ThreadKind, float] = defaultdict(float)
        self._samples: list[tuple[float, Mapping[ThreadKind, float]]] = []

    def sample(self, jobs: Mapping[int, str]) -> None:
        """Reads the counters of processes; `jobs` gives the job of each pid."""
        for pid, job_name in jobs.items():
            for thread, name, secs in self._threads(pid):
                # A thread that has ended keeps what it had used at the last sample.
                self._totals[ThreadKind(job_name, name)] += secs - self._seen.get((pid, thread), 0.0)
                self._seen[pid, thread] = secs
        self._samples.append((self._time_fn(), dict(self._totals)))

    def between(self, start: float, end: float) -> dict[ThreadKind, float]:
        """Returns the CPU seconds of each kind of threads in a window, interpolated between samples."""
        times = [taken_at for taken_at, _ in self._samples]
        found = {}
        for kind in self._totals:
            totals = [of_kinds.get(kind, 0.0) for _, of_kinds in self._samples]
            found[kind] = float(np.interp(end, times, totals) - np.interp(start, times, totals))
        return found

    def _threads(self, pid: int) -> Iterator[tuple[str, str, float]]:
        """Yields number, name and CPU seconds of each thread; nothing of a process or thread that has ended."""
        with contextlib.suppress(OSError):
            for thread in (self._proc / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError):
                    secs = int((thread / "schedstat").read_text().split()[0]) * _NANO
                    yield thread.name, (thread / "comm").read_text().strip(), secs
