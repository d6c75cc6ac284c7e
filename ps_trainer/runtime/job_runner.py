"""Runs a task's job off the main thread, so that signals and deadlines act at once.

Python runs signal handlers only between bytecodes of the main thread, and a call into TensorFlow can block forever. So
the job runs in another thread, and the main thread only watches it. After a stop request:

    at once             the job sees the request between two steps, saves and leaves
    + RELEASE_SECS      the main thread releases the ops that may block the job (`on_release`)
    + ABORT_SECS        the main thread closes the session of the job (`on_abort`)
    + EXIT_SECS         the main thread ends the process
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from absl import logging

from ps_trainer.config import PARENT_PID_VARIABLE
from ps_trainer.errors import EXIT_FAILED, Interrupted, LostError, PsTrainerError, RunError

RELEASE_SECS = 0.3
ABORT_SECS = 4.0
# Just before `local` kills its tasks (`launch.supervisor.ShutdownDeadlines.all_end`): the log still gets the stacks.
EXIT_SECS = 8.0

_POLL_SECS = 0.1

_Result = TypeVar("_Result")


class StopRequest:
    """Asks a job to stop, and gives the reason. Thread-safe.

    The first reason is kept, unless it is a `LostError` and a later reason is final. After a `LostError` the job may
    rejoin the run (`renew`).

    Attributes:
        reason: Reason of the request; None until someone makes it.
        signal: The first signal, even if another reason came before it; None before.
        rounds: Number of times that the job has rejoined.
        patience_secs: Additional time in seconds that the job may take to leave after a `LostError`. TensorFlow closes
            a session only when every ps task has answered or is lost, so a suspended ps task delays it.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.RLock()  # a signal handler may run in the main thread while that holds the lock
        self._callbacks: dict[str, list[Callable[[], Any]]] = {"release": [], "abort": []}
        self.reason: BaseException | None = None
        self.signal: Interrupted | None = None
        self.rounds = 0
        self.patience_secs = 0.0

    @property
    def is_requested(self) -> bool:
        """Whether the job is asked to stop."""
        return self._event.is_set()

    def request(self, reason: BaseException) -> None:
        """Asks the job to stop because of `reason`."""
        with self._lock:
            if self.reason is None or (isinstance(self.reason, LostError) and not isinstance(reason, LostError)):
                self.reason = reason
            if self.signal is None and isinstance(reason, Interrupted):
                self.signal = reason
            self._event.set()

    def renew(self) -> None:
        """Clears a `LostError` and the callbacks, for another round of the job; raises a reason that is final."""
        with self._lock:
            if self.reason is not None and not isinstance(self.reason, LostError):
                raise self.reason
            self.reason = None
            self._event.clear()
            # The callbacks belong to the sessions of the round that is over.
            self._callbacks = {"release": [], "abort": []}
            self.rounds += 1

    def start_over(self) -> None:
        """Clears every reason but a signal, and the callbacks, for a part of the job that they do not concern."""
        with self._lock:
            self._callbacks = {"release": [], "abort": []}
            if self.signal is None:
                self.reason = None
                self._event.clear()
                self.rounds += 1

    def check(self) -> None:
        """Raises the reason if the job is asked to stop."""
        # Read once, because `renew` may clear it between the test and the `raise`.
        reason = self.reason
        if reason is not None:
            raise reason

    def wait(self, seconds: float) -> bool:
        """Sleeps until the job is asked to stop, or the time is over; returns whether it is asked."""
        return self._event.wait(seconds)

    def on_release(self, callback: Callable[[], Any]) -> None:
        """Registers a callback that releases an op which may block the job."""
        self._callbacks["release"].append(callback)

    def on_abort(self, callback: Callable[[], Any]) -> None:
        """Registers a callback that makes the job's blocking call fail."""
        self._callbacks["abort"].append(callback)

    def call(self, kind: str) -> None:
        """Runs the callbacks of a kind, each in a separate thread, because they may block as well."""
        for callback in list(self._callbacks[kind]):
            threading.Thread(target=_call_and_log_error, args=(callback,), name=kind, daemon=True).start()


def run_job(job: Callable[[StopRequest], int], *, exit_process: Callable[[int], Any] = os._exit) -> int:
    """Runs a job in a thread until it ends; logs why it failed, and returns the exit code of the process.

    Args:
        job: Function that receives the stop request, and returns an exit code or raises.
        exit_process: Function that ends the process if the job does not end after a stop request.
    """
    try:
        return call_job(job, exit_process=exit_process)
    except BaseException as error:  # noqa: BLE001 - its exit code is returned
        return report(error)


def call_job(job: Callable[[StopRequest], int], *, exit_process: Callable[[int], Any] = os._exit) -> int:
    """Runs a job in a thread until it ends; returns what it returns, or raises what it raises.

    While the job runs, SIGINT and SIGTERM make a stop request. The main thread must call this function.
    """
    stop = StopRequest()

    def handle(signum: int, _frame: Any) -> None:
        stop.request(Interrupted(signum))

    previous = {signum: signal.signal(signum, handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    ended, outcome = _start(job, stop)
    try:
        watch(ended, stop, exit_process)
        ended.wait()  # only a test's `exit_process` returns
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
    if "error" in outcome:
        raise outcome["error"]
    return int(outcome["result"])


def run_inside(job: Callable[[StopRequest], int], stop: StopRequest | None = None) -> None:
    """Runs a job for a caller that continues after it, such as a notebook or a test; returns when the job is done.

    Sets no signal handlers, so any thread may call it. Ctrl-C in the main thread makes a stop request.

    Args:
        job: Function that receives the stop request, and returns an exit code or raises.
        stop: Stop request, by which other threads can end the job; None = a new one.

    Raises:
        PsTrainerError: The job failed.
        Interrupted: The job was asked to stop, and has stopped.
        RunError: The job was asked to stop, and has not; its thread may still run.
    """
    stop = stop or StopRequest()
    ended, outcome = _start(job, stop)
    while not ended.is_set():
        try:
            watch(ended, stop, _leave_running)
        except KeyboardInterrupt:
            stop.request(Interrupted(signal.SIGINT))
    if "error" in outcome:
        raise outcome["error"]


def call_until_stopped(
    call: Callable[[], _Result], stop: StopRequest, *, besides: type[BaseException] | tuple[()] = ()
) -> _Result:
    """Makes a call that may block for long; a stop request leaves it behind, in its thread.

    Args:
        call: Function to call, such as an evaluation, whose batches a stop request cannot interrupt.
        stop: Stop request.
        besides: Reasons of stop requests after which the call is not left behind.

    Raises:
        BaseException: What the call raises, or the reason of the stop request.
    """
    ended, outcome = _start(lambda _stop: call(), stop)
    while not ended.wait(_POLL_SECS):
        reason = stop.reason
        if reason is not None and not isinstance(reason, besides):
            raise reason
    if "error" in outcome:
        raise outcome["error"]
    return cast(_Result, outcome["result"])


def call_until_final(call: Callable[[], _Result], stop: StopRequest) -> _Result:
    """Makes a call as `call_until_stopped`, but ends it before the job rejoins: it acts on what the rejoined job uses.

    Args:
        call: Function to call, such as the set-up of a run.
        stop: Stop request. Only a reason that is final leaves the call behind.

    Raises:
        BaseException: What the call raises, or that reason.
    """
    return call_until_stopped(call, stop, besides=LostError)


def report(error: BaseException) -> int:
    """Logs why a task ended; returns its exit code."""
    if isinstance(error, Interrupted):
        logging.warning("%s", error)
    elif isinstance(error, PsTrainerError):
        logging.error("error: %s", error)
    else:
        logging.error("error: %s\n%s", error, "".join(traceback.format_exception(error)))
    return getattr(error, "exit_code", EXIT_FAILED)


def _start(job: Callable[[StopRequest], Any], stop: StopRequest) -> tuple[threading.Event, dict[str, Any]]:
    """Starts a job in a thread; its end enters "result" or "error" into the dict, and sets the event."""
    # Not the thread itself: Python takes a thread for ended when Ctrl-C interrupts a `join` of it.
    ended = threading.Event()
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["result"] = job(stop)
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            outcome["error"] = error
        ended.set()

    threading.Thread(target=run, name="job", daemon=True).start()
    return ended, outcome


def _leave_running(_code: int) -> NoReturn:
    raise RunError("the training did not stop in time, and its thread still runs; restart the process")


def watch(ended: threading.Event, stop: StopRequest, give_up: Callable[[int], Any]) -> None:
    """Watches a job until it has ended, and helps it to end after a stop request.

    Args:
        ended: Event that the end of the job sets.
        stop: Stop request of the job.
        give_up: Function that is called with an exit code, if the job does not end in time after a stop request. It
            may end the process; otherwise this function returns, and the job continues.
    """
    parent = int(os.environ.get(PARENT_PID_VARIABLE, "0"))
    asked_at = None
    rounds = stop.rounds
    done: set[str] = set()
    while not ended.wait(_POLL_SECS):
        # The job has rejoined the run, so a later request gets the full times again.
        if rounds != stop.rounds:
            asked_at, rounds = None, stop.rounds
            done.clear()
        if parent and os.getppid() != parent:
            stop.request(Interrupted(signal.SIGTERM))  # the launcher was killed
        reason = stop.reason
        if reason is None:
            continue
        if asked_at is None:
            asked_at = time.monotonic()
            if isinstance(reason, LostError):
                logging.warning("%s", reason)
        waited = time.monotonic() - asked_at
        for kind, after in (("release", RELEASE_SECS), ("abort", ABORT_SECS)):
            if waited > after and kind not in done:
                done.add(kind)
                stop.call(kind)
        limit = EXIT_SECS + (stop.patience_secs if isinstance(reason, LostError) else 0.0)
        if waited > limit:
            logging.error("the job did not stop within %.0f s; abandoning it. Stacks of its threads:", limit)
            if sys.__stderr__ is not None:  # not `sys.stderr`, which has no file descriptor in a notebook
                faulthandler.dump_traceback(sys.__stderr__)
            give_up(report(reason))
            return


def _call_and_log_error(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except Exception as error:  # noqa: BLE001 - the job may have ended already; if not, the next stage follows
        logging.info("error while stopping: %s", error)
