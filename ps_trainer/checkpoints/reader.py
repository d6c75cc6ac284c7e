"""Reading checkpoints in TensorFlow's format, and the choice of the one to go on from.

The newest *loadable* checkpoint is used; what the state file says is only a hint. Where there is anything of a
checkpoint and none loads, that is an error: a run never begins at step 0 beside checkpoints.

`folder_listing.py` says what lies in a folder, `writer.py` writes.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import folder_listing
from ps_trainer.errors import CheckpointError

_STEP = "global_step"
# All that TensorFlow's reader raises: `py_checkpoint_reader.error_translator` makes Python errors of some.
_READ_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError, TypeError, UnicodeDecodeError)


class Checkpoint(Mapping[str, np.ndarray]):
    """A checkpoint on disk: name -> value, each read when asked for.

    Args:
        prefix: path without ".index".

    Raises:
        CheckpointError: the files are missing or damaged.
    """

    def __init__(self, prefix: str | os.PathLike[str]):
        self.prefix = os.fspath(prefix)
        fault = _file_fault(pathlib.Path(self.prefix))
        if fault:
            raise CheckpointError(f"checkpoint {self.prefix} cannot be read: {fault}")
        try:
            self._reader = tf.train.load_checkpoint(self.prefix)
            self._shapes: dict[str, Any] = self._reader.get_variable_to_shape_map()
            self._dtypes: dict[str, tf.DType] = self._reader.get_variable_to_dtype_map()
        except _READ_ERRORS as error:
            raise CheckpointError(
                f"checkpoint {self.prefix} cannot be read: {pathlib.Path(self.prefix).name}.index is damaged"
                f" ({_said(error)})"
            ) from error

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._shapes:
            raise KeyError(name)
        try:
            return np.asarray(self._reader.get_tensor(name))
        except _READ_ERRORS as error:
            raise CheckpointError(
                f"checkpoint {self.prefix}: {name} cannot be read: {_data_fault(error)} ({_said(error)})"
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of tensor `name`, without reading it."""
        return tuple(self._shapes[name])

    def dtype(self, name: str) -> np.dtype:
        """The dtype of tensor `name`, without reading it; `object` for strings."""
        return np.dtype(self._dtypes[name].as_numpy_dtype)

    @property
    def files(self) -> list[pathlib.Path]:
        """The index and the data files, in order of name."""
        path = pathlib.Path(self.prefix)
        return [path.with_name(f"{path.name}.index"), *data_files(path)]

    @property
    def step(self) -> int:
        """Its global_step.

        Raises:
            CheckpointError: it has none, or one that cannot be a step.
        """
        if _STEP not in self:
            raise CheckpointError(
                f"checkpoint {self.prefix} holds no {_STEP}, so it is none of a run: TensorFlow 2's tf.train.Checkpoint"
                " writes others; a tf.train.Saver whose graph has tf.train.get_or_create_global_step() writes one"
            )
        value = self[_STEP]
        if value.shape != () or value.dtype.kind not in "iu" or value < 0:
            raise CheckpointError(
                f"checkpoint {self.prefix}: {_STEP} is {value!r}, and should be a whole number from 0 on"
            )
        return int(value)

    def verify(self) -> None:
        """Reads everything, which checks every checksum, and compares the name with the step inside.

        Raises:
            CheckpointError: something is damaged.
        """
        for name in self:
            self[name]
        named = folder_listing.step_of(self.prefix)
        if named is not None and named != self.step:
            raise CheckpointError(
                f"checkpoint {self.prefix} holds {_STEP} {self.step}: it was renamed; call its files"
                f" model.ckpt-{self.step}.* again, as the newest is known by name"
            )


def latest(directory: pathlib.Path) -> Checkpoint | None:
    """The newest checkpoint in `directory` that loads, or None where there is nothing of any checkpoint.

    A damaged newer one is named in a warning. A missing or broken state file does not matter.

    Raises:
        CheckpointError: there are checkpoints, or remains of some, and none loads; or `directory` is no folder.
    """
    folder = folder_listing.look(directory)
    faults: list[CheckpointError] = []
    for step in reversed(folder.steps):
        try:
            checkpoint = Checkpoint(folder_listing.prefix_of(directory, step))
            checkpoint.verify()
        except CheckpointError as error:
            faults.append(error)
            logging.warning("%s; trying the one before", error)
            continue
        _warn_of_lost(folder, step)
        return checkpoint
    if folder.remains:
        cause = f"; the newest: {faults[0]}" if faults else ""
        raise CheckpointError(
            f"{directory} holds {listed(folder.remains)}, and none can be loaded{cause}. Put a good checkpoint there"
            " (model.ckpt-<step>.index and .data-*), or use a new --logdir to start from step 0"
        )
    return None


def list_prefixes(directory: pathlib.Path) -> list[str]:
    """Prefixes of the checkpoints in `directory` that are complete by name, oldest first."""
    return [str(folder_listing.prefix_of(directory, step)) for step in folder_listing.look(directory).steps]


def data_files(prefix: pathlib.Path) -> list[pathlib.Path]:
    """The data files of a checkpoint that are there."""
    start = f"{prefix.name}.data-"
    return sorted(path for path in prefix.parent.iterdir() if path.name.startswith(start) and "-of-" in path.name)


def listed(words: Sequence[str], limit: int = 5) -> str:
    """The first `limit` words with commas, and how many more there are."""
    return ", ".join(words[:limit]) + (f" and {len(words) - limit} more" if len(words) > limit else "")


def in_brackets(shape: Sequence[int]) -> str:
    """A shape as messages show it: "[2, 3]"."""
    return str(list(shape))


def _file_fault(prefix: pathlib.Path) -> str:
    """What is wrong with the files of a checkpoint as one sees from outside, in words; "" if nothing is."""
    index = prefix.with_name(f"{prefix.name}.index")
    try:
        if not index.exists():
            return f"{index.name} is missing"
        data = data_files(prefix)
        for path in [index, *data]:
            if not path.is_file():
                return f"{path.name} is no file"
            if path is index and not path.stat().st_size:
                return f"{path.name} is empty"
            with path.open("rb"):
                pass
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    if not data:
        return f"{prefix.name}.data-* is missing"
    return _shard_fault(data)


def _shard_fault(data: list[pathlib.Path]) -> str:
    totals = {path.name.rpartition("-of-")[2] for path in data}
    if len(totals) > 1:
        return f"its data files are of several checkpoints: {', '.join(path.name for path in data)}"
    (total,) = totals
    start = data[0].name.partition(".data-")[0]
    wanted = [f"{start}.data-{shard:05d}-of-{total}" for shard in range(int(total) if total.isdecimal() else 0)]
    missing = [name for name in wanted if name not in {path.name for path in data}]
    return f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""


def _data_fault(error: Exception) -> str:
    """What a failed read of a tensor means, in words."""
    if isinstance(error, tf.errors.OutOfRangeError | IndexError):
        return "its data file is cut short"
    if isinstance(error, tf.errors.NotFoundError):
        return "its data file is missing"
    return "its file is damaged"


def _said(error: Exception) -> str:
    """The first line of what TensorFlow says."""
    message = getattr(error, "message", None) or str(error)
    return f"TensorFlow: {message.splitlines()[0] if message else type(error).__name__}"


def _warn_of_lost(folder: folder_listing.Folder, step: int) -> None:
    """Warns where something says that there was a newer checkpoint than any whose index is there."""
    named = folder_listing.step_of(folder.state.newest) if folder.state.newest else None
    lost = {other for other in [named, *folder.orphans] if other is not None and other > max(folder.steps)}
    for other in sorted(lost):
        how = "the state file names it" if other == named else "its data is there"
        logging.warning(
            "%s has no .index (%s): it was never finished, or files are missing; going on from model.ckpt-%d",
            folder_listing.prefix_of(folder.path, other),
            how,
            step,
        )
