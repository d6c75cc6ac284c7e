"""`SyncReplicasService`: the chief's thread that makes the updates of `sync_replicas`."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.updates.chief_service import ChiefService, GradientCounts

_STOP_SECS = 5.0  # deadline for a call that `stop` has cancelled to return
# An update lasts as long as its slowest worker. Its calls have no deadline: the watch of the tasks and of the steps
# ends the run, and `stop` cancels the call. A cut-off update would lose the gradients that it has taken.
_NO_DEADLINE = tf.RunOptions(timeout_in_ms=2**31 - 1)


class SyncReplicasOps(NamedTuple):
    """Ops of `SyncReplicasOptimizer` in the chief's graph, and the current global_step.

    Attributes:
        sync: One update; returns the new global_step.
        required: Placeholder of `sync`.
        stand_in: Gives an update a gradient that does not count.
        stand_in_step: Placeholder of `stand_in`.
        release: Gives every worker a token without an update.
        global_step: Present global_step, int64 scalar.
    """

    sync: tf.Tensor
    required: tf.Tensor
    stand_in: tf.Operation
    stand_in_step: tf.Tensor
    release: tf.Operation
    global_step: tf.Tensor


class SyncReplicasService(ChiefService):
    """Makes one update after the other, each from the gradients of R workers, or of all that are left.

    When a worker is done while an update waits for it, the service puts a stand-in into that update. Later updates wait
    for fewer gradients.

    Args:
        ops: Ops in the chief's graph.
        replicas_to_aggregate: R.
        num_workers: Number of workers.
        max_steps: Value of global_step after which no update is made, or None.
    """

    def __init__(self, ops: SyncReplicasOps, replicas_to_aggregate: int, num_workers: int, max_steps: int | None):
        self._ops = ops
        self._replicas_to_aggregate = replicas_to_aggregate
        self._max_steps = max_steps
        self._session: tf.Session  # set by `start`
        self._changed = threading.Condition()  # guards everything below
        self._live = set(range(num_workers))
        self._is_open = False
        self._error: BaseException | None = None
        self._step = 0
        self._num_missing = 0  # gradients of live workers that the update under way needs; 0 between updates
        self._updates = threading.Thread(target=self._make_updates, name="sync_replicas-updates", daemon=True)
        self._stand_ins = ThreadPoolExecutor(1, "sync_replicas-stand-ins")

    def start(self, session: tf.Session) -> None:
        self._session = session
        self._is_open = True
        self._updates.start()

    def worker_came(self, worker_index: int) -> None:
        with self._changed:
            self._live.add(worker_index)
            self._changed.notify_all()

    def worker_left(self, worker_index: int, join_number: int) -> None:
        with self._changed:
            self._live.discard(worker_index)
            self._fill_up()
        logging.info("sync_replicas: worker %d left", worker_index)

    def release(self) -> None:
        with self._changed:
            if not self._is_open:
                return
        with contextlib.suppress(RuntimeError):  # `stop` has closed the session meanwhile
            self._session.run(self._ops.release)

    def stop(self) -> None:
        with self._changed:
            was_open, self._is_open = self._is_open, False
            self._changed.notify_all()
        if was_open:
            # Closing cancels the update under way. It fails if a ps task does not answer, which its watch reports.
            with contextlib.suppress(tf.errors.OpError):
                self._session.close()
            self._updates.join(_STOP_SECS)
        self._stand_ins.shutdown(wait=False, cancel_futures=True)

    def error(self) -> BaseException | None:
        return self._error

    def gradient_counts(self) -> GradientCounts | None:
        """Returns None: an accumulator does not tell whose gradients it has dropped, so each worker counts its own."""
        return None

    def _make_updates(self) -> None:
        try:
            step = int(self._session.run(self._ops.global_step))
            while (required := self._begin_update(step)) is not None:
                step = int(self._session.run(self._ops.sync, {self._ops.required: required}, options=_NO_DEADLINE))
        except Exception as error:  # noqa: BLE001 - `error` returns it
            self._fail(error)

    def _begin_update(self, step: int) -> int | None:
        """Waits for a live worker; returns the number of gradients of the next update, None after the last update."""
        with self._changed:
            self._num_missing = 0
            while self._is_open and not self._live:
                self._changed.wait()  # `worker_came` or `stop` ends it
            if not self._is_open or (self._max_steps is not None and step >= self._max_steps):
                return None
            self._step = step
            self._num_missing = self._num_required
            return self._num_missing

    @property
    def _num_required(self) -> int:
        return min(self._replicas_to_aggregate, len(self._live))

    def _fill_up(self) -> None:
        """Puts stand-ins into the update under way until the live workers can complete it."""
        # An average of stand-ins alone would be 0/0, so an update for which no replica is left waits for the end.
        while self._live and self._num_missing > self._num_required:
            self._num_missing -= 1
            # In a separate thread: the caller watches the tasks, and a frozen ps task must not hold it up.
            self._stand_ins.submit(self._send_stand_in, self._step)

    def _send_stand_in(self, step: int) -> None:
        try:
            self._session.run(self._ops.stand_in, {self._ops.stand_in_step: step})
        except Exception as error:  # noqa: BLE001 - `error` returns it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            # After `stop` an error is only the cancellation that `stop` itself has caused.
            if self._is_open:
                self._error = self._error or error
