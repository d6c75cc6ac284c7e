"""Folders in which processes share what one of them has computed from large files: those of a machine, or of a run."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

VARIABLE = "PS_TRAINER_CACHE_DIR"
"""Environment variable that names the folder of the machine; empty = processes share nothing."""

MIN_BYTES = 2**20
"""Size of files from which on sharing pays."""

_FORM = 7  # of the facts; a change of what datasets compute needs another number
_MAX_ENTRIES = 100
_POLL_SECS = 0.1


class _Patience:
    """Time that this process waits for a fact; not again after a wait in vain, as its holder may hold more of them."""

    def __init__(self, secs: float):
        self.secs = secs


_PATIENCE = _Patience(900.0)


def once(key: Any, compute: Callable[[], Any], *, num_bytes: int, run_folder: pathlib.Path | None = None) -> Any:
    """Returns the value of a key; only the first process that asks computes it, and others wait for that one.

    A process asks the folder of its machine first, then the one of its run. So one process of each machine reads the
    value in the run's folder, which may lie on a network. A folder that cannot be written, or a wait that takes too
    long, only means that this process computes the value too.

    Args:
        key: All values on which the fact depends, as JSON.
        compute: Function that returns the value as JSON.
        num_bytes: Number of bytes that `compute` reads.
        run_folder: Folder that the tasks of a run share, on all machines; None = there is none.
    """
    if num_bytes < MIN_BYTES or os.environ.get(VARIABLE) == "":
        return compute()
    name = hashlib.sha256(json.dumps([_FORM, key], sort_keys=True).encode()).hexdigest()
    for folder in (run_folder, _folder()):
        if folder is not None:
            compute = functools.partial(_once_in, folder, name, compute)
    return compute()


def _once_in(folder: pathlib.Path, name: str, compute: Callable[[], Any]) -> Any:
    found: list[Any] | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _hold_lock(folder / f"{name}.lock"):
            found = _read(folder / f"{name}.json")
            if found is None:
                found = [compute()]
                _write(folder / f"{name}.json", found)
    except OSError as error:
        logging.info("%s cannot be used (%s); this task reads the files itself", folder, error)
    return found[0] if found is not None else compute()


def _folder() -> pathlib.Path | None:
    if given := os.environ.get(VARIABLE):
        return pathlib.Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "ps_trainer"
    except RuntimeError:  # a user without a home
        return None


@contextlib.contextmanager
def _hold_lock(path: pathlib.Path) -> Iterator[None]:
    """Holds a lock on a file; gives up waiting after a while, because its holder may be frozen."""
    with path.open("w") as file:
        _lock(file.fileno())
        try:
            yield
        finally:
            # Closing is not enough: a process forked meanwhile has the open file, too, and would keep the lock.
            fcntl.flock(file, fcntl.LOCK_UN)


def _lock(descriptor: int) -> None:
    """Locks an open file, or returns without the lock when the wait takes too long."""
    until, is_first = time.monotonic() + _PATIENCE.secs, True
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                _PATIENCE.secs = 0.0
                return
            if is_first:
                logging.info("waiting for the task that reads the same files")
            is_first = False
            time.sleep(_POLL_SECS)


def _read(path: pathlib.Path) -> list[Any] | None:
    """Returns the value, alone in a list; None if the file is missing or damaged."""
    try:
        checksum, _, text = path.read_bytes().partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != checksum:
            return None
        os.utime(path)  # `_write` removes those that were not used for the longest time
        found = json.loads(text)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, list) else None


def _write(path: pathlib.Path, found: list[Any]) -> None:
    text = json.dumps(found).encode()
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    entries = sorted(path.parent.glob("*.json"), key=lambda entry: entry.stat().st_mtime)
    for entry in entries[:-_MAX_ENTRIES]:
        entry.unlink(missing_ok=True)
        entry.with_suffix(".lock").unlink(missing_ok=True)
