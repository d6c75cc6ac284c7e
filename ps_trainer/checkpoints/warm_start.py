"""Reads the initial values of a new run from another run's checkpoint (`--init_from`)."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Sequence

import numpy as np
from absl import logging

from ps_trainer.checkpoints import compatibility
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.checkpoints.report import find_checkpoint
from ps_trainer.errors import CheckpointError, list_names
from ps_trainer.store.extents import VariableSpec


def find(path: str) -> Checkpoint:
    """Finds the checkpoint for `--init_from`.

    Args:
        path: Prefix of a checkpoint, folder of checkpoints, or --logdir of a run. From a folder, the newest loadable
            checkpoint is used.

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged.
    """
    try:
        return find_checkpoint(pathlib.Path(path))
    except CheckpointError as error:
        raise CheckpointError(f"--init_from={path}: {error}") from error


def values(path: str, specs: Sequence[VariableSpec], in_pieces: Collection[str]) -> dict[str, np.ndarray | Checkpoint]:
    """Reads the model variables that a checkpoint holds under the same name and in the same shape.

    Every other variable keeps its initial value, and the log names it. Optimizer slots and global_step are not read.

    Args:
        path: Path as for `find`.
        specs: Variables of the model.
        in_pieces: Names of large tables, which are not read here; the result holds the checkpoint in their place.

    Raises:
        CheckpointError: There is no checkpoint, it is damaged, or it holds none of the variables.
    """
    checkpoint = find(path)
    found = compatibility.compare(specs, checkpoint)
    if not found.restored:
        raise CheckpointError(
            f"--init_from={path}: {checkpoint.prefix} has none of the model's variables under the same name and shape"
            f" ({list_names([spec.name for spec in specs])}); give the checkpoint of a model that shares variables with"
            " this one, or leave --init_from out"
        )
    new = [spec.name for spec in found.missing] + [spec.name for spec, _, _ in found.differing]
    logging.info(
        "%d variables start with the values in %s%s",
        len(found.restored),
        checkpoint.prefix,
        f"; these are not in it under the same name and shape, and are initialised: {list_names(new)}" if new else "",
    )
    return {name: checkpoint if name in in_pieces else checkpoint[name] for name in found.restored}
