"""Acts on SIGINT and SIGTERM at once, although the main thread of a script is inside of TensorFlow.

Python runs a signal handler only when the main thread is back in Python, and a step may block for ever. So the signal
also writes a byte into a socket, from which a thread reads it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from ps_trainer.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class CtrlC(Interrupted, KeyboardInterrupt):
    """Ctrl-C; a script that catches KeyboardInterrupt catches it."""


def interruption(signum: int) -> Interrupted:
    """The error with which a signal ends a script."""
    return CtrlC(signum) if signum == signal.SIGINT else Interrupted(signum)


@contextlib.contextmanager
def watching(on_signal: Callable[[int], None], in_python: Callable[[int], None]) -> Iterator[None]:
    """Calls two functions at each signal; outside of the main thread, watches nothing.

    Args:
        on_signal: Function of the signal's number, called at once by another thread.
        in_python: Function of the signal's number, called in the main thread when that runs Python code. It may raise.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
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
