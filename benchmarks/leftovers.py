"""Finds the processes and the temporary files that a run left."""

from __future__ import annotations

import os
import pathlib
import time

_PARTS = ("*.tmp", "*.part", "*_temp*", "*.tempstate*")
_POLL_SECS = 0.1


def processes(logdir: pathlib.Path, within_secs: float) -> list[str]:
    """Returns the command lines of a run's processes that still exist after some seconds; empty once none exists.

    A process belongs to a run if its command line names the run's folder, or if its output goes there. A forked process
    has the command line of its parent.
    """
    deadline = time.monotonic() + within_secs
    while (found := living(logdir)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
    return list(found.values())


def files(logdir: pathlib.Path, temporary: pathlib.Path) -> list[str]:
    """Returns the half-written files in the run's folder, and all entries of its folder for temporary files."""
    # A file under such a name is renamed when it is complete, so one that is left was never completed.
    found = [path for pattern in _PARTS for path in logdir.rglob(pattern)]
    return sorted(map(str, [*found, *temporary.iterdir()]))


def living(folder: pathlib.Path) -> dict[int, str]:
    """Returns the command lines of the living processes that belong to a folder, as `processes` defines it, by pid."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # another user's, or it has just ended
        # Compared as paths, because runs/a is also the beginning of the text runs/ab.
        names_it = any(folder in _and_parents(word.rpartition(b"=")[2]) for word in words)
        if (names_it or _writes_to(process, folder)) and int(process.name) != os.getpid():
            found[int(process.name)] = b" ".join(words).decode(errors="replace").strip()
    return found


def _and_parents(word: bytes) -> list[pathlib.PurePath]:
    path = pathlib.PurePath(os.fsdecode(word))
    return [path, *path.parents]


def _writes_to(process: pathlib.Path, folder: pathlib.Path) -> bool:
    """Returns whether the standard output of a process is a file in that folder."""
    try:
        return folder in pathlib.Path(os.readlink(process / "fd" / "1")).parents
    except OSError:
        return False
