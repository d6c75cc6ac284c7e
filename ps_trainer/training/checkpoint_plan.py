"""Predicts what a run would restore from the checkpoints in a folder. No cluster and no server is needed."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from ps_trainer import recorded_config
from ps_trainer.checkpoints import compatibility, report
from ps_trainer.checkpoints.reader import Checkpoint, format_shape, latest
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import COLOCATED, TrainConfig
from ps_trainer.errors import list_names
from ps_trainer.store.placement_report import placement_report
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph
from ps_trainer.training.train_graph import TrainGraph

_FIRST_PORT = 1024  # no task runs: the graph only needs different addresses


class CheckpointPlan(NamedTuple):
    """The predicted start of a run.

    Attributes:
        text: Text for a person to read.
        fits: Whether the run would start.
    """

    text: str
    fits: bool


def make(config: TrainConfig, directory: pathlib.Path, *, num_ps: int, num_workers: int) -> CheckpointPlan:
    """Builds the chief's graph and compares it with the newest loadable checkpoint.

    Args:
        config: Configuration of the run; its `logdir` is not used.
        directory: Folder of the checkpoints.
        num_ps: Number of ps tasks of the run.
        num_workers: Number of workers of the run.

    Raises:
        UsageError: The run could not start with any checkpoint (unknown name, wrong option, missing data), or no
            checkpoint in the folder can be loaded.
    """
    cluster = _cluster(0 if config.placement == COLOCATED else num_ps, num_workers)
    checkpoint = latest(directory)
    train = graph.build(components_lib.load(config, num_workers), cluster, config, run_id="plan")
    where = f"{num_workers} workers" if cluster.is_colocated else f"{num_ps} ps"
    report_lines = placement_report(train.store.pieces, train.store.num_ps)
    placement = ["", f"placement on {where}, layout {config.layout}:", report_lines]
    if checkpoint is None:
        lines = [f"{directory} holds no checkpoint: the run starts at step 0", *_initialised_lines(train)]
        return CheckpointPlan("\n".join([*lines, *placement]), fits=True)
    found = compatibility.compare(train.state.specs, checkpoint)
    faults = found.faults(limit=len(train.state.specs))
    if faults:
        lines = [f"{checkpoint.prefix} does not fit: the run ends before it starts, with exit code 2"]
        lines += [f"  {fault}" for fault in faults]
        lines.append("  use the --model, --model_option and --optimizer that it was saved with, or a new --logdir")
        return CheckpointPlan("\n".join([*lines, *_differences(config, directory)]), fits=False)
    lines = [
        f"{checkpoint.prefix} fits",
        *_restored_lines(train, checkpoint, found),
        *_initialised_lines(train, is_new=False),
    ]
    lines += [
        *_describe_steps(config, checkpoint),
        *_differences(config, directory),
        *_describe_workers(train, directory),
    ]
    return CheckpointPlan("\n".join([*lines, *placement]), fits=True)


def _cluster(num_ps: int, num_workers: int) -> ClusterConfig:
    ports = iter(range(_FIRST_PORT, _FIRST_PORT + num_ps + num_workers))
    counts = {"ps": num_ps, "worker": num_workers}
    hosts = {job: tuple(f"localhost:{next(ports)}" for _ in range(n)) for job, n in counts.items()}
    return ClusterConfig(jobs=hosts, job_name="worker", task_index=0, is_colocated=not num_ps, source="checkpoint plan")


def _restored_lines(train: TrainGraph, checkpoint: Checkpoint, found: compatibility.Fit) -> list[str]:
    model = {spec.name for spec in train.store.specs}
    variables = [name for name in found.restored if name in model]
    slots = [name for name in found.restored if name not in model]
    lines = [f"  restored: {_format_count(variables, 'model variable')}; {_format_count(slots, 'optimizer slot')}"]
    lines.append(f"  the clock of each of the {train.store.num_ps} ps tasks starts at step {checkpoint.step:,}")
    if found.converted:
        lines.append(f"  restored in another type: {list_names(found.converted)}")
    if found.ignored:
        names = [f"{name} {format_shape(checkpoint.shape(name))}" for name in found.ignored]
        lines.append(f"  ignored, as this run has no such variables: {list_names(names)}")
    return lines


def _initialised_lines(train: TrainGraph, *, is_new: bool = True) -> list[str]:
    lines = []
    if is_new:
        slots = len(train.state.specs) - len(train.store.specs)
        lines.append(f"  initialised: {len(train.store.specs)} model variables, {slots} optimizer slots")
    if train.step.state:
        words = [variable.op.name for variable in train.step.state]
        lines.append(f"  initialised, as no checkpoint holds it: the update rule's own state: {list_names(words)}")
    return lines


def _describe_steps(config: TrainConfig, checkpoint: Checkpoint) -> list[str]:
    if config.max_steps is None:
        return [f"  continues from step {checkpoint.step:,} to the end of the data"]
    if checkpoint.step >= config.max_steps:
        return [f"  makes no step, as --max_steps={config.max_steps} is reached; raise it to continue training"]
    return [f"  continues from step {checkpoint.step:,} to --max_steps={config.max_steps}"]


def _differences(config: TrainConfig, directory: pathlib.Path) -> list[str]:
    """Lists the flags that had other values in the last run there, among those on which all workers must agree."""
    # The folder of the checkpoints lies in the logdir, where the chief has written config.json.
    before = recorded_config.read(directory.parent) or {}
    now = config.agreement()
    changed = [name for name in now if name in before and before[name] != now[name]]
    return [f"  --{name}={now[name]} was {before[name]} in the last run there" for name in changed]


def _describe_workers(train: TrainGraph, directory: pathlib.Path) -> list[str]:
    if train.own_variables is None:
        return []
    there = report.worker_files(directory)
    names = list_names([variable.op.name for variable in train.own_variables.variables])
    return [
        f"  each worker restores {names} from that file worker-<index>-<pushes>.npz which fits",
        *(there or ["  no such file is on this disk"]),
    ]


def _format_count(names: Sequence[str], what: str) -> str:
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'}" + (f" ({list_names(names)})" if names else "")
