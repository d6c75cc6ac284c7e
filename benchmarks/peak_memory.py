"""The largest memory of the tasks of a run, which a thread reads while the run lasts (Linux)."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import time
from types import TracebackType

from benchmarks.process_memory import peak_mib
from benchmarks.soak import processes_of

_POLL_SECS = 0.1


class PeakWatch:
    """The largest resident memory of each task of a run so far, as a context.

    Args:
        logdir: Folder of the run.

    Attributes:
        samples: For each task, such as "worker-0", pairs of the time since the epoch and the peak until then in MiB;
            only those at which the peak has grown.
    """

    def __init__(self, logdir: pathlib.Path) -> None:
        self._logdir = logdir
        self.samples: dict[str, list[tuple[float, float]]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak memory", daemon=True)

    def __enter__(self) -> PeakWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(10)

    def mib(self, job_name: str, until: float = float("inf")) -> float:
        """Returns the largest peak of the tasks whose names begin with `job_name`, at a time; 0 without any."""
        peaks = [
            peak
            for task, samples in self.samples.items()
            if task.startswith(job_name)
            for at, peak in samples
            if at <= until
        ]
        return max(peaks, default=0.0)

    def _run(self) -> None:
        while not self._is_over.wait(_POLL_SECS):
            for task, pid in processes_of(self._logdir, os.getpid()):
                with contextlib.suppress(OSError):  # it has just ended
                    self._note(task, peak_mib(pid))

    def _note(self, task: str, peak: float) -> None:
        samples = self.samples.setdefault(task, [])
        if not samples or peak > samples[-1][1]:
            samples.append((time.time(), peak))
