"""`SaveThread`: one save beside the chief's steps, in a thread that leaves the processor cores to the steps."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np

Values = Mapping[str, np.ndarray]

_PAUSE_SHARE = 4.0
"""A pause after each slice takes this many times the time of the slice, so that a save has a fifth of the time."""
_MAX_PAUSE_SECS = 1.0
_NICENESS = 5  # the thread gets a third of the share of a thread of the steps, so it does not starve on a busy machine


class Abandoned(Exception):
    """The save ended before it had read everything, because it was asked to."""


class SaveThread:
    """Reads and writes one checkpoint, in a thread that begins at once.

    Args:
        read: Reads the values. It calls its argument after each slice.
        write: Writes them. It calls its second argument between two files.

    Attributes:
        values: The values that were saved; None before that.
        error: Error that ended the save; None without one.
        secs: Seconds that the save took; 0 before its end.
    """

    def __init__(
        self, read: Callable[[Callable[[], None]], Values], write: Callable[[Values, Callable[[], None]], None]
    ):
        self._read = read
        self._write = write
        self._slice_began_at = self._began_at = time.monotonic()
        self._read_at = 0.0
        self._hurry = threading.Event()
        self._has_read = threading.Event()
        self._done = threading.Event()
        self._is_abandoned = False
        self.values: Values | None = None
        self.error: Exception | None = None
        self.secs = 0.0
        # A daemon, because a disk that does not answer must not keep the process from ending.
        threading.Thread(target=self._run, name="save", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether the save has ended, in whichever way."""
        return self._done.is_set()

    @property
    def has_read(self) -> bool:
        """Whether the reading has ended, in whichever way."""
        return self._has_read.is_set()

    @property
    def writing_secs(self) -> float:
        """Seconds for which the save has been writing so far; 0 before that, and after its end."""
        return time.monotonic() - self._read_at if self.has_read and not self.is_done else 0.0

    def wait(self, read_secs: float, write_secs: float) -> bool:
        """Waits for the end of the save, which makes no more pauses; returns whether it has ended.

        Args:
            read_secs: Deadline in seconds of the rest of the reading.
            write_secs: Deadline in seconds of the writing after it.
        """
        self._hurry.set()
        return self._has_read.wait(read_secs) and self._done.wait(write_secs)

    def abandon(self, secs: float) -> bool:
        """Ends the save if it still reads; waits until it has ended, or the seconds are over; returns whether it has.

        A save that writes already ends as usual.
        """
        self._is_abandoned = True
        self._hurry.set()
        return self._done.wait(secs)

    def _run(self) -> None:
        try:
            _be_nice()
            values = self._read(self._end_slice)
            self._read_at = time.monotonic()
            self._has_read.set()
            self._write(values, self._pause)
            self.values = values
        except Exception as error:  # noqa: BLE001 - raised in the chief's thread, by `Checkpointer`
            self.error = error
        finally:  # also after an exception of another kind, so that nothing waits in vain
            self.secs = time.monotonic() - self._began_at
            self._done.set()
            self._has_read.set()

    def _end_slice(self) -> None:
        self._pause()
        if self._is_abandoned:
            raise Abandoned

    def _pause(self) -> None:
        took = time.monotonic() - self._slice_began_at
        self._hurry.wait(min(_PAUSE_SHARE * took, _MAX_PAUSE_SECS))
        self._slice_began_at = time.monotonic()


def _be_nice() -> None:
    """Lowers the priority of this thread, where the system has one for each thread."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
