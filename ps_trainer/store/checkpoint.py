"""Checkpoint files on the chief's own disk, in TensorFlow's format (`tf.train.load_checkpoint` reads them).

    <dir>/model.ckpt-1200.index, model.ckpt-1200.data-00000-of-00001     one pair per checkpoint
    <dir>/checkpoint                                                     TensorFlow's state file, relative paths

A checkpoint is written under a temporary name, synced to disk, and renamed, the index last: a name that
exists with its index is whole. The newest *loadable* checkpoint is used; what the state file says is
only a list of candidates.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.errors import CheckpointError

_INDEX = re.compile(r"^model\.ckpt-(\d+)\.index$")
_TEMPORARY = "writing-"


class Checkpoint(Mapping[str, np.ndarray]):
    """A checkpoint on disk: name -> value, each read when asked for.

    Args:
        prefix: path without ".index".

    Raises:
        CheckpointError: the files are missing or damaged.
    """

    def __init__(self, prefix: str | os.PathLike[str]):
        self.prefix = str(prefix)
        try:
            self._reader = tf.train.load_checkpoint(self.prefix)
            self._shapes: dict[str, Any] = self._reader.get_variable_to_shape_map()
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"checkpoint {self.prefix} cannot be read: {error}") from error

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._shapes:
            raise KeyError(name)
        try:
            return self._reader.get_tensor(name)
        except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
            raise CheckpointError(f"checkpoint {self.prefix}: {name} cannot be read: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of tensor `name`, without reading it."""
        return tuple(self._shapes[name])

    def verify(self) -> None:
        """Reads everything; raises CheckpointError where something is damaged."""
        for name in self:
            self[name]


def write(directory: pathlib.Path, step: int, values: Mapping[str, np.ndarray], keep: int = 5) -> str:
    """Writes a checkpoint and deletes all but the newest `keep`; returns its prefix.

    Args:
        directory: made if it does not exist.
        step: global_step, part of the name.
        values: name -> value.
        keep: number of checkpoints kept.

    Raises:
        CheckpointError: the disk is full or not writable; older checkpoints are untouched.
    """
    prefix = directory / f"model.ckpt-{step}"
    temporary = directory / f"{_TEMPORARY}{prefix.name}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(directory)
        _write_files(str(temporary), values)
        for suffix in (".data-00000-of-00001", ".index"):
            _sync(f"{temporary}{suffix}")
            os.replace(f"{temporary}{suffix}", f"{prefix}{suffix}")
        _sync(directory)
        _write_state(directory, prefix.name, _steps(directory)[-keep:])
        for old in _steps(directory)[:-keep]:
            (directory / f"model.ckpt-{old}.index").unlink(missing_ok=True)
            (directory / f"model.ckpt-{old}.data-00000-of-00001").unlink(missing_ok=True)
    except (tf.errors.OpError, OSError) as error:
        raise CheckpointError(f"checkpoint {prefix} cannot be written: {error}") from error
    return str(prefix)


def latest(directory: pathlib.Path) -> Checkpoint | None:
    """The newest checkpoint in `directory` that loads, or None where there is no checkpoint at all.

    A damaged newer one is named in a warning. A missing or broken state file does not matter.

    Raises:
        CheckpointError: there are checkpoints, or remains of some, and none loads.
    """
    prefixes = list_prefixes(directory)
    for prefix in reversed(prefixes):
        try:
            checkpoint = Checkpoint(prefix)
            checkpoint.verify()
            return checkpoint
        except CheckpointError as error:
            logging.warning("%s; trying the one before", error)
    if prefixes or (directory / "checkpoint").exists() or any(directory.glob("model.ckpt-*")):
        raise CheckpointError(
            f"{directory} holds remains of checkpoints and none can be loaded; put a good checkpoint back,"
            " or use a new --logdir to start from step 0"
        )
    return None


def list_prefixes(directory: pathlib.Path) -> list[str]:
    """Prefixes of the checkpoints in `directory` that are complete by name, oldest first."""
    return [str(directory / f"model.ckpt-{step}") for step in _steps(directory)]


def _steps(directory: pathlib.Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(match[1]) for name in os.listdir(directory) if (match := _INDEX.match(name)))


def _write_files(prefix: str, values: Mapping[str, np.ndarray]) -> None:
    names = sorted(values)
    with tf.Graph().as_default() as graph:
        arrays = [np.asarray(values[name]) for name in names]
        tensors = [tf.placeholder(array.dtype, array.shape) for array in arrays]
        save_op = tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
        )
    with tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        session.run(save_op, dict(zip(tensors, arrays, strict=True)))


def _write_state(directory: pathlib.Path, newest: str, steps: Sequence[int]) -> None:
    """TensorFlow's state file, with relative paths, so that a moved folder restores from its new place."""
    lines = [f'model_checkpoint_path: "{newest}"']
    lines += [f'all_model_checkpoint_paths: "model.ckpt-{step}"' for step in steps]
    temporary = directory / f"{_TEMPORARY}checkpoint"
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(temporary, directory / "checkpoint")


def _remove_leftovers(directory: pathlib.Path) -> None:
    for leftover in directory.glob(f"{_TEMPORARY}*"):
        leftover.unlink(missing_ok=True)


def _sync(path: str | os.PathLike[str]) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
