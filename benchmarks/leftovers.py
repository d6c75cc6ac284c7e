"""What a run must not leave behind: processes, and temporary files."""

from __future__ import annotations

import os
import pathlib
import time

_PARTS = ("*.tmp", "*.part", "*_temp*", "*.tempstate*")
_POLL_SECS = 0.1


def processes(logdir: pathlib.Path, within_secs: float) -> list[str]:
    """Command lines of the processes that after so long still belong to a run, as a list to be empty.

    They name its folder, or, forked of a process that does not, their output goes there.
    """
    deadline = time.monotonic() + within_secs
    while (found := _processes(logdir)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
    return found


def files(logdir: pathlib.Path, temporary: pathlib.Path) -> list[str]:
    """Half-written files in the run's folder, and everything in its folder of temporary files."""
    found = [path for pattern in _PARTS for path in logdir.rglob(pattern)]
    return sorted(map(str, [*found, *temporary.iterdir()]))


def _processes(logdir: pathlib.Path) -> list[str]:
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # another user's, or it has just ended
        names_it = any(os.fsencode(str(logdir)) == word.rpartition(b"=")[2] for word in words)
        if (names_it or _writes_to(process, logdir)) and int(process.name) != os.getpid():
            found.append(b" ".join(words).decode(errors="replace").strip())
    return found


def _writes_to(process: pathlib.Path, folder: pathlib.Path) -> bool:
    """Whether the standard output of a process is a file in that folder."""
    try:
        return folder in pathlib.Path(os.readlink(process / "fd" / "1")).parents
    except OSError:
        return False
