"""From what the workers report and the kernel counts to rates over one common window of time."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.errors import RunError

_BUSY_FIELDS = (1, 2, 3, 6, 7, 8)  # of "cpu" in /proc/stat: user nice system irq softirq steal
_UTIME, _STIME = 11, 12  # in /proc/<pid>/stat, counted from behind the command's ")"


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


class CpuUse(NamedTuple):
    """CPU seconds within a window.

    Attributes:
        tasks_secs: of the benchmark's tasks, all threads.
        others_secs: of everything else on the machine.
    """

    tasks_secs: float
    others_secs: float


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


class CpuMeter:
    """CPU time of processes and of the machine, sampled now and then. Linux only.

    Args:
        clock: seconds since the epoch.
        proc: where the kernel's process file system is.
    """

    def __init__(self, clock: Callable[[], float] = time.time, proc: pathlib.Path = pathlib.Path("/proc")):
        self._clock = clock
        self._proc = proc
        self._ticks_per_sec = os.sysconf("SC_CLK_TCK")
        self._samples: list[tuple[float, float, float]] = []  # time, tasks, machine

    def sample(self, pids: Iterable[int]) -> None:
        """Reads the counters of `pids`, which must be the same at every call within a window."""
        tasks = sum(self._task_secs(pid) for pid in pids)
        self._samples.append((self._clock(), tasks, self._machine_secs()))

    def between(self, window: Window) -> CpuUse:
        """CPU seconds in a window that lies within the samples; interpolated between samples."""
        times, tasks, machine = zip(*self._samples, strict=True)
        tasks_secs = np.interp(window.end, times, tasks) - np.interp(window.start, times, tasks)
        machine_secs = np.interp(window.end, times, machine) - np.interp(window.start, times, machine)
        return CpuUse(float(tasks_secs), float(max(0.0, machine_secs - tasks_secs)))

    def _task_secs(self, pid: int) -> float:
        # The command, in parentheses, may hold blanks and parentheses itself.
        fields = (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[_UTIME]) + int(fields[_STIME])) / self._ticks_per_sec

    def _machine_secs(self) -> float:
        fields = (self._proc / "stat").read_text().splitlines()[0].split()
        return sum(int(fields[i]) for i in _BUSY_FIELDS) / self._ticks_per_sec
