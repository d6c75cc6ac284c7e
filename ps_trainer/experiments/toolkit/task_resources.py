"""CPU time and memory of the tasks of a run, which a thread samples while the run lasts. Linux; elsewhere nothing."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import threading
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

from ps_trainer.experiments.harness.cpu import descendants

_PROC = pathlib.Path("/proc")
_SAMPLE_SECS = 0.5
_TASK = re.compile(r"\((ps|worker)-\d+\)")  # the name that a task gives its process, as /proc/<pid>/stat shows it
_UTIME, _STIME = 11, 12  # fields of /proc/<pid>/stat, counted from behind the name
_KIB_PER_MIB = 1024


class TaskResources:
    """Samples the tasks that this process has started, while it is entered."""

    def __init__(
        self,
        proc: pathlib.Path = _PROC,
        time_fn: Callable[[], float] = time.time,
        find_pids: Callable[[], list[int]] | None = None,
    ):
        self._proc = proc
        self._time_fn = time_fn
        self._find_pids = find_pids or (lambda: descendants(os.getpid(), proc))
        self._ticks_per_sec = os.sysconf("SC_CLK_TCK")
        self._cpu: dict[tuple[str, int], list[tuple[float, float]]] = {}  # job and pid -> times and CPU seconds
        self._peaks: dict[str, float] = {}  # job -> MiB
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="task resources", daemon=True)

    def __enter__(self) -> TaskResources:
        if (self._proc / "stat").exists():
            self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def sample(self) -> None:
        """Reads the counters of all tasks that run now."""
        for pid in self._find_pids():
            with contextlib.suppress(OSError):  # it has just ended
                head, _, rest = (self._proc / str(pid) / "stat").read_text().rpartition(")")
                task = _TASK.search(f"{head})")
                if task:
                    fields = rest.split()
                    secs = (int(fields[_UTIME]) + int(fields[_STIME])) / self._ticks_per_sec
                    self._cpu.setdefault((task[1], pid), []).append((self._time_fn(), secs))
                    self._peaks[task[1]] = max(self._peaks.get(task[1], 0.0), self._peak_mib(pid))

    def cpu_secs(self, job: str, start: float, end: float) -> float:
        """Returns the CPU seconds of all tasks of a job, "ps" or "worker", in a window of seconds since the epoch."""
        total = 0.0
        for (name, _), samples in self._cpu.items():
            if name == job:
                times, secs = zip(*samples, strict=True)
                total += float(np.interp(end, times, secs) - np.interp(start, times, secs))
        return total

    def peak_mib(self, job: str) -> float | None:
        """Returns the largest resident memory of a task of a job, in MiB; None if none was seen."""
        return self._peaks.get(job)

    def _peak_mib(self, pid: int) -> float:
        lines = (self._proc / str(pid) / "status").read_text().splitlines()
        return next((int(line.split()[1]) / _KIB_PER_MIB for line in lines if line.startswith("VmHWM:")), 0.0)

    def _watch(self) -> None:
        while not self._ended.is_set():
            self.sample()
            self._ended.wait(_SAMPLE_SECS)
