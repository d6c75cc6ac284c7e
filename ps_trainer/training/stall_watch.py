"""`StallWatch`: ends a worker that makes no step any more, though no task is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

from ps_trainer.errors import StalledError
from ps_trainer.training.worker_progress import WorkerProgress


class StallWatch:
    """Compares the time of a worker's last step with the time.

    A blocked step never returns, so a thread that makes no steps has to call `check`.

    Args:
        task_name: Name of the worker, for messages.
        limit_secs: Longest time without a step.
        time_fn: Monotonic time in seconds, as `WorkerProgress.last_step_at` has it.
    """

    def __init__(self, task_name: str, limit_secs: float, time_fn: Callable[[], float] = time.monotonic):
        self._task_name = task_name
        self._limit_secs = limit_secs
        self._time_fn = time_fn
        self._progress: WorkerProgress | None = None

    @property
    def is_watching(self) -> bool:
        """Whether the worker makes steps."""
        return self._progress is not None

    def start(self, progress: WorkerProgress) -> None:
        """Begins to watch a worker that makes steps."""
        self._progress = progress

    def stop(self) -> None:
        """Stops watching, since the worker does something other than steps."""
        self._progress = None

    def check(self, waited_at: float) -> None:
        """Raises StalledError when the last step is too long ago.

        Args:
            waited_at: Time at which the worker was last excused, because a worker that may come back was gone.
        """
        # Read once, because the thread of the steps may end the watch at this moment.
        progress = self._progress
        if progress is None:
            return
        idle = self._time_fn() - max(progress.last_step_at, waited_at)
        if idle > self._limit_secs:
            raise StalledError(
                f"{self._task_name} has completed no step for {idle:.0f} s, at global step {progress.global_step}:"
                " a worker or ps task that it waits for is slow or stuck; look at their logs, or raise"
                " --stall_timeout_secs"
            )
