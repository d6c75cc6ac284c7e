"""Figures of one worker's steps: `StepReport` since its last report, `WorkerFigures` since it joined the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepReport:
    """Figures of the steps since the last report. A figure that does not apply is None, and is not written.

    Attributes:
        local_step: Number of steps of this worker since it joined.
        steps_per_sec: Steps per second.
        examples_per_sec: Examples per second.
        loss: Mean loss of the steps.
        staleness_mean: Mean staleness of the gradients that were used.
        gradients_dropped: Number of gradients that were dropped; None for 0.
        injected_delay_mean: Mean delay that `--straggler` injected into a step, in seconds.
        push_bytes_computed: Bytes pushed per step, computed from the tensors.
        push_bytes_per_step: Bytes to other tasks per step, counted by the kernel.
        pull_bytes_per_step: Bytes from other tasks per step, counted by the kernel.
    """

    local_step: int
    steps_per_sec: float
    examples_per_sec: float
    loss: float
    staleness_mean: float | None = None
    gradients_dropped: int | None = None
    injected_delay_mean: float | None = None
    push_bytes_computed: float | None = None
    push_bytes_per_step: float | None = None
    pull_bytes_per_step: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the figures as JSON values, without those that do not apply."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerFigures:
    """Figures of all steps since a worker last joined the run. A figure that does not apply is None.

    Attributes:
        local_steps: Number of steps.
        examples: Number of examples in these steps.
        pushes: Number of steps that pushed a gradient.
        gradients_dropped: Number of gradients that were dropped.
        secs: Seconds from the first step to the end of the last.
        steps_per_sec: Steps per second.
        examples_per_sec: Examples per second.
        staleness: Number of gradients by staleness.
        staleness_mean: Mean of `staleness`; None if it is empty.
        injected_delay_mean: Mean delay that `--straggler` injected into a step, in seconds.
        push_bytes_computed: Bytes pushed per step, computed from the tensors.
        push_bytes_per_step: Bytes to other tasks per step, counted by the kernel.
        pull_bytes_per_step: Bytes from other tasks per step, counted by the kernel.
    """

    local_steps: int
    examples: int
    pushes: int
    gradients_dropped: int
    secs: float
    steps_per_sec: float
    examples_per_sec: float
    staleness: Mapping[int, int]
    staleness_mean: float | None = None
    injected_delay_mean: float | None = None
    push_bytes_computed: float | None = None
    push_bytes_per_step: float | None = None
    pull_bytes_per_step: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the applicable figures as JSON values; a missing `staleness_mean` is null."""
        values = dataclasses.asdict(self) | {"staleness": {str(value): n for value, n in self.staleness.items()}}
        return {name: value for name, value in values.items() if value is not None or name == "staleness_mean"}
