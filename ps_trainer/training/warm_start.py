"""Where a new run takes initial values from another run's checkpoint: `--init_from`."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np
from absl import logging

from ps_trainer.checkpoints import compatibility
from ps_trainer.checkpoints.reader import Checkpoint, listed
from ps_trainer.checkpoints.report import find_checkpoint
from ps_trainer.errors import CheckpointError
from ps_trainer.store.extents import VariableSpec


def find(path: str) -> Checkpoint:
    """The checkpoint that `--init_from` means.

    Args:
        path: a checkpoint's prefix, or a folder, of which the newest loadable one is meant: of checkpoints, or the
            --logdir of a run.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    try:
        return find_checkpoint(pathlib.Path(path))
    except CheckpointError as error:
        raise CheckpointError(f"--init_from={path}: {error}") from error


def values(path: str, specs: Sequence[VariableSpec]) -> dict[str, np.ndarray]:
    """The values of the model variables that a checkpoint has by the same name and in the same shape.

    The others keep their initial values, as the log says; optimizer slots and global_step begin anew.

    Args:
        path: see `find`.
        specs: the model's variables.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it has none of the variables.
    """
    checkpoint = find(path)
    found = compatibility.compare(specs, checkpoint)
    if not found.restored:
        raise CheckpointError(
            f"--init_from={path}: {checkpoint.prefix} has none of the model's variables in its shape"
            f" ({listed([spec.name for spec in specs])}); it is of another model: give the checkpoint of one that"
            " shares variables with this one, or leave --init_from out"
        )
    new = [spec.name for spec in found.missing] + [spec.name for spec, _, _ in found.differing]
    logging.info(
        "%d variables begin as in %s%s",
        len(found.restored),
        checkpoint.prefix,
        f"; begun anew, as it has none of their name and shape: {listed(new)}" if new else "",
    )
    return {name: checkpoint[name] for name in found.restored}
