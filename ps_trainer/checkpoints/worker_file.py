"""Reads and writes `worker-<index>-<pushes>.npz`: the state that `worker_state_saver.py` keeps for a worker."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.checkpoints import durable_files
from ps_trainer.errors import CheckpointError

STEP, LINEAGE, PUSHES = "global_step", "lineage", "pushes"
_NAME = re.compile(r"worker-(\d+)(?:-(\d+))?\.npz")


class SavedWorkerState(NamedTuple):
    """The saved state of one worker.

    Attributes:
        values: Values by name of the variable.
        step: Last global_step that the worker knew.
        lineage: Number of the run that saved the state (`training.graph_parts.push_counts.PushMark`).
        pushes: Number of pushes that the worker had made. None in files of older versions, which did not record it.
    """

    values: Mapping[str, np.ndarray]
    step: int
    lineage: int
    pushes: int | None


def path_of(directory: pathlib.Path, worker_index: int, pushes: int) -> pathlib.Path:
    """Returns the path of a worker's state after `pushes` pushes."""
    return directory / f"worker-{worker_index}-{pushes}.npz"


def old_path_of(directory: pathlib.Path, worker_index: int) -> pathlib.Path:
    """Returns the path of a worker's state in older versions, which did not record the number of pushes."""
    return directory / f"worker-{worker_index}.npz"


def pushes_of(path: pathlib.Path) -> int | None:
    """Returns the number of pushes in a file's name; None for a file of an older version."""
    match = _NAME.fullmatch(path.name)
    return int(match[2]) if match and match[2] else None


def find(directory: pathlib.Path, worker_index: int | None = None) -> list[pathlib.Path]:
    """Returns the files of a worker, or of all workers, oldest first; files of older versions are included."""
    found = []
    for path in directory.glob("worker-*.npz"):
        match = _NAME.fullmatch(path.name)
        if match and worker_index in (None, int(match[1])):
            found.append(path)
    # By age, not by number: after a rollback newer files have smaller numbers of pushes.
    return sorted(found, key=lambda path: (_written_at(path), path.name))


def read(path: pathlib.Path) -> SavedWorkerState:
    """Reads a file.

    Raises:
        FileNotFoundError: The file does not exist.
        CheckpointError: The file is damaged, or holds something else.
    """
    try:
        with np.load(path) as file:
            # All now, because an array of an .npz is read only on access, when the file may be closed.
            values = {name: file[name] for name in file.files}
        step = int(values.pop(STEP))
        if PUSHES not in values:
            return SavedWorkerState(values, step, 0, None)
        lineage, pushes = (values.pop(name) for name in (LINEAGE, PUSHES))
        return SavedWorkerState(values, step, int(lineage), int(pushes))
    except FileNotFoundError:
        raise
    # Damage raises BadZipFile, ValueError, EOFError, NotImplementedError or RuntimeError, depending on its place.
    except Exception as error:
        raise CheckpointError(f"{path} is damaged and is not used: {error or type(error).__name__}") from error


def write(path: pathlib.Path, saved: SavedWorkerState) -> None:
    """Writes a file atomically.

    Raises:
        OSError: The disk is full or not writable; the old content is unchanged.
    """
    if saved.pushes is None:
        raise ValueError(f"{path}: the state names no number of pushes; only files of older versions have none")
    marks = {STEP: saved.step, LINEAGE: saved.lineage, PUSHES: saved.pushes}
    # Any: NumPy types the named arrays as it types its own keyword `allow_pickle`.
    arrays: dict[str, Any] = {**saved.values, **{name: np.int64(mark) for name, mark in marks.items()}}
    durable_files.make_folder(path.parent)
    temporary = path.with_name(f"{path.stem.rpartition('-')[0]}.tmp")  # always the same: overwrites a killed save's
    # An open file, because `np.savez` appends .npz to a path that ends otherwise.
    durable_files.replace(path, lambda file: np.savez(file, **arrays), temporary)


def _written_at(path: pathlib.Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0  # its worker removed it after the listing
