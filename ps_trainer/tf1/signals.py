"""Acts on SIGINT and SIGTERM at once, although the main thread of a script is inside of TensorFlow.

Python runs a signal handler only when the main thread is back in Python, and a step may block forever. So the signal
also writes a byte into a socket, from which a thread reads it.

Python gives signals to the main thread only, and only that can set a handler. For sessions of other threads the main
thread does so when it makes the task's `Server`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ps_trainer.errors import Interrupted

_SIGNALS: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The signals that end a script, with Python's own handlers."""

_END_SECS = 60.0  # the watcher of each job ends it before
_in_threads: list[Callable[[int], None]] = []  # of sessions and ps tasks outside of the main thread


class CtrlC(Interrupted, KeyboardInterrupt):
    """Ctrl-C; a script that catches KeyboardInterrupt catches it."""


def interruption(signum: int) -> Interrupted:
    """Returns the error with which a signal ends a script."""
    return CtrlC(signum) if signum == signal.SIGINT else Interrupted(signum)


@contextlib.contextmanager
def watching(on_signal: Callable[[int], None], in_python: Callable[[int], None]) -> Iterator[None]:
    """Calls two functions at each signal; outside of the main thread only the first one, after `prepare_threads`.

    Args:
        on_signal: Function of the signal's number, called at once by another thread.
        in_python: Function of the signal's number, called in the main thread when that runs Python code. It may raise.
    """
    if threading.current_thread() is not threading.main_thread():
        _in_threads.append(on_signal)
        try:
            yield
        finally:
            _in_threads.remove(on_signal)
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        del frame
        on_signal(signum)
        in_python(signum)

    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    before = {signum: signal.signal(signum, handle) for signum in _SIGNALS}
    descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)

    def read() -> None:
        while byte := receiver.recv(1):
            if byte[0] in _SIGNALS:
                on_signal(byte[0])
        receiver.close()

    threading.Thread(target=read, name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        sender.close()
        for signum, handler in before.items():
            signal.signal(signum, handler)


def prepare_threads() -> None:
    """Lets `watching` work outside of the main thread; called in the main thread, where the script has no handlers."""
    if threading.current_thread() is not threading.main_thread() or hasattr(sys, "ps1"):  # a console has its own ways
        return
    for signum, default in _SIGNALS.items():
        if signal.getsignal(signum) is default:
            signal.signal(signum, _handle)


def _handle(signum: int, frame: FrameType | None) -> None:
    """Ends the jobs of all threads and then, by an error, the main thread; without jobs, does as Python does."""
    if not _in_threads and signum == signal.SIGTERM:
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
    if not _in_threads:
        signal.default_int_handler(signum, frame)
    for on_signal in list(_in_threads):
        on_signal(signum)
    deadline = time.monotonic() + _END_SECS
    while _in_threads and time.monotonic() < deadline:
        time.sleep(0.05)
    raise interruption(signum)
