"""Checks the folder in which a run writes its files. Imports no TensorFlow."""

from __future__ import annotations

import errno
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator

from ps_trainer.cluster.findings import FAIL, OK, WARNING, ClusterFinding

_FEW_BYTES = 2**30
_FEW_FILES = 100
_DATA = re.compile(r"model\.ckpt-(\d+)\.data-")
FOLDER, ROOM = "folder", "room"  # topics


def findings(logdir: str) -> Iterator[ClusterFinding]:
    """Checks that this machine can write `logdir`, and that it has room for another checkpoint.

    The check creates a file and removes it. Where the system allows, the file has no name.
    """
    path = pathlib.Path(logdir)
    # `lexists` also finds a dead link. No folder can be created in its place, so it must not be skipped.
    existing = next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))
    where = f"--logdir={logdir}" if existing == path else f"--logdir={logdir}, to be created in {existing},"
    if not existing.is_dir():
        yield ClusterFinding(
            FAIL, FOLDER, f"{where} cannot be used: {existing} is not a folder", "give another --logdir"
        )
        return
    for folder in (existing, path / "checkpoints"):
        error = _write_error(folder) if folder.exists() else None
        if error is not None:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = f"{where} cannot be written: {folder}: {error.strerror or error}"
            fix = "free some space" if is_full else "change its permissions, or give another --logdir"
            yield ClusterFinding(FAIL, ROOM if is_full else FOLDER, reason, fix)
            return
    yield from _room_findings(where, existing, path / "checkpoints")


def _write_error(folder: pathlib.Path) -> OSError | None:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # On a full disk an empty file can often be created, so only written bytes show the fault.
            file.write(b"0" * 4096)
            file.flush()
    except OSError as error:
        return error
    return None


def _room_findings(where: str, existing: pathlib.Path, checkpoints: pathlib.Path) -> Iterator[ClusterFinding]:
    status = os.statvfs(existing)
    free = status.f_bavail * status.f_frsize
    newest = _newest_bytes(checkpoints)
    text = f"{where} can be written; {_format_size(free)} are free there"
    if newest and free < newest:
        yield ClusterFinding(
            FAIL,
            ROOM,
            f"{text}, the newest checkpoint has {_format_size(newest)}: the next one will not fit",
            "free some space",
        )
    elif (newest and free < 3 * newest) or free < _FEW_BYTES:
        held = f", the newest checkpoint has {_format_size(newest)}" if newest else ""
        yield ClusterFinding(WARNING, ROOM, f"{text}{held}", "free some space, or lower --keep_checkpoints")
    elif status.f_files and status.f_favail < _FEW_FILES:
        # File systems without a fixed number of files report 0 of them in total.
        yield ClusterFinding(WARNING, ROOM, f"{text}, but only for {status.f_favail} more files", "delete some files")
    else:
        yield ClusterFinding(OK, FOLDER, text)


def _newest_bytes(checkpoints: pathlib.Path) -> int:
    """Returns the size of the newest checkpoint's data in bytes; 0 without a checkpoint."""
    by_step: dict[int, int] = {}
    try:
        with os.scandir(checkpoints) as entries:
            for entry in entries:
                if match := _DATA.match(entry.name):
                    by_step[int(match[1])] = by_step.get(int(match[1]), 0) + entry.stat().st_size
    except OSError:
        return 0
    return by_step[max(by_step)] if by_step else 0


def _format_size(num_bytes: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            break
        num_bytes, unit = num_bytes / 1024, {"bytes": "KiB", "KiB": "MiB", "MiB": "GiB", "GiB": "TiB"}[unit]
    return f"{num_bytes:.4g} {unit}"
