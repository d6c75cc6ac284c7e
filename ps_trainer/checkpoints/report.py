"""Text of `ps_trainer checkpoint`: the content of a checkpoint, and which checkpoints of a folder are intact."""

from __future__ import annotations

import pathlib
import time
from typing import NamedTuple

import numpy as np

from ps_trainer import recorded_config
from ps_trainer.checkpoints import folder_listing, worker_file
from ps_trainer.checkpoints.folder_listing import MISSING, Folder, prefix_of, read_folder
from ps_trainer.checkpoints.reader import Checkpoint, format_shape, latest
from ps_trainer.errors import CheckpointError

_STEP = "global_step"
_RECORDED = ("model", "dataset", "update", "optimizer", "learning_rate", "schedule", "layout", "batch_size", "seed")


class CheckpointFinding(NamedTuple):
    """One checkpoint, or remains of one, and its fault.

    Attributes:
        name: Name of the checkpoint, such as "model.ckpt-1200", or of its remains.
        step: Step in the name; None if the name has none.
        fault: Reason why it cannot be loaded; "" if it can.
        num_tensors: Number of tensors.
        num_bytes: Size of its files in bytes.
    """

    name: str
    step: int | None
    fault: str
    num_tensors: int = 0
    num_bytes: int = 0


def find_folder(path: pathlib.Path) -> pathlib.Path:
    """Returns the folder of checkpoints that `path` means: `path` itself, or the folder in a logdir.

    Raises:
        CheckpointError: `path` is not a folder.
    """
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder; give the folder of the checkpoints, or the --logdir of a run")
    # A folder that itself holds checkpoints is meant, even if it has a subfolder of that name.
    inner = path / "checkpoints"
    return inner if inner.is_dir() and not read_folder(path).remains else path


def find_checkpoint(path: pathlib.Path) -> Checkpoint:
    """Returns the checkpoint that `path` means: the newest loadable one of a folder, or the one of a prefix or file.

    Raises:
        CheckpointError: The checkpoint does not exist, or is damaged.
    """
    if path.is_dir():
        folder = find_folder(path)
        checkpoint = latest(folder)
        if checkpoint is None:
            raise CheckpointError(
                f"{folder} holds no checkpoint; give the folder or the --logdir of a run that has saved one"
            )
        return checkpoint
    prefix = path.with_name(path.name.removesuffix(".index").partition(".data-")[0])
    if not prefix.with_name(f"{prefix.name}.index").exists():
        there = read_folder(prefix.parent).steps if prefix.parent.is_dir() else []
        known = f"; {prefix.parent} has {', '.join(f'model.ckpt-{step}' for step in there[-5:])}" if there else ""
        raise CheckpointError(f"{prefix}.index does not exist{known}; give a folder, or the prefix of a checkpoint")
    return Checkpoint(prefix)


def describe(checkpoint: Checkpoint) -> str:
    """Describes a checkpoint as text: step, age, files, every tensor, and the run that `config.json` records."""
    rows: list[tuple[str, ...]] = [("tensor", "shape", "type", "bytes", "what it is")]
    sizes: dict[str, int] = {"variable": 0, "slot": 0, "clock": 0}
    for name in sorted(checkpoint):
        part = _describe_tensor(checkpoint, name)
        num_bytes = _num_bytes(checkpoint, name)
        sizes[part.split()[0]] += num_bytes
        rows.append((name, format_shape(checkpoint.shape(name)), str(checkpoint.dtype(name)), f"{num_bytes:,}", part))
    files = [(path.name, path.stat()) for path in checkpoint.files]
    written = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(files[0][1].st_mtime))
    folder = pathlib.Path(checkpoint.prefix).parent
    lines = [
        checkpoint.prefix,
        f"  step {checkpoint.step:,}, written {written} (local time)",
        f"  {len(checkpoint)} tensors: variables {sizes['variable']:,} bytes, slots {sizes['slot']:,} bytes",
        *(f"  {name}  {stat.st_size:,} bytes" for name, stat in files),
        "",
        *_align_columns(rows),
        "",
        *_describe_record(folder),
        *worker_files(folder),
    ]
    return "\n".join(lines)


def check(directory: pathlib.Path) -> list[CheckpointFinding]:
    """Reads every tensor of every checkpoint in `directory`, and names remains of other checkpoints.

    Returns:
        A finding for each checkpoint, the newest last; those without a step in their name come first.

    Raises:
        CheckpointError: `directory` is not a folder, or may not be read.
    """
    folder = read_folder(directory)
    findings = [_check_checkpoint(directory / name, None) for name in folder.others]
    for step in sorted({*folder.steps, *folder.data}):
        findings.append(_check_checkpoint(prefix_of(directory, step), step))
    named = folder_listing.step_of(folder.state.newest) if folder.state.newest else None
    if named is not None and named not in folder.steps and named not in folder.data:
        findings.append(CheckpointFinding(f"model.ckpt-{named}", named, "the state file names it, but it is missing"))
    # A run that trains in this folder at the same time removes the oldest checkpoints.
    gone = [step for step in folder.steps if not (directory / f"model.ckpt-{step}.index").exists()]
    return sorted(
        (f for f in findings if f.step is None or f.step not in gone), key=lambda f: -1 if f.step is None else f.step
    )


def report(directory: pathlib.Path, findings: list[CheckpointFinding]) -> str:
    """Formats the findings of `check`, the leftovers of saves and the state file as text."""
    folder = read_folder(directory)
    rows: list[tuple[str, ...]] = [("checkpoint", "tensors", "bytes", "")]
    for finding in findings:
        figures = (f"{finding.num_tensors:,}", f"{finding.num_bytes:,}") if not finding.fault else ("", "")
        verdict = f"{'NOT USED' if finding.step is None else 'BROKEN'}: {finding.fault}" if finding.fault else "whole"
        rows.append((finding.name, *figures, verdict))
    lines = [
        str(directory),
        *_align_columns(rows),
        *_describe_leftovers(folder),
        f"  state file: {_describe_state_file(folder, findings)}",
    ]
    good = newest_loadable(findings)
    if good is None:
        lines.append("  no checkpoint can be loaded: a run in this folder ends with an error")
    else:
        lines.append(f"  a run in this folder continues from {good.name}")
    return "\n".join([*lines, *worker_files(directory)])


def newest_loadable(findings: list[CheckpointFinding]) -> CheckpointFinding | None:
    """Returns the finding of the checkpoint from which a run continues, or None."""
    return next((f for f in reversed(findings) if f.step is not None and not f.fault), None)


def worker_files(directory: pathlib.Path) -> list[str]:
    """Returns a line for each file with the state of one worker (`training/graph_parts/worker_state_saver.py`)."""
    lines = []
    for path in sorted(worker_file.find(directory)):
        try:
            saved = worker_file.read(path)
            num_bytes = sum(value.nbytes for value in saved.values.values())
            belongs = f"after {saved.pushes:,} of its pushes" if saved.pushes is not None else "NOT USED, as it is old"
            content = f"step {saved.step:,}, {belongs}, {len(saved.values)} tensors, {num_bytes:,} bytes"
        except FileNotFoundError:
            continue  # its worker has replaced or removed it since the listing
        except CheckpointError:
            content = "BROKEN; that worker starts without its own state"
        lines.append(f"  {path.name}: {content}")
    return lines


def _check_checkpoint(prefix: pathlib.Path, step: int | None) -> CheckpointFinding:
    try:
        checkpoint = Checkpoint(prefix)
        checkpoint.verify()
        num_bytes = sum(path.stat().st_size for path in checkpoint.files)
    except (CheckpointError, OSError) as error:
        # The message begins with the prefix, which the table shows already.
        fault = (
            str(error).removeprefix(f"checkpoint {prefix}").removeprefix(" cannot be read").removeprefix(":").strip()
        )
        return CheckpointFinding(prefix.name, step, fault)
    if step is None:
        return CheckpointFinding(
            prefix.name,
            None,
            f"it is whole, but a run looks for model.ckpt-<step>: rename its files to model.ckpt-{checkpoint.step}.*",
        )
    return CheckpointFinding(prefix.name, step, "", len(checkpoint), num_bytes)


def _describe_leftovers(folder: Folder) -> list[str]:
    if not folder.temporary:
        return []
    names = ", ".join(folder.temporary)
    return [f"  files of a save that is under way or was interrupted; the next save removes them: {names}"]


def _describe_state_file(folder: Folder, findings: list[CheckpointFinding]) -> str:
    good = newest_loadable(findings)
    if folder.state.newest and good is not None and folder.state.newest == good.name:
        return f"names {good.name}"
    content = f"names {folder.state.newest}" if folder.state.newest else folder.state.fault
    repaired = "; the next run repairs it" if good is not None else ""
    return content + repaired if folder.state.fault != MISSING or folder.steps else content


def _describe_tensor(checkpoint: Checkpoint, name: str) -> str:
    """Says what a tensor is: a slot has the shape of its variable, and its name plus one more part."""
    if name == _STEP:
        return "clock of every ps task"
    variable = name.rpartition("/")[0]
    if variable in checkpoint and checkpoint.shape(variable) == checkpoint.shape(name):
        return f"slot of {variable}"
    return "variable"


def _num_bytes(checkpoint: Checkpoint, name: str) -> int:
    dtype = checkpoint.dtype(name)
    return 0 if dtype.hasobject else int(np.prod(checkpoint.shape(name), dtype=np.int64)) * dtype.itemsize


def _describe_record(directory: pathlib.Path) -> list[str]:
    train = recorded_config.read(directory.parent)
    if train is None:
        return [f"  recorded: nothing; {directory.parent / 'config.json'} is missing or describes no run"]
    words = [f"--{name}={train[name]}" for name in _RECORDED if name in train]
    return [f"  recorded in {directory.parent / 'config.json'}, by the last run there: {' '.join(words)}"]


def _align_columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Lays out columns; a column is aligned to the right if every entry below its head is a number."""
    columns = list(zip(*rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    is_number = [all(cell.replace(",", "").isdigit() or not cell for cell in column[1:]) for column in columns]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines
