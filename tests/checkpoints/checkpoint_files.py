"""Small checkpoints, and functions that damage them."""

from __future__ import annotations

import pathlib

import numpy as np

from ps_trainer.checkpoints import writer

INDEX, DATA = ".index", ".data-00000-of-00001"


def values_of(step: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Values that a model of two variables, one with a slot, might hold at `step`."""
    return {
        "dense/w": np.arange(6, dtype=np.float32).reshape(2, 3) * np.float32(scale),
        "dense/w/Momentum": np.ones([2, 3], np.float32),
        "dense/b": np.zeros([3], np.float32),
        "global_step": np.int64(step),
    }


def write(directory: pathlib.Path, *steps: int, **options: int) -> None:
    """Writes a checkpoint for each step, in order."""
    for step in steps:
        writer.write(directory, step, values_of(step), **options)


def names(directory: pathlib.Path) -> list[str]:
    """Names of all files in the folder, sorted."""
    return sorted(path.name for path in directory.iterdir())


def files_of(*steps: int) -> list[str]:
    """Names of the files of the checkpoints of these steps, sorted."""
    return sorted(f"model.ckpt-{step}{suffix}" for step in steps for suffix in (INDEX, DATA))
