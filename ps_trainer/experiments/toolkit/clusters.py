"""Runs of real clusters: started by the launcher, read from the files that they leave."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.comparison import run_lines
from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit.statistics import WARMUP_SHARE, without_warmup
from ps_trainer.launch.command import run_local
from ps_trainer.metrics.step_record import StepRecord

LOGDIR_NAME = "cluster"

QUIET = {
    "intra_op_threads": 1,
    "inter_op_threads": 2,
    "watch_secs": 1.0,
    "report_secs": 30,
    "save_checkpoint_secs": 100_000,
}
"""Settings of a run whose steps are timed: few threads, the same in all processes, and little besides steps."""


class Training(NamedTuple):
    """A finished training of a cluster."""

    summary: Mapping[str, Any]  # content of summary.json
    steps: Sequence[StepRecord]  # the steps of all workers, in the order in which they ended, warm-up included
    wall_secs: float  # from the start of the launcher to its end

    @property
    def warm_steps(self) -> Sequence[StepRecord]:
        """The steps after the first 20 %."""
        return without_warmup(self.steps)[0]

    @property
    def window(self) -> tuple[float, float]:
        """Wall time, seconds since the epoch, of the steps after warm-up: from the first end to the last."""
        steps = self.warm_steps
        return steps[0].wall_time, steps[-1].wall_time

    @property
    def steps_per_sec(self) -> float:
        """Steps of all workers together, after warm-up."""
        start, end = self.window
        return (len(self.warm_steps) - 1) / (end - start)

    def by_worker(self) -> dict[int, list[StepRecord]]:
        """Returns the warm steps of each worker."""
        steps: dict[int, list[StepRecord]] = {}
        for step in self.warm_steps:
            steps.setdefault(step.worker, []).append(step)
        return dict(sorted(steps.items()))

    def steps_as_json(self) -> list[dict[str, Any]]:
        """Returns the JSON objects of the steps, which the harness keeps as a file."""
        return [step.as_json() for step in self.steps]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster on this machine."""

    num_workers: int  # worker tasks, the chief among them
    num_ps: int = 1  # ps tasks; 0 = one process
    flags: Sequence[str] = ()  # other flags of `ps_trainer local` than numbers of tasks and `--logdir`
    deadline_secs: float = 600.0  # time limit of the run

    @property
    def local_flags(self) -> list[str]:
        """All flags of `local` but `--logdir`. Every step is logged, and is a separate call as in the papers."""
        counts = [f"--num_ps={self.num_ps}", f"--num_workers={self.num_workers}"]
        return [*counts, "--step_log", "--steps_per_call=1", *self.flags]

    def train(self, folder: pathlib.Path) -> Training:
        """Trains to the end in a subfolder of the run's folder; leaves no process behind.

        Raises:
            RunError: The run failed, was too slow, or made no step.
        """
        logdir = folder.resolve() / LOGDIR_NAME
        wall_secs = run_local(self.local_flags, logdir, self.deadline_secs, preloaded=True)
        return read_training(logdir, wall_secs)


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """Returns the fields of `TrainConfig` as flags; a list gives one flag per entry."""
    return [
        f"--{name}={entry}"
        for name, value in settings.items()
        for entry in (value if isinstance(value, (list, tuple)) else [value])
    ]


def read_training(logdir: pathlib.Path, wall_secs: float) -> Training:
    """Reads the files of a cluster with `--step_log` after its end.

    Raises:
        RunError: The cluster made too few steps.
    """
    summary = json.loads((logdir / "summary.json").read_text(encoding="utf-8"))
    steps = read_steps(logdir)
    if len(steps) * (1 - WARMUP_SHARE) < 2:
        raise RunError(f"{len(steps)} steps are too few to measure anything; raise --max_steps")
    return Training(summary, steps, wall_secs)


def read_steps(logdir: pathlib.Path) -> list[StepRecord]:
    """Returns the steps of all workers, in the order in which they ended.

    Raises:
        RunError: A line of a step log is damaged.
    """
    paths = sorted(logdir.glob("steps/*.jsonl"))
    return sorted((step for path in paths for step in run_lines.read_steps(path)), key=lambda step: step.t_end)
