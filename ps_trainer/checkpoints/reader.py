"""Reads checkpoints in TensorFlow's format, and chooses the one from which a run continues.

A run uses the newest *loadable* checkpoint; the state file is only a hint. If a folder holds checkpoints or remains of
some and none loads, the run ends with an error: it never begins at step 0 beside checkpoints.
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import folder_listing, parts
from ps_trainer.errors import CheckpointError, list_names

_STEP = "global_step"
# TensorFlow's reader raises all of these: `py_checkpoint_reader.error_translator` turns some errors into Python's own.
_READ_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError, TypeError, UnicodeDecodeError)


class Checkpoint(Mapping[str, np.ndarray]):
    """A checkpoint on disk: a mapping of names to values, each of which is read on access.

    Args:
        prefix: Path without ".index".

    Raises:
        CheckpointError: The files are missing or damaged.
    """

    def __init__(self, prefix: str | os.PathLike[str]):
        self.prefix = os.fspath(prefix)
        # TensorFlow would notice a missing data file only when a tensor in it is read.
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
                f" ({_message_of(error)})"
            ) from error

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._shapes:
            raise KeyError(name)
        try:
            return np.asarray(self._reader.get_tensor(name))
        except _READ_ERRORS as error:
            raise self._unreadable(name, error) from error

    def chunks(self, name: str, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, np.ndarray]]:
        """Yields a tensor in pieces of bounded size, each with the number of its first row; a small one is one piece.

        Args:
            name: Name of the tensor.
            start: First row of those to read.
            stop: Row behind the last one; None = all following.

        Raises:
            CheckpointError: The tensor cannot be read.
        """
        shape, itemsize = self.shape(name), self.dtype(name).itemsize
        # A stored piece lies in one data file. So a larger tensor is stored in pieces, and others are read as a whole.
        if not shape or np.prod(shape, dtype=np.int64) * itemsize <= max(self._largest_file, parts.PART_BYTES):
            value = self[name]
            yield start, value[start:stop] if shape else value
            return
        for first, last in parts.row_ranges(shape, itemsize):
            first, last = max(first, start), min(last, shape[0] if stop is None else stop)
            if first < last:
                yield first, self._read_rows(name, first, last)

    @functools.cached_property
    def _largest_file(self) -> int:
        """Size of the largest data file in bytes; 0 if one has just been removed, which a read then reports."""
        try:
            return max((path.stat().st_size for path in data_files(pathlib.Path(self.prefix))), default=0)
        except OSError:
            return 0

    def _read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        with tf.Graph().as_default() as graph:
            spec = parts.slice_spec(self.shape(name), start, stop)
            rows = tf.raw_ops.RestoreV2(
                prefix=self.prefix, tensor_names=[name], shape_and_slices=[spec], dtypes=[self._dtypes[name]]
            )
        try:
            with tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
                return np.asarray(session.run(rows[0]))
        except _READ_ERRORS as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"checkpoint {self.prefix}: {name} cannot be read: {_data_fault(error)} ({_message_of(error)})"
        )

    def __contains__(self, name: object) -> bool:
        return name in self._shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of tensor `name` without reading it."""
        return tuple(self._shapes[name])

    def dtype(self, name: str) -> np.dtype:
        """Returns the dtype of tensor `name` without reading it; `object` for strings."""
        return np.dtype(self._dtypes[name].as_numpy_dtype)

    @property
    def files(self) -> list[pathlib.Path]:
        """The index and the data files, in order of name."""
        path = pathlib.Path(self.prefix)
        return [path.with_name(f"{path.name}.index"), *data_files(path)]

    @property
    def step(self) -> int:
        """The global_step that it holds.

        Raises:
            CheckpointError: It holds none, or a value that cannot be a step.
        """
        if _STEP not in self:
            raise CheckpointError(
                f"checkpoint {self.prefix} holds no {_STEP}, so a run cannot load it. TensorFlow 2's"
                " tf.train.Checkpoint writes such files; a tf.train.Saver writes the step if its graph has"
                " tf.train.get_or_create_global_step()"
            )
        value = self[_STEP]
        if value.shape != () or value.dtype.kind not in "iu" or value < 0:
            raise CheckpointError(
                f"checkpoint {self.prefix}: {_STEP} is {value!r}, but must be a whole number of at least 0"
            )
        return int(value)

    def verify(self, *, any_name: bool = False) -> None:
        """Reads every tensor, which checks every checksum, and compares the step in the name with the stored one.

        Args:
            any_name: Whether the two steps may differ, as in TensorFlow's own asynchronous jobs, where other workers
                make steps during a save. The checkpoint then needs no step either.

        Raises:
            CheckpointError: A file is damaged, or was renamed.
        """
        for name in self:
            for _ in self.chunks(name):
                pass
        if any_name:
            return
        named = folder_listing.step_of(self.prefix)
        if named is not None and named != self.step:
            raise CheckpointError(
                f"checkpoint {self.prefix} holds {_STEP} {self.step}: it was renamed. Rename its files to"
                f" model.ckpt-{self.step}.*, because the name tells which checkpoint is the newest"
            )


def latest(directory: pathlib.Path, *, any_name: bool = False) -> Checkpoint | None:
    """Returns the newest checkpoint in `directory` that loads, or None if the folder holds no trace of a checkpoint.

    A warning names each damaged newer one. A missing or damaged state file does not matter.

    Args:
        directory: Folder of the checkpoints.
        any_name: Whether the step in a name may differ from the stored one.

    Raises:
        CheckpointError: The folder holds checkpoints or remains of some, and none loads; or it is not a folder.
    """
    folder = folder_listing.read_folder(directory)
    faults: list[CheckpointError] = []
    for step in reversed(folder.steps):
        try:
            checkpoint = Checkpoint(folder_listing.prefix_of(directory, step))
            checkpoint.verify(any_name=any_name)
        except CheckpointError as error:
            faults.append(error)
            logging.warning("%s; trying the one before", error)
            continue
        _warn_of_lost(folder, step)
        return checkpoint
    if folder.remains:
        cause = f"; the newest: {faults[0]}" if faults else ""
        raise CheckpointError(
            f"{directory} holds {list_names(folder.remains)}, and none can be loaded{cause}. Put a good checkpoint"
            " there (model.ckpt-<step>.index and .data-*), or use a new --logdir to start from step 0"
        )
    return None


def list_prefixes(directory: pathlib.Path) -> list[str]:
    """Returns the prefixes of the checkpoints in `directory` that have an index, oldest first."""
    return [str(folder_listing.prefix_of(directory, step)) for step in folder_listing.read_folder(directory).steps]


def data_files(prefix: pathlib.Path) -> list[pathlib.Path]:
    """Returns the data files of a checkpoint that exist."""
    start = f"{prefix.name}.data-"
    # Not `glob`: it would take "[" or "*" in a user's name for a pattern.
    return sorted(path for path in prefix.parent.iterdir() if path.name.startswith(start) and "-of-" in path.name)


def is_own(prefix: pathlib.Path) -> bool:
    """Returns whether a checkpoint has as many data files as `writer.write` makes; reads only the index."""
    try:
        found = tf.train.load_checkpoint(str(prefix))
    except _READ_ERRORS:
        return False
    dtypes = found.get_variable_to_dtype_map()
    itemsizes = {name: np.dtype(dtype.as_numpy_dtype).itemsize for name, dtype in dtypes.items()}
    wanted = parts.count(found.get_variable_to_shape_map(), itemsizes)
    return {path.name.rpartition("-of-")[2] for path in data_files(prefix)} == {f"{wanted:05d}"}


def format_shape(shape: Sequence[int]) -> str:
    """Formats a shape for messages: "[2, 3]"."""
    return str(list(shape))


def _file_fault(prefix: pathlib.Path) -> str:
    """Returns what is wrong with a checkpoint's files, without reading their content; "" if nothing is."""
    index = prefix.with_name(f"{prefix.name}.index")
    try:
        if not index.exists():
            return f"{index.name} is missing"
        data = data_files(prefix)
        for path in [index, *data]:
            if not path.is_file():
                return f"{path.name} is not a file"
            if path is index and not path.stat().st_size:
                return f"{path.name} is empty"
            # Opened only to notice missing permission.
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
        return f"its data files belong to several checkpoints: {', '.join(path.name for path in data)}"
    (total,) = totals
    start = data[0].name.partition(".data-")[0]
    wanted = [f"{start}.data-{shard:05d}-of-{total}" for shard in range(int(total) if total.isdecimal() else 0)]
    missing = [name for name in wanted if name not in {path.name for path in data}]
    return f"{list_names(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""


def _data_fault(error: Exception) -> str:
    """Returns what a failed read of a tensor means, in words."""
    # A truncated data file raises the error of a dataset's end, which ends a MonitoredSession without failure.
    if isinstance(error, tf.errors.OutOfRangeError | IndexError):
        return "its data file is truncated"
    if isinstance(error, tf.errors.NotFoundError):
        return "its data file is missing"
    return "its file is damaged"


def _message_of(error: Exception) -> str:
    """Returns the first line of TensorFlow's message."""
    message = getattr(error, "message", None) or str(error)
    return f"TensorFlow: {message.splitlines()[0] if message else type(error).__name__}"


def _warn_of_lost(folder: folder_listing.Folder, step: int) -> None:
    """Warns if the state file or a data file shows that there was a newer checkpoint than any with an index."""
    named = folder_listing.step_of(folder.state.newest) if folder.state.newest else None
    lost = {other for other in [named, *folder.orphans] if other is not None and other > max(folder.steps)}
    for other in sorted(lost):
        evidence = "the state file names it" if other == named else "its data file exists"
        logging.warning(
            "%s has no .index (%s): its save never ended, or files are missing; continuing from model.ckpt-%d",
            folder_listing.prefix_of(folder.path, other),
            evidence,
            step,
        )
