"""`RecordedSummary`: the figures of summary.json that a comparison shows. What the file lacks is None."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedWorker:
    """Figures of one worker.

    Attributes:
        local_steps: Number of its steps.
        examples: Number of examples in its steps.
        pushes: Number of gradients that it pushed.
        gradients_dropped: Number of its gradients that no update used.
        staleness: Number of its used gradients by staleness.
        staleness_mean: Mean staleness of its used gradients.
        push_bytes_per_step: Bytes to other tasks per step.
        pull_bytes_per_step: Bytes from other tasks per step.
    """

    local_steps: int | None = None
    examples: int | None = None
    pushes: int | None = None
    gradients_dropped: int | None = None
    staleness: Mapping[int, int] = dataclasses.field(default_factory=dict)
    staleness_mean: float | None = None
    push_bytes_per_step: float | None = None
    pull_bytes_per_step: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedSummary:
    """Figures of a run.

    Attributes:
        status: "done", "failed" or "interrupted"; None while the run trains.
        global_step: `global_step` at the end.
        examples_per_sec: Examples per second of all workers.
        workers: Figures of the workers.
        num_restarts: Number of restarts of all tasks.
    """

    status: str | None = None
    global_step: int | None = None
    examples_per_sec: float | None = None
    workers: Sequence[RecordedWorker] = ()
    num_restarts: int = 0

    @property
    def staleness(self) -> Counter[int]:
        """Number of used gradients by staleness, over all workers and ps tasks."""
        total: Counter[int] = Counter()
        for worker in self.workers:
            total.update(worker.staleness)
        return total

    def total(self, count_of: Callable[[RecordedWorker], int | None]) -> int | None:
        """Sum of a count over the workers; None where no worker has it."""
        counts = [count for worker in self.workers if (count := count_of(worker)) is not None]
        return sum(counts) if counts else None

    def mean(self, figure_of: Callable[[RecordedWorker], float | None]) -> float | None:
        """Mean of a figure over the workers, weighted by local steps; None where no worker has it."""
        pairs = [
            (figure, worker.local_steps or 0) for worker in self.workers if (figure := figure_of(worker)) is not None
        ]
        steps = sum(count for _, count in pairs)
        return sum(figure * count for figure, count in pairs) / steps if steps else None


def of_json(content: Mapping[str, Any]) -> RecordedSummary:
    """The figures in the content of summary.json, which is empty while the run trains."""
    return RecordedSummary(
        status=content.get("status"),
        global_step=content.get("global_step"),
        examples_per_sec=content.get("examples_per_sec"),
        workers=tuple(_worker(worker) for worker in content.get("workers", {}).values()),
        num_restarts=sum(content.get("restarts", {}).values()),
    )


def _worker(content: Mapping[str, Any]) -> RecordedWorker:
    names = {field.name for field in dataclasses.fields(RecordedWorker)} - {"staleness"}
    staleness = {int(value): count for value, count in (content.get("staleness") or {}).items()}
    return RecordedWorker(**{name: content.get(name) for name in names}, staleness=staleness)
