"""Ends a script that fails with one line in place of a traceback, and with the exit code of its error.

The errors of ps_trainer stay what they are: a script can catch them, and a notebook shows them. Only an error that
no code catches, and that would end the process with a traceback and exit code 1, is reported here.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from types import TracebackType
from typing import NoReturn

from ps_trainer.errors import Interrupted, PsTrainerError
from ps_trainer.runtime import job_runner

# Names of the threads that call ps tasks; each call has a deadline.
_THREADS = ("ask-", "close-", "heartbeat-", "job", "mail", "release", "abort", "sync-replicas", "watcher")
_CALL_SECS = 4.0

_is_installed = False
_codes: list[int] = []  # exit codes of the errors that were not caught; the main thread's comes first


def install() -> None:
    """Reports errors of ps_trainer that no one catches from now on; the hook of before reports all others."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    before = sys.excepthook

    def report(error_type: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, PsTrainerError | Interrupted) or hasattr(sys, "ps1"):  # a console continues
            before(error_type, error, trace)
            return
        _codes.insert(0, job_runner.report(error))
        atexit._run_exitfuncs()
        # Python's own end would stop threads in the middle of a call to a lost task, which ends in an abort.
        end_process(_codes[0])

    sys.excepthook = report
    atexit.register(_wait_for_threads)
    _report_threads()


def _wait_for_threads() -> None:
    """Waits for the threads of jobs that are over: Python's end must not stop them in the middle of a call."""
    deadline = time.monotonic() + _CALL_SECS
    for thread in threading.enumerate():
        if thread.name.startswith(_THREADS):
            thread.join(max(0.0, deadline - time.monotonic()))


def _report_threads() -> None:
    """Does the same for errors that end a thread, after which Python itself would end the process with 0."""
    before = threading.excepthook

    def report(thread: threading.ExceptHookArgs) -> None:
        if isinstance(thread.exc_value, PsTrainerError | Interrupted) and not hasattr(sys, "ps1"):
            _codes.append(job_runner.report(thread.exc_value))
        else:
            before(thread)

    def end() -> None:
        if _codes:
            end_process(_codes[0])

    threading.excepthook = report
    atexit.register(end)


def end_process(code: int) -> NoReturn:
    """Ends the process with `code`, where Python itself would end with another one, or abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def is_good_end(error: BaseException) -> bool:
    """Returns whether an error only ends a script that is done: `sys.exit()` or `sys.exit(0)`."""
    return isinstance(error, SystemExit) and error.code in (None, 0)
