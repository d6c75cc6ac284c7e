"""`RunSummary`: the result of a run, which the chief writes to summary.json when the run has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ps_trainer.checkpoints.save_tally import SaveTally
from ps_trainer.data.pipeline.shard_plan import Coverage
from ps_trainer.metrics.figures import WorkerFigures
from ps_trainer.runtime.run_record import Status, WorkerEntry
from ps_trainer.training.target_watch import TargetOutcome
from ps_trainer.updates.chief_service import GradientCounts


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerSummary:
    """One worker's part of a run. None stands for what is unknown.

    Attributes:
        status: State of the worker at the end of the run.
        figures: Figures of its steps; None unless it was done with its own steps.
        pushes: Number of its pushes: of all its processes if the update rule counts them, else of the last.
        gradients_used: Number of its gradients that updates used, if the rule counts them.
        gradients_dropped: Number of its gradients that no update used.
    """

    status: Status
    figures: WorkerFigures | None = None
    pushes: int | None = None
    gradients_used: int | None = None
    gradients_dropped: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the worker's entry in summary.json."""
        names = ("pushes", "gradients_used", "gradients_dropped")
        counts = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {"status": self.status.value} | (self.figures.as_json() if self.figures is not None else {}) | counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The result of a run that is done.

    Attributes:
        global_step: `global_step` at the end.
        metrics: Test metrics of the last parameters.
        workers: The workers, by index.
        target: Whether the run reached its target metric; None for a run without one.
        coverage: How often the examples were seen, by epoch; None unless the shards of the data are leased.
        saves: The saves of the chief; None for a run without checkpoints.
    """

    global_step: int
    metrics: Mapping[str, float]
    workers: Mapping[int, WorkerSummary]
    target: TargetOutcome | None = None
    coverage: Mapping[str, Coverage] | None = None
    saves: SaveTally | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the content of summary.json."""
        rates = [worker.figures.examples_per_sec for worker in self.workers.values() if worker.figures is not None]
        content: dict[str, Any] = {
            "status": Status.DONE.value,
            "global_step": self.global_step,
            "examples_per_sec": sum(rates),
            "metrics": self.metrics,
            "workers": {str(index): self.workers[index].as_json() for index in sorted(self.workers)},
        }
        if self.target is not None:
            content["target_metric"] = self.target.as_json()
        if self.coverage is not None:
            content["coverage"] = {epochs: coverage._asdict() for epochs, coverage in self.coverage.items()}
        if self.saves is not None:
            content["saves"] = self.saves.as_json()
        return content


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFailure:
    """The end of a run that is not done.

    Attributes:
        status: `FAILED` or `INTERRUPTED`.
        reason: Sentence which says why.
    """

    status: Status
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Returns the content of summary.json."""
        return {"status": self.status.value, "reason": self.reason, "workers": {}}


def of_workers(
    own: WorkerFigures, roster: Mapping[int, WorkerEntry], counts: GradientCounts | None
) -> dict[int, WorkerSummary]:
    """Returns the summaries of all workers, by index.

    Args:
        own: Figures of the chief's steps.
        roster: Last report of each worker, by index.
        counts: Gradients of each worker; None under an update rule that does not count them.
    """
    found = {0: _of_worker(0, Status.DONE, own, counts)}
    return found | {i: _of_worker(i, entry.status, entry.summary, counts) for i, entry in roster.items() if i}


def _of_worker(
    index: int, status: Status, figures: WorkerFigures | None, counts: GradientCounts | None
) -> WorkerSummary:
    if counts is not None:
        # The rule also counted the pushes of processes that were killed before they reported.
        pushes, used = counts.pushed[index], counts.used[index]
        return WorkerSummary(
            status=status, figures=figures, pushes=pushes, gradients_used=used, gradients_dropped=pushes - used
        )
    if figures is None:
        return WorkerSummary(status=status)
    return WorkerSummary(
        status=status, figures=figures, pushes=figures.pushes, gradients_dropped=figures.gradients_dropped
    )
