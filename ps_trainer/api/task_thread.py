"""`TaskThread`: a task of a cluster in a thread of this process, with a deadline for its end.

A task that has its own process is watched by its main thread, which ends the process if the task hangs
(`runtime.job_runner.run_job`). Here a second thread watches, and gives the task up. No signal handler is installed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ps_trainer.runtime import job_runner
from ps_trainer.runtime.job_runner import StopRequest


class TaskThread:
    """A task in a thread.

    Args:
        name: Name of the task, "worker-1".
        job: The task: a function that receives the stop request, and returns an exit code or raises.

    Attributes:
        name: Name of the task.
        stop: Request that ends the task; make it from any thread.
        code: Exit code that the task returned; None before, and if it raised.
        error: Exception that ended the task, or None.
        ended_at: Time at which the task ended, by `time.monotonic`; None before.
        is_given_up: Whether the task did not end in time after a stop request. Its thread may continue.
    """

    def __init__(self, name: str, job: Callable[[StopRequest], int]):
        self.name = name
        self.stop = StopRequest()
        self.code: int | None = None
        self.error: BaseException | None = None
        self.ended_at: float | None = None
        self.is_given_up = False
        self._job = job
        # Events, not the threads: Python takes a thread for ended when Ctrl-C interrupts a `join` of it.
        self._job_ended, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ps_trainer {name}", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name=f"ps_trainer {name} watch", daemon=True)

    def start(self) -> TaskThread:
        """Starts the task; returns this object."""
        self._thread.start()
        self._watcher.start()
        return self

    @property
    def is_running(self) -> bool:
        """Whether the task has neither ended nor been given up."""
        return not self._ended.is_set()

    @property
    def ended_well(self) -> bool:
        """Whether the task has ended without an exception."""
        return not self.is_running and self.error is None and not self.is_given_up

    def join(self, timeout_secs: float | None) -> bool:
        """Waits for the end of the task; returns whether it has ended or was given up."""
        return self._ended.wait(timeout_secs)

    def _run(self) -> None:
        try:
            self.code = self._job(self.stop)
        except BaseException as error:  # noqa: BLE001 - handed to the caller of the API, which raises it
            self.error = error
        finally:
            self.ended_at = time.monotonic()
            self._job_ended.set()

    def _watch(self) -> None:
        try:
            job_runner.watch(self._job_ended, self.stop, self._give_up)
        finally:
            self._ended.set()

    def _give_up(self, _code: int) -> None:
        self.is_given_up = True
