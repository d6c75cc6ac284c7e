"""The process that runs a cluster of processes for the API.

`python -m ps_trainer.api.launcher PARENT_PID FOLDER [flags]` is `ps_trainer local` that ends when the calling process
ends. If that process was killed, it also removes the folder of temporary files that the process would have removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time

from ps_trainer.cli.command_wrapper import leave
from ps_trainer.cli.main import main as run_command

_POLL_SECS = 0.5


def main(argv: list[str]) -> int:
    """Runs the cluster; returns its exit code."""
    parent = int(argv[1])
    threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
    try:
        return run_command(["ps_trainer", "local", *argv[3:]])
    finally:
        if os.getppid() != parent:
            shutil.rmtree(argv[2], ignore_errors=True)


def _end_with(parent: int) -> None:
    """Sends this process SIGTERM when the calling process has ended; then it ends its tasks."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    leave(main(sys.argv))
