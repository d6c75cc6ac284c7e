"""Callbacks: functions that the API calls after every step, and that may end the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.errors import ArgumentTypeError
from ps_trainer.training.worker_progress import WorkerProgress


class Step(NamedTuple):
    """One step of one worker, as callbacks get it and `Result.history` keeps it.

    Attributes:
        worker: Index of the worker.
        local_step: Number of the step on this worker since it joined, from 1.
        global_step: `global_step` after the step; what it counts depends on the update rule.
        loss: Loss of the step's batch. In a result of other processes: mean loss since the report before.
        staleness: Staleness of the step's gradient on each ps task; empty if nothing was pushed, -1 if it was dropped.
    """

    worker: int
    local_step: int
    global_step: int
    loss: float
    staleness: tuple[int, ...] = ()


Callback = Callable[[Step], object]


class StopTraining(Exception):
    """Raised in a callback, it ends the run as if the last step was reached: with metrics and a checkpoint.

    Args:
        reason: Sentence for `Result.stop_reason` and the log.
    """

    def __init__(self, reason: str = "a callback stopped the run"):
        super().__init__(reason)
        self.reason = reason or "a callback stopped the run"


class StepRecorder:
    """Keeps the steps of all workers of this process, and calls the callbacks, one at a time.

    Args:
        callbacks: Functions to call after each step.
    """

    def __init__(self, callbacks: Iterable[Callback] = ()):
        self._callbacks = tuple(callbacks)
        self._lock = threading.Lock()
        self.history: list[Step] = []
        self.reason_to_end = ""

    def of_worker(self, worker: int) -> WorkerRecorder:
        """Returns the observer of one worker."""
        return WorkerRecorder(self, worker)

    def add(self, step: Step) -> None:
        """Keeps a step and calls the callbacks with it; an error of a callback fails the worker."""
        with self._lock:
            self.history.append(step)
            for callback in self._callbacks:
                try:
                    callback(step)
                except StopTraining as stop:
                    self.reason_to_end = self.reason_to_end or stop.reason


class WorkerRecorder:
    """The `StepObserver` of one worker.

    Args:
        recorder: Recorder of all workers.
        worker: Index of the worker.
    """

    def __init__(self, recorder: StepRecorder, worker: int):
        self._recorder = recorder
        self._worker = worker

    @property
    def reason_to_end(self) -> str:
        """Sentence of the callback that stopped the run; empty before."""
        return self._recorder.reason_to_end

    def on_step(self, progress: WorkerProgress, staleness: np.ndarray, loss: float) -> None:
        """Notes a step; called in the worker's thread."""
        values = tuple(int(value) for value in np.atleast_1d(staleness))
        self._recorder.add(Step(self._worker, progress.local_steps, progress.global_step, loss, values))


def check_callbacks(callbacks: Callback | Sequence[Callback]) -> tuple[Callback, ...]:
    """Returns the callbacks as a tuple; one function stands for a list of it.

    Raises:
        ArgumentTypeError: One of them cannot be called.
    """
    given = (callbacks,) if callable(callbacks) else tuple(callbacks)
    for callback in given:
        if not callable(callback):
            raise ArgumentTypeError(
                f"callbacks: {callback!r} cannot be called; give functions of one argument, the step"
            )
    return given
