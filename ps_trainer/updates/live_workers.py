"""`LiveWorkers`: tells the ps tasks which workers a rule must not wait for, if workers make the updates themselves."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.store.base import ParameterStore
from ps_trainer.updates.base import RuleContext
from ps_trainer.updates.chief_service import ChiefService, GradientCounts

_STOP_SECS = 5.0  # deadline for a call that `stop` has cancelled to return
# Shorter than the deadline of the session: on a ps task that was restarted the lock of the section is not initialised,
# and the call waits for it.
_RELEASE_SECS = 5.0


class Membership(NamedTuple):
    """A worker joins the live set, or leaves it; int64 scalars, of which one vector is fed.

    One op makes both changes for every worker, because a visit to a ps task takes a hundred ops of the graph.

    Attributes:
        worker: Index of the worker.
        join_number: Join number of the worker's process (`RuleContext.join_number`).
        joins: 1 if the process joins, 0 if it leaves.
    """

    worker: Any
    join_number: Any
    joins: Any

    @classmethod
    def placeholder(cls, store: ParameterStore, context: RuleContext, name: str) -> tf.Tensor:
        """Creates the vector, [3], on the worker; without a feed this worker leaves."""
        leaves = cls(context.worker_index, context.join_number, joins=0)
        with tf.device(store.worker_device):
            return tf.placeholder_with_default(tf.constant(leaves, tf.int64), [len(leaves)], f"{name}/membership")

    @classmethod
    def joining(cls, placeholder: tf.Tensor, context: RuleContext) -> dict[tf.Tensor, Membership]:
        """Returns the feed with which this worker joins."""
        return {placeholder: cls(context.worker_index, context.join_number, joins=1)}


class ReleaseOps(NamedTuple):
    """Releases all workers, or takes that back; one op does both, because it is a visit to each ps task.

    Attributes:
        set_op: Takes a release back; with `feeds` it releases every worker, which then continues with `RELEASED`.
        feeds: Values to feed to it.
    """

    set_op: tf.Operation
    feeds: Mapping[tf.Tensor, int]

    @classmethod
    def build(cls, store: ParameterStore, name: str, build_set: Callable[[tf.Tensor], tf.Operation]) -> ReleaseOps:
        """Builds the ops of a rule.

        Args:
            store: The created store.
            name: Name of the rule.
            build_set: Builds the op on the ps tasks that sets the rule's flag to an int64 scalar, 1 or 0.
        """
        with tf.device(store.worker_device):
            is_released = tf.placeholder_with_default(tf.constant(0, tf.int64), [], f"{name}/is_released")
        return cls(build_set(is_released), {is_released: 1})


class LiveWorkerOps(NamedTuple):
    """Ops that the chief runs on the ps tasks.

    Attributes:
        leave: Takes a worker out of the live set, unless a later join of it has arrived. Steps that waited only for
            that worker continue.
        membership: Placeholder for the worker (`Membership.placeholder`).
        release: Releases every worker.
        pushed: Number of gradients of each worker that arrived so far, int64 [num_workers]. None for rules in which
            every gradient makes an update.
        used: Number of gradients of each worker in updates so far, int64 [num_workers]; None for the same rules.
    """

    leave: tf.Operation
    membership: tf.Tensor
    release: ReleaseOps
    pushed: tf.Tensor | None = None
    used: tf.Tensor | None = None


class _Call(NamedTuple):
    """A call for the thread to run.

    Attributes:
        fetches: Fetches of `tf.Session.run`.
        feeds: Feeds of `tf.Session.run`.
        log_line: Line to log when the call is done; "" for none.
        result: Receives the fetched values, or the error.
    """

    fetches: Any
    feeds: Mapping[tf.Tensor, Any]
    log_line: str
    result: Future[Any]


class LiveWorkers(ChiefService):
    """The service of rules whose workers make the updates themselves: it acts only when it is called.

    Workers join the live set by the rule's `join_op`, and leave it by its `leave_op` when their steps end without an
    error. This service takes out the lost workers, and the chief itself.

    A separate thread makes the calls to the ps tasks, one after the other. A call to a frozen ps task lasts until the
    session's deadline, and the thread that reports a lost worker must watch other tasks meanwhile. If the worker
    rejoins before its call is made, the service drops the call. If the call is already under way, the join number
    makes it harmless.

    Args:
        name: Name of the rule, for messages.
        ops: Ops in the chief's graph.
    """

    def __init__(self, name: str, ops: LiveWorkerOps):
        self._name = name
        self._ops = ops
        self._session: tf.Session  # set by `start`; no call is taken before
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_open = False  # between `start` and `stop`, when calls are accepted
        self._is_released = threading.Event()
        self._gone: set[int] = set()  # workers that were last reported as lost or done
        self._error: BaseException | None = None
        # A daemon: a call that a frozen ps task never answers must not keep the process alive.
        self._thread = threading.Thread(target=self._run_calls, name=f"{name}-service", daemon=True)

    def start(self, session: tf.Session) -> None:
        self._session = session
        self._is_open = True
        self._thread.start()

    def worker_came(self, worker_index: int) -> None:
        """Records that a worker is ready; the worker's own `join_op` puts it into the live set."""
        self._gone.discard(worker_index)
        logging.info("%s: worker %d joined", self._name, worker_index)

    def worker_left(self, worker_index: int, join_number: int) -> None:
        """Takes a worker out of the live set; has no effect on a worker that has left already."""
        self._gone.add(worker_index)
        left = Membership(worker_index, join_number, joins=0)
        self._call(self._ops.leave, {self._ops.membership: left}, f"{self._name}: worker {worker_index} left")

    def release(self) -> None:
        # First, so that the thread drops calls to leave that are still in the queue.
        self._is_released.set()
        try:
            self._call(self._ops.release.set_op, self._ops.release.feeds).result(_RELEASE_SECS)
        except FutureTimeoutError:
            raise tf.errors.DeadlineExceededError(None, None, f"no answer within {_RELEASE_SECS:g} s") from None

    def stop(self) -> None:
        # With the lock, so that no call follows the None below and waits forever.
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if not was_open:
            return
        self._calls.put(None)
        # Closing cancels the call under way. It fails if a ps task does not answer; the watch of that task reports it.
        with contextlib.suppress(tf.errors.OpError):
            self._session.close()
        self._thread.join(_STOP_SECS)

    def error(self) -> BaseException | None:
        return self._error

    def gradient_counts(self) -> GradientCounts | None:
        """Returns the gradients pushed and used so far, by worker; call it before `stop`."""
        if self._ops.used is None:
            return None
        pushed, used = self._call([self._ops.pushed, self._ops.used]).result()
        return GradientCounts(tuple(np.asarray(pushed).tolist()), tuple(np.asarray(used).tolist()))

    def _call(self, fetches: Any, feeds: Mapping[tf.Tensor, Any] | None = None, log_line: str = "") -> Future[Any]:
        """Hands a call to the thread. Before `start` and after `stop` no worker trains, and the result is None."""
        call = _Call(fetches, feeds or {}, log_line, Future())
        with self._lock:
            if self._is_open:
                self._calls.put(call)
            else:
                call.result.set_result(None)
        return call.result

    def _run_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._is_obsolete(call):
                call.result.set_result(None)
                continue
            try:
                call.result.set_result(self._session.run(call.fetches, call.feeds))
            except Exception as error:  # noqa: BLE001 - `error` returns it, and the caller that waits for it raises it
                # After `stop` an error is only the cancellation that `stop` itself has caused.
                if self._is_open:
                    self._error = self._error or error
                call.result.set_exception(error)
            else:
                if call.log_line:
                    logging.info("%s", call.log_line)

    def _is_obsolete(self, call: _Call) -> bool:
        """Returns whether a call to leave is not needed: its worker has rejoined, or all workers were released."""
        if call.fetches is not self._ops.leave:
            return False
        return self._is_released.is_set() or call.feeds[self._ops.membership].worker not in self._gone
