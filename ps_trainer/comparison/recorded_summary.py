"""`RecordedSummary`: the figures of summary.json that a comparison shows. A figure that the file lacks is None."""

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
        pushes: Number of gradients that it pushed.
        gradients_dropped: Number of its gradients that no update used.
        staleness: Number of its used gradients by staleness.
    """

    local_steps: int | None = None
    pushes: int | None = None
    gradients_dropped: int | None = None
    staleness: Mapping[int, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedSummary:
    """Figures of a run.

    Attributes:
        status: "done", "failed" or "interrupted"; None without the file.
        global_step: `global_step` at the end.
        workers: Figures of the workers.
        num_restarts: Number of restarts of all tasks.
    """

    status: str | None = None
    global_step: int | None = None
    workers: Sequence[RecordedWorker] = ()
    num_restarts: int = 0

    @property
    def staleness(self) -> Counter[int]:
        """Number of used gradients by staleness, over all workers and ps tasks, since the workers last joined."""
        total: Counter[int] = Counter()
        for worker in self.workers:
            total.update(worker.staleness)
        return total

    @property
    def local_steps(self) -> int:
        """Number of steps of all workers since they last joined."""
        return self.total(lambda worker: worker.local_steps) or 0

    def total(self, count_of: Callable[[RecordedWorker], int | None]) -> int | None:
        """Sum of a count over the workers; None where no worker has it."""
        counts = [count for worker in self.workers if (count := count_of(worker)) is not None]
        return sum(counts) if counts else None


def of_json(content: Mapping[str, Any]) -> RecordedSummary:
    """The figures in the content of summary.json, which is empty without the file."""
    return RecordedSummary(
        status=content.get("status"),
        global_step=content.get("global_step"),
        workers=tuple(_worker(worker) for worker in content.get("workers", {}).values()),
        num_restarts=sum(content.get("restarts", {}).values()),
    )


def _worker(content: Mapping[str, Any]) -> RecordedWorker:
    names = {field.name for field in dataclasses.fields(RecordedWorker)} - {"staleness"}
    staleness = {int(value): count for value, count in (content.get("staleness") or {}).items()}
    return RecordedWorker(**{name: content.get(name) for name in names}, staleness=staleness)
