"""Trains a setting with the launcher, and reads the figures in its summary.json."""

from __future__ import annotations

import collections
import json
import math
import operator
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.contenders import REPOSITORY
from benchmarks.settings import TrainingSetting
from ps_trainer.launch.command import run_local


class TrainingOutcome(NamedTuple):
    """The figures of one run.

    Attributes:
        global_step: Value of global_step at the end.
        local_steps: Steps of each worker.
        accuracy: Accuracy on the test examples, 0..1.
        staleness_mean: Mean staleness of all used gradients; None if nothing was measured.
        gradients_dropped: Number of dropped gradients of all workers; None if the rule drops none.
        push_bytes_per_step: Measured bytes from a worker to the ps tasks, mean over all workers' steps; None where
            nothing was measured.
        push_bytes_computed: Computed size of the tensors of one push; None if nothing is pushed.
        pull_bytes_per_step: Measured bytes from the ps tasks to a worker.
        examples_per_sec: Examples per second of all workers together.
        wall_secs: Seconds from the start of the launcher to its end.
    """

    global_step: int
    local_steps: tuple[int, ...]
    accuracy: float
    staleness_mean: float | None
    gradients_dropped: int | None
    push_bytes_per_step: float | None
    push_bytes_computed: float | None
    pull_bytes_per_step: float | None
    examples_per_sec: float
    wall_secs: float


def train(setting: TrainingSetting, folder: pathlib.Path, deadline_secs: float) -> TrainingOutcome:
    """Trains once; no process is left running, whatever happens.

    Args:
        setting: Flags of the run.
        folder: Folder that becomes the run's logdir and holds the launcher's output; this function makes it.
        deadline_secs: Time limit of the run.

    Raises:
        RunError: The run failed or was too slow; the message has the end of the output.
    """
    folder.mkdir(parents=True)
    wall_secs = run_local(setting.flags, folder, deadline_secs, cwd=REPOSITORY)
    return outcome(json.loads(folder.joinpath("summary.json").read_text()), wall_secs)


def outcome(summary: Mapping[str, Any], wall_secs: float) -> TrainingOutcome:
    """Returns the figures in a summary.json.

    Args:
        summary: Content of the file.
        wall_secs: Duration of the run.
    """
    workers = list(summary["workers"].values())
    histogram: collections.Counter[int] = collections.Counter()
    for worker in workers:
        histogram.update({int(value): count for value, count in worker["staleness"].items()})
    dropped = [worker["gradients_dropped"] for worker in workers if worker.get("gradients_dropped") is not None]
    return TrainingOutcome(
        global_step=summary["global_step"],
        local_steps=tuple(worker["local_steps"] for worker in workers),
        accuracy=summary["metrics"]["accuracy"],
        staleness_mean=_mean(list(histogram), list(histogram.values())),
        gradients_dropped=sum(dropped) if dropped else None,
        push_bytes_per_step=_mean_of(workers, "push_bytes_per_step"),
        push_bytes_computed=_mean_of(workers, "push_bytes_computed"),
        pull_bytes_per_step=_mean_of(workers, "pull_bytes_per_step"),
        examples_per_sec=summary["examples_per_sec"],
        wall_secs=wall_secs,
    )


def _mean_of(workers: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Returns the mean of a figure over the steps of all workers that have the figure."""
    having = [worker for worker in workers if worker.get(key) is not None]
    return _mean([worker[key] for worker in having], [worker["local_steps"] for worker in having])


def _mean(values: Sequence[float], weights: Sequence[float]) -> float | None:
    # Weighted by steps, because workers make different numbers of steps.
    return math.fsum(map(operator.mul, values, weights)) / math.fsum(weights) if sum(weights) else None
