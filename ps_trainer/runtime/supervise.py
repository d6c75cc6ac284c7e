"""Runs a task's job off the main thread, so that signals and deadlines act at once.

Python runs signal handlers only between bytecodes of the main thread, and a call into TensorFlow can
block for ever. So the main thread only watches:

    asked to stop       the job sees `StopRequest.requested` between two steps, saves and leaves
    + RELEASE_SECS      what may block the job is let go (`on_release`), then
    + ABORT_SECS        the session is closed under it (`on_abort`)
    + EXIT_SECS         the process ends without it
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from absl import logging

from ps_trainer.config import PARENT_PID_VARIABLE
from ps_trainer.errors import EXIT_FAILED, Interrupted, LostError, PsTrainerError

RELEASE_SECS = 0.3
ABORT_SECS = 4.0
EXIT_SECS = 8.0


class StopRequest:
    """Asks a job to stop, with the reason. Thread-safe; the first reason wins, but a final one over a `LostError`.

    After a `LostError` a job may go on from another beginning (`renew`).

    Attributes:
        reason: None until somebody asks.
        rounds: how often the job has begun anew.
        patience_secs: after a `LostError`: how much longer the job may take to leave what it does. TensorFlow closes
            no session before a ps task has answered, or is gone: one that is frozen holds it as long as it is.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.RLock()  # a signal handler may come while the main thread holds it
        self._callbacks: dict[str, list[Callable[[], Any]]] = {"release": [], "abort": []}
        self.reason: BaseException | None = None
        self.rounds = 0
        self.patience_secs = 0.0

    @property
    def requested(self) -> bool:
        """Whether somebody asked."""
        return self._event.is_set()

    def request(self, reason: BaseException) -> None:
        """Asks the job to stop because of `reason`."""
        with self._lock:
            if self.reason is None or (isinstance(self.reason, LostError) and not isinstance(reason, LostError)):
                self.reason = reason
            self._event.set()

    def renew(self) -> None:
        """Forgets a `LostError`, and what was to be let go; raises a reason that is final."""
        with self._lock:
            if self.reason is not None and not isinstance(self.reason, LostError):
                raise self.reason
            self.reason = None
            self._event.clear()
            self._callbacks = {"release": [], "abort": []}
            self.rounds += 1

    def check(self) -> None:
        """Raises the reason if somebody asked."""
        reason = self.reason
        if reason is not None:
            raise reason

    def wait(self, seconds: float) -> bool:
        """Sleeps, but only until somebody asks; returns whether somebody did."""
        return self._event.wait(seconds)

    def on_release(self, callback: Callable[[], Any]) -> None:
        """`callback` lets go what may block the job."""
        self._callbacks["release"].append(callback)

    def on_abort(self, callback: Callable[[], Any]) -> None:
        """`callback` makes the job's blocking call fail."""
        self._callbacks["abort"].append(callback)

    def call(self, kind: str) -> None:
        """Runs the callbacks of a kind, each in a thread of its own: they may block as well."""
        for callback in list(self._callbacks[kind]):
            threading.Thread(target=_logged, args=(callback,), daemon=True).start()


def run_job(job: Callable[[StopRequest], int], *, exit_process: Callable[[int], Any] = os._exit) -> int:
    """Runs `job` in a thread until it ends; returns the process's exit code.

    Installs handlers for SIGINT and SIGTERM while it runs. Call it from the main thread.

    Args:
        job: gets the stop request; returns an exit code or raises.
        exit_process: ends the process when the job does not end after a stop request.
    """
    stop = StopRequest()
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["code"] = job(stop)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which reports it
            outcome["error"] = error

    def handle(signum: int, _frame: Any) -> None:
        stop.request(Interrupted(signum))

    previous = {signum: signal.signal(signum, handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    thread = threading.Thread(target=run, name="job", daemon=True)
    thread.start()
    try:
        _watch(thread, stop, exit_process)
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
    return outcome["code"] if "code" in outcome else report(outcome["error"])


def report(error: BaseException) -> int:
    """Logs why a task ended; returns its exit code."""
    if isinstance(error, Interrupted):
        logging.warning("%s", error)
    elif isinstance(error, PsTrainerError):
        logging.error("error: %s", error)
    else:
        logging.error("error: %s\n%s", error, "".join(traceback.format_exception(error)))
    return getattr(error, "exit_code", EXIT_FAILED)


def _watch(thread: threading.Thread, stop: StopRequest, exit_process: Callable[[int], Any]) -> None:
    parent = int(os.environ.get(PARENT_PID_VARIABLE, "0"))
    asked_at = None
    rounds = stop.rounds
    done: set[str] = set()
    while thread.is_alive():
        thread.join(0.1)
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
            logging.error("the job did not stop within %.0f s; ending the process. Its threads:", limit)
            faulthandler.dump_traceback()
            exit_process(report(reason))


def _logged(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except Exception as error:  # noqa: BLE001 - the job may be gone already; the next stage follows
        logging.info("while stopping: %s", error)
