"""`SyncService`: the chief's part of `SyncReplicasOptimizer`. It waits for gradients, and makes the updates."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.tf1.sync_ops import WAKE_UP, SyncOps
from ps_trainer.updates.chief_service import ChiefService, GradientCounts

_STOP_SECS = 5.0  # for a call that `stop` has cancelled to return


class SyncService(ChiefService):
    """Makes an update whenever `replicas_to_aggregate` workers have sent a gradient for the current step.

    Fewer are enough when fewer workers are left. Each update is one call, which also gives every worker its token and
    waits for the next arrivals.

    Args:
        ops: Ops of the optimizer.
        num_workers: Number of workers.
    """

    def __init__(self, ops: SyncOps, num_workers: int):
        self._ops = ops
        self._session: tf.Session  # set by `start`
        self._live = set(range(num_workers))
        self._pushed = np.zeros(num_workers, np.int64)
        self._used = np.zeros(num_workers, np.int64)
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        # `worker_left` may not wait for a ps task, so another thread wakes the first one.
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run_or_stop, args=(run,), daemon=True, name=name)
            for run, name in ((self._update, "sync-replicas"), (self._wake, "sync-replicas-wake"))
        ]

    def start(self, session: tf.Session) -> None:
        """Starts the threads. Calls of `session` need no deadline: `stop` closes it."""
        self._session = session
        for thread in self._threads:
            thread.start()

    def worker_came(self, worker_index: int) -> None:
        """Records that a worker is ready to train; never waits."""
        self._live.add(worker_index)

    def worker_left(self, worker_index: int, join_number: int) -> None:
        """Records that no update waits for a worker any more; never waits."""
        del join_number
        self._live.discard(worker_index)
        self._wakes.put(True)

    def release(self) -> None:
        """Lets every worker that waits for an update continue."""
        if not self._stopping.is_set():
            self._session.run(self._ops.release)

    def stop(self) -> None:
        """Ends the threads."""
        self._stopping.set()
        self._wakes.put(False)
        if self._threads[0].ident is None:  # never started
            return
        with contextlib.suppress(tf.errors.OpError):
            self._session.close()
        for thread in self._threads:
            thread.join(_STOP_SECS)

    def error(self) -> BaseException | None:
        """Returns the first error of the threads, or None."""
        return self._error

    def gradient_counts(self) -> GradientCounts:
        """Returns the gradients of each worker that arrived, and those that were in an update."""
        return GradientCounts(tuple(self._pushed.tolist()), tuple(self._used.tolist()))

    def _run_or_stop(self, run: Any) -> None:
        try:
            run()
        except (tf.errors.OpError, RuntimeError) as error:
            if not self._stopping.is_set():  # else the call was cancelled
                self._error = self._error or error

    def _wake(self) -> None:
        while self._wakes.get():
            self._session.run(self._ops.wake_up)

    def _update(self) -> None:
        ops, arrived = self._ops, set[int]()
        step = int(self._session.run(ops.global_step))
        while not self._stopping.is_set():
            missing = self._missing(arrived)
            if missing > 0 or not arrived:
                fetch, count = ops.arrivals, max(1, missing)
            else:
                for worker in arrived:
                    self._used[worker] += 1
                # The next update needs as many workers; a wait for fewer would only cost another call.
                fetch, count = ops.update, max(1, self._missing(set()))
                arrived, step = set(), step + 1
            self._note(self._session.run(fetch, {ops.count: count}), step, arrived)

    def _missing(self, arrived: set[int]) -> int:
        """Returns the number of gradients that the next update still waits for."""
        return min(self._ops.required, len(self._live)) - len(arrived)

    def _note(self, rows: Sequence[Sequence[int]], step: int, arrived: set[int]) -> None:
        """Adds to `arrived` the workers whose gradients are of this step; later ones were dropped."""
        for worker, stamp in np.asarray(rows).tolist():
            if worker == WAKE_UP:
                logging.debug("sync_replicas: the chief checks again which workers it waits for")
                continue
            self._pushed[worker] += 1
            if stamp == step:
                arrived.add(worker)
