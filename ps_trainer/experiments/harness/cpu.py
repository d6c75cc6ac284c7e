"""CPU time of a run's processes and of the machine, sampled from the kernel's counters. Linux; elsewhere None.

The *run delay* of a thread is the time for which it was ready to run and waited for a core. The scheduler counts it in
the second field of `/proc/<pid>/task/<tid>/schedstat`. It is what other work on the cores costs a step, and a mean load
does not show it: ten tasks that sleep may wake at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple

import numpy as np

NETWORK_THREADS = (b"event_engine",)
"""Names of gRPC's threads that read and write sockets."""

MAX_DELAYED_SHARE = 0.02  # of a step's time; with more run delay, its times are not comparable
MAX_OTHERS_SHARE = 0.1  # of the cores; with more, times of tasks that compute all the time are not comparable

_PROC = pathlib.Path("/proc")
_BUSY_FIELDS = (1, 2, 3, 6, 7, 8)  # fields of "cpu" in /proc/stat: user nice system irq softirq steal
_NANO = 1e-9
_PPID = 1  # of the fields of /proc/<pid>/stat, counted from behind the command's ")"
_OWN_TIMES = (11, 12)  # utime, stime
_CHILDREN_TIMES = (13, 14)  # cutime, cstime: of the children that have ended, and of theirs


class CpuUse(NamedTuple):
    """CPU time within a window."""

    share: float  # share of the machine's cores that any process kept busy, 0..1
    tasks_secs: float  # CPU seconds of the watched processes, all threads
    others_secs: float  # CPU seconds of everything else on the machine
    # Run delay of all threads of the watched processes over the time of the workers' steps. It is the share of a step
    # for which its tasks waited for a core. None where the kernel does not count it.
    delayed_share: float | None = None
    network_delayed_share: float | None = None  # the part of it of gRPC's network threads; None where unknown

    @property
    def others_share(self) -> float:
        """Share of the machine's cores that everything else kept busy, 0..1."""
        return self.share * self.others_secs / max(self.tasks_secs + self.others_secs, 1e-9)


UNKNOWN_USE = CpuUse(math.nan, math.nan, math.nan)
"""In place of the use in a window that has none, for figures that are numbers."""


class CpuMeter:
    """Takes samples of the counters below `proc`, and gives the use between two times (seconds since the epoch).

    With `has_delays` a sample also reads a file of each thread, for the run delay.
    """

    def __init__(
        self, time_fn: Callable[[], float] = time.time, proc: pathlib.Path = _PROC, *, has_delays: bool = True
    ):
        self._time_fn = time_fn
        self._proc = proc
        self._has_delays = has_delays
        self._ticks_per_sec = os.sysconf("SC_CLK_TCK")
        self._tasks_secs = 0.0
        self._seen_delays: dict[tuple[int, int], float] = {}  # run delay at the last sample, by pid and thread
        self._is_network: dict[tuple[int, int], bool] = {}  # by pid and thread
        self._delay_secs = self._network_delay_secs = 0.0
        self._num_cores = 0
        # time, tasks, machine, run delay, that of gRPC's network threads
        self._samples: list[tuple[float, float, float, float, float]] = []

    def sample(self, pids: Iterable[int], ended_of: Iterable[int] = ()) -> None:
        """Reads the counters of the machine and of processes, those that have ended left out.

        The CPU time of a process that has ended passes to its parent, so that nothing is lost between two samples. The
        sum never falls: where the parent ended as well, the time stays that of the last sample.

        Args:
            pids: The watched processes, parents before their children.
            ended_of: Processes of which only the children count that have ended. They are read first.
        """
        ticks = sum(self._ticks(pid, _CHILDREN_TIMES) for pid in ended_of)
        for pid in pids:
            ticks += self._ticks(pid, _OWN_TIMES + _CHILDREN_TIMES)
            if self._has_delays and pid != os.getpid():  # this process makes no step
                self._add_delays(pid)
        self._tasks_secs = max(self._tasks_secs, ticks / self._ticks_per_sec)
        delays = (self._delay_secs, self._network_delay_secs)
        self._samples.append((self._time_fn(), self._tasks_secs, self._machine_secs(), *delays))

    def between(self, start: float, end: float, num_workers: int = 1) -> CpuUse | None:
        """Returns the use in a window, interpolated between samples; None for a window without length or samples.

        Args:
            start: Begin of the window, in seconds since the epoch. Times outside of the samples do not count.
            end: End of the window.
            num_workers: Number of workers, each of which makes one step at a time.
        """
        if len(self._samples) < 2:
            return None
        times, *counters = zip(*self._samples, strict=True)
        start, end = max(start, times[0]), min(end, times[-1])
        if end <= start:
            return None
        tasks_secs, machine_secs, *delay_secs = (
            float(np.interp(end, times, counter) - np.interp(start, times, counter)) for counter in counters
        )
        share = machine_secs / ((end - start) * self._num_cores)
        has_any = bool(self._seen_delays)
        delays = [secs / ((end - start) * num_workers) if has_any else None for secs in delay_secs]
        return CpuUse(min(1.0, share), tasks_secs, max(0.0, machine_secs - tasks_secs), *delays)

    def _add_delays(self, pid: int) -> None:
        """Adds the run delay of a process's threads since the last sample; a thread that has ended keeps its last.

        Hundreds of files are read beside the tasks that are measured, so this takes the cheapest calls.
        """
        folder = f"{self._proc}/{pid}/task"
        with contextlib.suppress(OSError):
            for thread in os.listdir(folder):
                with contextlib.suppress(OSError):
                    secs = int(_read_short_file(f"{folder}/{thread}/schedstat").split()[1]) * _NANO
                    key = (pid, int(thread))
                    added = max(0.0, secs - self._seen_delays.get(key, 0.0))
                    self._seen_delays[key] = secs
                    self._delay_secs += added
                    if not added:
                        continue
                    if key not in self._is_network:
                        self._is_network[key] = _read_short_file(f"{folder}/{thread}/comm").strip() in NETWORK_THREADS
                    self._network_delay_secs += added * self._is_network[key]

    def _ticks(self, pid: int, times: Iterable[int]) -> int:
        try:
            fields = _stat_fields(self._proc, pid)
        except OSError:  # it has ended
            return 0
        return sum(int(fields[i]) for i in times)

    def _machine_secs(self) -> float:
        lines = (self._proc / "stat").read_text().splitlines()
        self._num_cores = sum(line.startswith("cpu") for line in lines) - 1
        fields = lines[0].split()
        return sum(int(fields[i]) for i in _BUSY_FIELDS) / self._ticks_per_sec


class CpuWatch:
    """While entered, a thread samples the machine, this process and all its descendants.

    Without `proc` it samples nothing.

    Args:
        proc: Folder of the kernel's counters.
        sample_secs: Time between two samples.
        has_delays: Whether it measures the run delay, for which a sample reads a file of each thread.
        has_self: Whether this process counts, which takes the samples. Without it the CPU time of the samples is that
            of something else on the machine.
    """

    def __init__(
        self,
        proc: pathlib.Path = _PROC,
        *,
        sample_secs: float = 1.0,
        has_delays: bool = True,
        has_self: bool = True,
    ):
        self._proc = proc
        self._sample_secs = sample_secs
        self._own, self._ended_of = ([os.getpid()], []) if has_self else ([], [os.getpid()])
        self._meter = CpuMeter(proc=proc, has_delays=has_delays) if (proc / "stat").exists() else None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cpu", daemon=True)

    def __enter__(self) -> CpuWatch:
        if self._meter is not None:
            self._sample()
            self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._meter is not None:
            self._stop.set()
            self._thread.join()
            self._sample()

    def between(self, start: float, end: float, num_workers: int = 1) -> CpuUse | None:
        """Returns the use in a window, after leaving; None without samples."""
        return self._meter.between(start, end, num_workers) if self._meter is not None else None

    def _watch(self) -> None:
        while not self._stop.wait(self._sample_secs):
            self._sample()

    def _sample(self) -> None:
        if self._meter is not None:
            self._meter.sample([*self._own, *descendants(os.getpid(), self._proc)], self._ended_of)


def descendants(pid: int, proc: pathlib.Path = _PROC) -> list[int]:
    """Returns the living children of a process, their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                children.setdefault(int(_stat_fields(proc, int(entry.name))[_PPID]), []).append(int(entry.name))
    found = list(children.get(pid, ()))
    for known in found:  # grows meanwhile
        found += children.get(known, ())
    return found


def _stat_fields(proc: pathlib.Path, pid: int) -> list[str]:
    # The command, in parentheses, may hold blanks and parentheses itself.
    return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _read_short_file(path: str) -> bytes:
    """Returns the content of a short file."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 256)
    finally:
        os.close(file)
