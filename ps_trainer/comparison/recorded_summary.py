"""`RecordedSummary`: the figures of summary.json that a comparison shows. A figure that the file lacks is None."""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ps_trainer.comparison import json_files
from ps_trainer.errors import RunError


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
        """Returns the sum of a count over the workers; None where no worker has it."""
        counts = [count for worker in self.workers if (count := count_of(worker)) is not None]
        return sum(counts) if counts else None


def read(path: pathlib.Path) -> RecordedSummary:
    """Reads summary.json; all figures are None without the file.

    Raises:
        RunError: The file is damaged, or a figure is of another type.
    """
    content = json_files.read_object(path)
    workers = json_files.member(content, "workers", json_files.OBJECT, path, {})
    restarts = json_files.member(content, "restarts", json_files.OBJECT, path, {})
    return RecordedSummary(
        status=json_files.member(content, "status", json_files.TEXT, path, None),
        global_step=json_files.member(content, "global_step", json_files.NUMBER, path, None),
        workers=tuple(
            _worker(json_files.member(workers, index, json_files.OBJECT, path, {}), path) for index in workers
        ),
        num_restarts=sum(json_files.member(restarts, task, json_files.NUMBER, path, 0) for task in restarts),
    )


def _worker(content: Mapping[str, Any], path: pathlib.Path) -> RecordedWorker:
    names = {field.name for field in dataclasses.fields(RecordedWorker)} - {"staleness"}
    counts = {name: json_files.member(content, name, json_files.NUMBER, path, None) for name in names}
    histogram = json_files.member(content, "staleness", json_files.OBJECT, path, {})
    wrong = [value for value in histogram if not value.isdecimal()]
    if wrong:
        raise RunError(
            f"{path}: 'staleness' has the value {wrong[0]!r}, which is not a number; restore the file or remove it"
        )
    staleness = {int(value): json_files.member(histogram, value, json_files.NUMBER, path, 0) for value in histogram}
    return RecordedWorker(**counts, staleness=staleness)
