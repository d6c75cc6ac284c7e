"""Wakes a frozen task when its launcher is killed, so that it can notice and end (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

from ps_trainer.config import PARENT_PID_VARIABLE

_PR_SET_PDEATHSIG = 1


def wake_when_parent_dies(environ: Mapping[str, str] = os.environ) -> None:
    """Asks the kernel to send this process SIGCONT when its launcher ends; without a launcher does nothing.

    The signal has no effect on a running process. A stopped process continues, sees that its parent has changed
    (`runtime/job_runner.py`), saves and ends.
    """
    if PARENT_PID_VARIABLE in environ and sys.platform == "linux":
        # A signal that ends the task would be wrong here. The kernel sends it when the parent's thread that started the
        # task ends, even if the parent lives on. The task itself can tell the two apart.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
