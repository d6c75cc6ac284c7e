"""`LiveSet`: tells a rule that makes its updates on the ps tasks which workers it need not wait for."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.updates.base import ChiefService


class LiveOps(NamedTuple):
    """What the chief runs on the ps tasks.

    Attributes:
        leave: takes `worker` out of the live set; what waits only for that worker goes on.
        worker: int64 scalar placeholder.
        release: lets every worker go, with `RELEASED`.
        pushed: int64 [num_workers], gradients that came so far, or None where every gradient makes an update.
        used: int64 [num_workers], those of them in updates so far, or None likewise.
    """

    leave: tf.Operation
    worker: tf.Tensor
    release: tf.Operation
    pushed: tf.Tensor | None = None
    used: tf.Tensor | None = None


class LiveSet(ChiefService):
    """The service of rules whose workers make the updates themselves: it acts when it is called, without a thread.

    Workers join the live set by the rule's `join_op`, and leave it by its `leave_op` when they end in order; here
    the others are taken out, and the chief itself.

    Args:
        name: the rule's, for messages.
        ops: in the chief's graph.
    """

    def __init__(self, name: str, ops: LiveOps):
        self._name = name
        self._ops = ops
        self._session: tf.Session | None = None
        self._lock = threading.Lock()

    def start(self, session: tf.Session) -> None:
        """See `ChiefService.start`."""
        self._session = session

    def worker_came(self, worker_index: int) -> None:
        """See `ChiefService.worker_came`; the worker has put itself into the live set."""
        logging.info("%s: worker %d came", self._name, worker_index)

    def worker_left(self, worker_index: int) -> None:
        """See `ChiefService.worker_left`; harmless for a worker that has left before."""
        with self._lock:
            if self._session is not None:
                self._session.run(self._ops.leave, {self._ops.worker: worker_index})
                logging.info("%s: worker %d left", self._name, worker_index)

    def release(self) -> None:
        """See `ChiefService.release`."""
        with self._lock:
            if self._session is not None:
                self._session.run(self._ops.release)

    def stop(self) -> None:
        """See `ChiefService.stop`."""
        with self._lock:
            if self._session is not None:
                self._session.close()
                self._session = None

    def error(self) -> BaseException | None:
        """See `ChiefService.error`; there is no thread that could fail."""
        return None

    def summary(self) -> dict[str, Any]:
        """Gradients pushed and used so far, by worker; call before `stop`."""
        if self._ops.used is None:
            return {}
        pushed, used = self._session.run([self._ops.pushed, self._ops.used])
        return {"gradients_pushed": np.asarray(pushed).tolist(), "gradients_used": np.asarray(used).tolist()}
