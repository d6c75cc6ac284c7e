"""A task that was frozen when its launcher was killed must wake up to notice: Linux tells it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

from ps_trainer.config import PARENT_PID_VARIABLE

_PR_SET_PDEATHSIG = 1


def wake_when_parent_dies(environ: Mapping[str, str] = os.environ) -> None:
    """Has the kernel send this process SIGCONT when its launcher is gone; nothing without a launcher.

    That does nothing to a process that runs. A stopped one goes on, sees that its parent is another one now
    (`runtime/supervise.py`), saves and ends.
    """
    if PARENT_PID_VARIABLE in environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
