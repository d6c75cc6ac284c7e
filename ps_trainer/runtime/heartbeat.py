"""A worker's heartbeat: a word to every ps task, from a thread, however long a step takes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType

import tensorflow.compat.v1 as tf

from ps_trainer.runtime import control
from ps_trainer.runtime.control import PsControl

_PER_TIMEOUT = 6  # beats in the time after which a silent worker counts as lost


class Heartbeat:
    """Says `alive` to every ps task; use as a context manager, from when the worker has joined a run.

    Args:
        controls: client of each ps task.
        run_id: the run.
        worker_index: of this worker.
        timeout_secs: silence after which a worker counts as lost.
    """

    def __init__(self, controls: Sequence[PsControl], run_id: str, worker_index: int, timeout_secs: float):
        self._controls = controls
        self._message = {"run_id": run_id, "worker": worker_index, "status": control.ALIVE}
        self._interval = timeout_secs / _PER_TIMEOUT
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()  # a beat on its way to a lost ps task may take seconds; nobody waits for it

    def _beat(self) -> None:
        while not self._closing.wait(self._interval):
            for ps in self._controls:
                with contextlib.suppress(tf.errors.OpError):  # who watches the ps tasks says so
                    ps.say(self._message)
