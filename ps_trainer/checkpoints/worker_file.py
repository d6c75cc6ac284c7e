"""`worker-<index>-<pushes>.npz`, in which a worker keeps what it alone knows (`training/worker_state.py`)."""

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


class Saved(NamedTuple):
    """What a worker alone knew.

    Attributes:
        values: by name of the variable.
        step: global_step, as that worker knew it.
        lineage: see `training.push_counts.Mark`.
        pushes: of that worker, made until then; None in files of versions that did not say.
    """

    values: Mapping[str, np.ndarray]
    step: int
    lineage: int
    pushes: int | None


def path_of(directory: pathlib.Path, worker_index: int, pushes: int) -> pathlib.Path:
    """Where the state after so many pushes is."""
    return directory / f"worker-{worker_index}-{pushes}.npz"


def old_path_of(directory: pathlib.Path, worker_index: int) -> pathlib.Path:
    """Where versions that did not say to how many pushes a state belongs had it."""
    return directory / f"worker-{worker_index}.npz"


def pushes_of(path: pathlib.Path) -> int | None:
    """To how many pushes the state in a file belongs, by its name; None for a file of versions that did not say."""
    match = _NAME.fullmatch(path.name)
    return int(match[2]) if match and match[2] else None


def find(directory: pathlib.Path, worker_index: int | None = None) -> list[pathlib.Path]:
    """The files of a worker, or of all, those written last at the end; those of older versions among them."""
    found = []
    for path in directory.glob("worker-*.npz"):
        match = _NAME.fullmatch(path.name)
        if match and worker_index in (None, int(match[1])):
            found.append(path)
    return sorted(found, key=lambda path: (_written_at(path), path.name))


def read(path: pathlib.Path) -> Saved:
    """What a file holds.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is damaged, or something else.
    """
    try:
        with np.load(path) as file:
            values = {name: file[name] for name in file.files}
        step = int(values.pop(STEP))
        if PUSHES not in values:
            return Saved(values, step, 0, None)
        lineage, pushes = (values.pop(name) for name in (LINEAGE, PUSHES))
        return Saved(values, step, int(lineage), int(pushes))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise CheckpointError(f"{path} is broken and is not used: {error or type(error).__name__}") from error


def write(path: pathlib.Path, saved: Saved) -> None:
    """Writes a file in one piece.

    Raises:
        OSError: the disk is full, or not writable; what was there is untouched.
    """
    if saved.pushes is None:
        raise ValueError(f"{path}: the state names no number of pushes; only files of older versions have none")
    marks = {STEP: saved.step, LINEAGE: saved.lineage, PUSHES: saved.pushes}
    # Any: NumPy types the named arrays as it types its own keyword `allow_pickle`.
    arrays: dict[str, Any] = {**saved.values, **{name: np.int64(mark) for name, mark in marks.items()}}
    durable_files.make_folder(path.parent)
    temporary = path.with_name(f"{path.stem.rpartition('-')[0]}.tmp")  # one name: a killed save's is overwritten
    durable_files.replace(path, lambda file: np.savez(file, **arrays), temporary)


def _written_at(path: pathlib.Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0  # it was removed meanwhile
