"""`LiveWorkers`: tells a rule that makes its updates on the ps tasks which workers it need not wait for."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.updates.base import ChiefService

_STOP_SECS = 5.0  # for a call that `stop` has cancelled to return


class LiveWorkerOps(NamedTuple):
    """What the chief runs on the ps tasks.

    Attributes:
        leave: takes `worker` out of the live set, unless a later joining of it than `joining` has come; what waits
            only for that worker goes on.
        worker: int64 scalar placeholder.
        joining: int64 scalar placeholder.
        release: lets every worker go, with `RELEASED`.
        pushed: int64 [num_workers], gradients that came so far, or None where every gradient makes an update.
        used: int64 [num_workers], those of them in updates so far, or None likewise.
    """

    leave: tf.Operation
    worker: tf.Tensor
    joining: tf.Tensor
    release: tf.Operation
    pushed: tf.Tensor | None = None
    used: tf.Tensor | None = None


class _Call(NamedTuple):
    """What the thread is to run.

    Attributes:
        fetches: of `tf.Session.run`.
        feeds: of it as well.
        says: logged when it is done; "" for nothing.
        outcome: gets the fetched values, or the error.
    """

    fetches: Any
    feeds: Mapping[tf.Tensor, Any]
    says: str
    outcome: Future[Any]


class LiveWorkers(ChiefService):
    """The service of rules whose workers make the updates themselves: it acts when it is called.

    Workers join the live set by the rule's `join_op`, and leave it by its `leave_op` when they end in order; here
    the others are taken out, and the chief itself.

    Its calls to the ps tasks are made one after the other, in a thread of its own: a call to a ps task that is frozen
    lasts as long as the session's deadline, and whoever says that a worker left has others to watch meanwhile. A worker
    that has come back by the time of its call stays in the set, also where the call is on its way by then.

    Args:
        name: the rule's, for messages.
        ops: in the chief's graph.
    """

    def __init__(self, name: str, ops: LiveWorkerOps):
        self._name = name
        self._ops = ops
        self._session: tf.Session  # set by `start`; no call is taken before
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_open = False  # between `start` and `stop`; calls are taken then
        self._is_released = threading.Event()
        self._gone: set[int] = set()  # workers, as this service was told last
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._carry_out, name=f"{name}-service", daemon=True)

    def start(self, session: tf.Session) -> None:
        self._session = session
        self._is_open = True
        self._thread.start()

    def worker_came(self, worker_index: int) -> None:
        """See `ChiefService.worker_came`; the worker puts itself into the live set."""
        self._gone.discard(worker_index)
        logging.info("%s: worker %d came", self._name, worker_index)

    def worker_left(self, worker_index: int, joining: int) -> None:
        """See `ChiefService.worker_left`; harmless for a worker that has left before."""
        self._gone.add(worker_index)
        feeds = {self._ops.worker: worker_index, self._ops.joining: joining}
        self._call(self._ops.leave, feeds, f"{self._name}: worker {worker_index} left")

    def release(self) -> None:
        self._is_released.set()
        self._call(self._ops.release).result()

    def stop(self) -> None:
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if not was_open:
            return
        self._calls.put(None)
        with contextlib.suppress(tf.errors.OpError):  # a ps task does not answer: whoever watches it says so
            self._session.close()  # cancels the call under way
        self._thread.join(_STOP_SECS)

    def error(self) -> BaseException | None:
        return self._error

    def summary(self) -> dict[str, Any]:
        """Gradients pushed and used so far, by worker; call before `stop`."""
        if self._ops.used is None:
            return {}
        pushed, used = self._call([self._ops.pushed, self._ops.used]).result()
        return {"gradients_pushed": np.asarray(pushed).tolist(), "gradients_used": np.asarray(used).tolist()}

    def _call(self, fetches: Any, feeds: Mapping[tf.Tensor, Any] | None = None, says: str = "") -> Future[Any]:
        """Asks the thread for a call; before `start` and after `stop` there is nobody for whom to make one."""
        call = _Call(fetches, feeds or {}, says, Future())
        with self._lock:
            if self._is_open:
                self._calls.put(call)
            else:
                call.outcome.set_result(None)
        return call.outcome

    def _carry_out(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._is_in_vain(call):
                call.outcome.set_result(None)
                continue
            try:
                call.outcome.set_result(self._session.run(call.fetches, call.feeds))
            except Exception as error:  # noqa: BLE001 - told by `error`, and raised where the outcome is waited for
                if self._is_open:
                    self._error = self._error or error
                call.outcome.set_exception(error)
            else:
                if call.says:
                    logging.info("%s", call.says)

    def _is_in_vain(self, call: _Call) -> bool:
        """Whether the worker that is to leave is back, or nobody waits any more; no release waits for such calls."""
        if call.fetches is not self._ops.leave:
            return False
        return self._is_released.is_set() or call.feeds[self._ops.worker] not in self._gone
