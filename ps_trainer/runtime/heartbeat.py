"""A worker's heartbeat: a message to every ps task, from threads that a long step does not delay."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType

import tensorflow.compat.v1 as tf

from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.run_record import AliveMessage

_PER_TIMEOUT = 6  # messages in the time after which a silent worker counts as lost, so that single ones may fail


class Heartbeat:
    """Sends heartbeats while it is entered as a context manager, which a worker does after it has joined a run.

    Args:
        controls: Client of each ps task.
        run_id: Name of the run.
        worker_index: Index of this worker.
        timeout_secs: Silence after which a worker counts as lost.
    """

    def __init__(self, controls: Sequence[PsControl], run_id: str, worker_index: int, timeout_secs: float):
        self._message = AliveMessage(run_id=run_id, worker=worker_index)
        self._interval = timeout_secs / _PER_TIMEOUT
        self._closing = threading.Event()
        # One thread each, because a call to a ps task that does not answer takes seconds.
        self._threads = [
            threading.Thread(target=self._beat, args=(ps,), name=f"heartbeat-{ps.ps}", daemon=True) for ps in controls
        ]

    def __enter__(self) -> Heartbeat:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()  # does not join the threads: a call to a lost ps task takes seconds

    def _beat(self, ps: PsControl) -> None:
        while not self._closing.wait(self._interval):
            with contextlib.suppress(tf.errors.OpError):  # the watcher reports a lost ps task
                ps.send(self._message)
