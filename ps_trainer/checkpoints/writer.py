"""Writes checkpoints on the chief's own disk, in TensorFlow's format (`tf.train.load_checkpoint` reads them).

The chief writes a checkpoint under a temporary name (`writing-model.ckpt-1200.*`), syncs it to disk and renames it, the
index last. So a checkpoint whose index has its final name is complete. A killed save leaves temporary files. The next
start of the chief completes the save if the files are complete, and otherwise removes them; so does the next save.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import durable_files, file_arrays, folder_listing, start_mark
from ps_trainer.checkpoints import parts as parts_lib
from ps_trainer.checkpoints.folder_listing import DATA_SUFFIX, STATE, TEMPORARY, prefix_of, read_folder
from ps_trainer.checkpoints.reader import Checkpoint, data_files, is_own, latest
from ps_trainer.errors import CheckpointError, SaveError


def write(
    directory: pathlib.Path,
    step: int,
    values: Mapping[str, np.ndarray],
    keep: int = 5,
    between_files: Callable[[], None] = lambda: None,
) -> str:
    """Writes a checkpoint and deletes all but the newest `keep`; returns its prefix.

    Damaged newer checkpoints, which the run skipped when it started, do not count and stay.

    Args:
        directory: Folder; it is created if it does not exist.
        step: The global_step, which is part of the name.
        values: Values by name.
        keep: Number of checkpoints to keep.
        between_files: Called between two data files.

    Raises:
        SaveError: The disk is full or not writable; older checkpoints are unchanged.
    """
    # The save when a run begins or ends often repeats the last one. A good file is not replaced by an equal one.
    if _has_same_values(prefix_of(directory, step), values):
        return write_by(directory, step, None, keep=keep)
    needed = sum(np.asarray(value).nbytes for value in values.values())

    def write_files(prefix: str) -> int:
        _write_files(prefix, values, between_files)
        return step

    return write_by(directory, step, write_files, keep=keep, needed_bytes=needed)


def write_by(
    directory: pathlib.Path,
    step: int,
    write_files: Callable[[str], int] | None,
    *,
    keep: int | None,
    needed_bytes: int | None = None,
) -> str:
    """Writes a checkpoint by a function of the caller's, and deletes all but the newest `keep`; returns its prefix.

    Args:
        directory: Folder; it is created if it does not exist.
        step: The global_step, which is part of the name, as far as it is known before.
        write_files: Function that writes the index and the data files under the given prefix, and returns their
            global_step. None if the checkpoint is there already.
        keep: Number of checkpoints to keep; None for all.
        needed_bytes: Size of the checkpoint, for messages; None where it is not known.

    Raises:
        SaveError: The disk is full or not writable; older checkpoints are unchanged.
    """
    prefix = prefix_of(directory, step)
    try:
        durable_files.make_folder(directory)
        _remove_temporary(directory)
        if write_files is not None:
            temporary = prefix.with_name(f"{TEMPORARY}{prefix.name}")
            step = write_files(str(temporary))
            prefix = prefix_of(directory, step)
            _put_in_place(temporary, prefix)
        # Newer ones are damaged checkpoints that the run skipped; counted as kept, they would displace good ones.
        kept = [other for other in read_folder(directory).steps if other <= step][-(keep or 0) :]
        _write_state(directory, kept)
    except (tf.errors.OpError, OSError, CheckpointError) as error:
        # On a full disk, unfinished files would take the space that the next save needs.
        with contextlib.suppress(OSError, CheckpointError):
            _remove_temporary(directory)
        reason = describe_failure(error, directory, needed_bytes)
        raise SaveError(f"checkpoint {prefix} could not be written: {reason}") from error
    start_mark.remove(directory)
    # After the state file, so that it never names a checkpoint that is removed.
    _remove_older(directory, kept[0])
    return str(prefix)


def repair(directory: pathlib.Path, *, any_name: bool = False) -> None:
    """Repairs what an earlier run has left in `directory`, before the chief continues from it.

    The function completes a killed save if its files are complete, and otherwise removes them. It makes the state file
    name the newest loadable checkpoint by a relative path, so that plain TensorFlow finds the same one.

    Args:
        directory: Folder of the checkpoints.
        any_name: Whether the step in a name may differ from the stored one.

    Raises:
        CheckpointError: The folder holds checkpoints or remains of some, and none loads; or it is not writable.
    """
    try:
        _complete_killed_saves(directory)
        _remove_temporary(directory)
        newest = latest(directory, any_name=any_name)
        if newest is None:
            return
        folder = read_folder(directory)
        name = pathlib.Path(newest.prefix).name
        if folder.state.newest == name:
            return
        content = f"names {folder.state.newest}" if folder.state.newest else folder.state.fault
        last = folder_listing.step_of(newest.prefix) or 0
        _write_state(directory, [step for step in folder.steps if step <= last])
        logging.warning("the state file %s %s; it names %s now", directory / STATE, content, name)
    except OSError as error:
        raise CheckpointError(
            f"{directory} cannot be written: {error.strerror}. A run could not save checkpoints there: free disk space,"
            " change owner or mode, or use another --logdir"
        ) from error


def _write_files(prefix: str, values: Mapping[str, np.ndarray], between_files: Callable[[], None]) -> None:
    parts = parts_lib.divide(values)
    if len(parts) == 1:
        _save(prefix, parts[0])
        return
    prefixes = [folder_listing.part_prefix(prefix, number) for number in range(len(parts))]
    for number, (name, part) in enumerate(zip(prefixes, parts, strict=True)):
        if number:
            between_files()
        _save(name, part)
        # Not all at the end, when a disk would have gigabytes to write at once.
        durable_files.sync(f"{name}{DATA_SUFFIX}")
    with tf.Graph().as_default() as graph:
        merge_op = tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=prefixes, destination_prefix=prefix, delete_old_dirs=False
        )
    _run_here(graph, merge_op, {})


def _save(prefix: str, part: Sequence[parts_lib.Slice]) -> None:
    with tf.Graph().as_default() as graph:
        tensors = [tf.placeholder(one.value.dtype, one.value.shape) for one in part]
        # The op itself, because `tf.train.Saver` saves variables, and these values are arrays.
        save_op = tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=[one.name for one in part],
            shape_and_slices=[one.spec for one in part],
            tensors=tensors,
        )
    _run_here(graph, save_op, {tensor: one.value for tensor, one in zip(tensors, part, strict=True)})
    for one in part:
        file_arrays.release(one.value)


def _run_here(graph: tf.Graph, op: tf.Operation, feeds: Mapping[tf.Tensor, np.ndarray]) -> None:
    """Runs an op in this thread, so that its priority holds for the op."""
    with tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        session.run(op, feeds, options=tf.RunOptions(inter_op_thread_pool=-1))


def _put_in_place(temporary: pathlib.Path, prefix: pathlib.Path) -> None:
    """Renames all files once all are on the disk, so that `_complete_killed_saves` may rename the rest later."""
    for path in (*data_files(temporary), temporary.with_name(f"{temporary.name}.index")):
        durable_files.sync(path)
    _rename(temporary, prefix)


def _rename(temporary: pathlib.Path, prefix: pathlib.Path) -> None:
    """Gives the files of a save that are not renamed yet their final names."""
    waiting = data_files(temporary)
    for path in data_files(prefix):
        # An old checkpoint of this step may have another number of files.
        if waiting and not path.name.endswith(f"-of-{_num_data_files(temporary)}"):
            path.unlink()
    # Between two renames an old index of this step may exist beside new data; `_complete_killed_saves` repairs that.
    for path in waiting:
        os.replace(path, prefix.with_name(path.name.replace(temporary.name, prefix.name, 1)))
    os.replace(f"{temporary}.index", f"{prefix}.index")
    durable_files.sync(prefix.parent)


def _num_data_files(prefix: pathlib.Path) -> str:
    """Returns the number of data files by the name of one, such as "00001"; "" if there is none."""
    return next((path.name.rpartition("-of-")[2] for path in data_files(prefix)), "")


def _has_same_values(prefix: pathlib.Path, values: Mapping[str, np.ndarray]) -> bool:
    """Returns whether a checkpoint with the same values, to the bit, exists already."""
    if not os.path.exists(f"{prefix}.index"):
        return False
    try:
        existing = Checkpoint(prefix)
        return set(existing) == set(values) and all(
            _is_stored(existing, name, np.asarray(values[name])) for name in existing
        )
    except CheckpointError:
        return False


def _is_stored(existing: Checkpoint, name: str, value: np.ndarray) -> bool:
    if existing.dtype(name) != value.dtype or existing.shape(name) != value.shape:
        return False
    for start, rows in existing.chunks(name):
        # By bytes, because NaN differs from itself, and 0.0 equals -0.0.
        is_same = rows.tobytes() == (value[start : start + len(rows)] if rows.ndim else value).tobytes()
        file_arrays.release(value)
        if not is_same:
            return False
    return True


def _complete_killed_saves(directory: pathlib.Path) -> None:
    """Completes saves that were killed after they had written everything."""
    for name in read_folder(directory).temporary:
        step = folder_listing.temporary_step(name)
        if step is None:
            continue
        prefix = prefix_of(directory, step)
        temporary = prefix.with_name(f"{TEMPORARY}{prefix.name}")
        if _is_half_renamed(temporary, prefix):
            _rename(temporary, prefix)
        else:
            try:
                Checkpoint(temporary).verify()
            except CheckpointError:
                continue
            _put_in_place(temporary, prefix)
        logging.warning("%s: a killed save had written it in full; the files have their final names now", prefix)


def _is_half_renamed(temporary: pathlib.Path, prefix: pathlib.Path) -> bool:
    """Returns whether a save was killed between two renames: each data file has its old name or the final one."""
    waiting, moved = ({path.suffix for path in data_files(one)} for one in (temporary, prefix))
    total = _num_data_files(temporary) or _num_data_files(prefix)
    wanted = {f".data-{shard:05d}-of-{total}" for shard in range(int(total or 0))}
    return bool(wanted) and waiting < wanted <= waiting | moved


def _remove_temporary(directory: pathlib.Path) -> None:
    for name in read_folder(directory).temporary:
        logging.info("removing %s, which an interrupted save has left", directory / name)
        (directory / name).unlink(missing_ok=True)


def _remove_older(directory: pathlib.Path, oldest_kept: int) -> None:
    """Removes older checkpoints and their remains; those of a user with other data files than `write` makes stay."""
    try:
        folder = read_folder(directory)
    except CheckpointError as error:  # the new checkpoint is complete; the next save meets the same error
        logging.warning("older checkpoints could not be removed: %s", error)
        return
    for step in sorted({*folder.steps, *folder.data}):
        prefix = prefix_of(directory, step)
        index, single = f"{prefix.name}.index", f"{prefix.name}{DATA_SUFFIX}"
        data = folder.data.get(step, [single])
        if step >= oldest_kept or (data != [single] and not is_own(prefix)):
            continue
        # What is left of a half-removed one does not load. Without the index nothing shows whose several files are.
        names = [index, single] if data == [single] else [*data, index]
        try:
            for name in names:
                prefix.with_name(name).unlink(missing_ok=True)
        except OSError as error:
            logging.warning("the old checkpoint %s could not be removed: %s", prefix, error)


def _write_state(directory: pathlib.Path, steps: list[int]) -> None:
    """Writes TensorFlow's state file with relative paths, so that a moved folder restores from its new place."""
    names = [prefix_of(directory, step).name for step in steps]
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    durable_files.replace_text(directory / STATE, "\n".join(lines) + "\n", directory / f"{TEMPORARY}{STATE}")


def describe_failure(error: Exception, directory: pathlib.Path, needed_bytes: int | None) -> str:
    """Returns why a save failed and what to do, in words."""
    if not _is_full(error):
        # TensorFlow's message holds a traceback in indented lines; its own text is the last line without indent.
        lines = [line for line in str(getattr(error, "message", error)).splitlines() if line and not line[0].isspace()]
        cause = lines[-1] if lines else type(error).__name__
        return f"{cause}; {directory} must be a folder that this task may write to"
    space = []
    with contextlib.suppress(OSError):
        space.append(f"{shutil.disk_usage(directory).free:,} bytes are free")
    if needed_bytes is not None:
        space.append(f"{needed_bytes:,} {'' if space else 'bytes '}are needed")
    known = f" ({', '.join(space)})" if space else ""
    return f"the disk of {directory} is full{known}; free disk space, or lower --keep_checkpoints"


def _is_full(error: Exception) -> bool:
    # TensorFlow's errors carry the text of the system's error, not its number.
    return any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EDQUOT))
