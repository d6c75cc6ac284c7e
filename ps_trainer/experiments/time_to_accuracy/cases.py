"""The cases that the runs of the experiment on the time to an accuracy make."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeVar

from ps_trainer.experiments.harness.cases import figures, setting
from ps_trainer.experiments.harness.claims import Measure
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.targets import TargetCase, ratio
from ps_trainer.experiments.toolkit import real_clusters, theory

ALPHA = 0.2  # share of a step that is exponential
CLUSTER = "cluster"  # purpose of the real runs
TARGET_LOSS = 0.7  # of real trainings, whose steps log no accuracy
_WINDOW_EXAMPLES = 320


class BatchKind(Label):
    """Growth of the batch with the number of workers n."""

    STRONG = "strong scaling"  # an update of n synchronous workers has the batch of one worker
    WEAK = "weak scaling"  # each worker has that batch


class WorkerRule(Label):
    """Update rule of the workers."""

    ASYNC = "asynchronous"
    SYNC = "synchronous"


ALONE_BATCH = {BatchKind.STRONG: 32, BatchKind.WEAK: 8}
"""Examples of one worker's batch, if it works alone."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracySettings(Record):
    """Settings of a training in virtual time."""

    batches: BatchKind
    rule: WorkerRule
    n: int  # number of workers
    num_epochs: int  # after which a training gives up

    @property
    def batch_size(self) -> int:
        """Examples of a worker's batch."""
        return batch_size(self.batches, self.n)

    @property
    def per_update(self) -> int:
        """Examples of an update."""
        return self.batch_size * (self.n if self.rule == WorkerRule.SYNC else 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyFigures(Record):
    """Figures of a training in virtual time; a time is in mean steps of a worker that works alone."""

    rate: float  # learning rate
    is_reached: bool  # whether the test accuracy reached the target
    time: float  # until then, or until the end
    examples: float  # until then, or until the end
    update_time: float  # mean of an update
    times: Sequence[float]  # of the tests
    accuracies: Sequence[float]  # in the tests


@dataclasses.dataclass(frozen=True, kw_only=True)
class PacedSettings(Record):
    """Settings of a training on a real cluster."""

    what: str = CLUSTER
    batches: BatchKind
    rule: WorkerRule
    n: int
    mean_ms: float  # mean step of each of the n workers
    lr: float
    num_updates: int

    @property
    def alone_ms(self) -> float:
        """Mean step of a worker that works alone, in this run's unit of time."""
        return self.mean_ms * (self.n if self.batches == BatchKind.STRONG else 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PacedFigures(Record):
    """Figures of a cluster or of its simulation; times are in mean steps of a worker that works alone."""

    time: float | None  # until the training loss reaches the target; None = not reached
    gradients: float  # per mean step of these workers, of all of them together


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealPacedFigures(real_clusters.RealFigures):
    """Figures of a cluster and of its simulation."""

    measured: PacedFigures
    simulated: PacedFigures


class TimedAccuracy(TargetCase):
    """Trainings with one kind of batches, one rule and one number of workers, all their seeds together."""

    batches = setting("batches")
    rule = setting("rule")
    n = setting("n")
    rates = figures("rate")
    times = figures("time")
    examples = figures("examples")
    update_times = figures("update_time")
    is_reached = figures("is_reached")

    @property
    def name(self) -> str:
        return f"{self.batches}, {self.rule}, n={self.n}"

    @property
    def rate(self) -> float:
        """Learning rate."""
        return float(self.rates[0])


class PacedTraining(real_clusters.RealCase):
    """Real trainings that differ only in their seed."""

    batches = setting("batches")
    rule = setting("rule")
    n = setting("n")

    @property
    def name(self) -> str:
        return f"{self.batches}, {self.rule}, n={self.n}"


AnyCase = TypeVar("AnyCase", TimedAccuracy, PacedTraining)


def batch_size(batches: BatchKind, n: int) -> int:
    """Returns the examples of the batch of each of n workers."""
    return ALONE_BATCH[batches] // (n if batches == BatchKind.STRONG else 1)


def find(cases: Sequence[AnyCase], batches: BatchKind, rule: WorkerRule, n: int) -> AnyCase | None:
    """Returns the case of n workers, or None if it was not run; a single worker has the same under both rules."""
    return next((one for one in cases if (one.batches, one.n) == (batches, n) and (n == 1 or one.rule == rule)), None)


def counts_of(cases: Sequence[TimedAccuracy] | Sequence[PacedTraining]) -> list[int]:
    """Returns the numbers of workers above one."""
    return sorted({case.n for case in cases} - {1})


def over_one(
    cases: Sequence[TimedAccuracy], batches: BatchKind, rule: WorkerRule, n: int, figure: str = "times"
) -> list[Measure]:
    """Returns a figure of n workers over that of one worker, as `targets.ratio` does."""
    return ratio(f"n={n}", find(cases, batches, rule, n), find(cases, batches, rule, 1), figure)


def paced_times(
    cases: Sequence[PacedTraining], batches: BatchKind, rule: WorkerRule, of: str
) -> dict[int, list[float]]:
    """Returns the times to the target of each number of workers whose times count; infinite where it was missed.

    Args:
        cases: Cases.
        batches: How the batch grows.
        rule: Update rule.
        of: "measured" or "simulated".
    """
    found = {n: find(cases, batches, rule, n) for n in [1, *counts_of(cases)]}
    timed = {n: case.runs.uncontended() for n, case in found.items() if case is not None}
    times = {n: [figures.time for figures in runs.figures(of)] for n, runs in timed.items() if runs}
    return {n: [math.inf if one is None else one for one in own] for n, own in times.items()}


def predicted_update_time(batches: BatchKind, n: int, cost: float) -> float:
    """Returns the mean time of a synchronous update, in mean steps of a worker that works alone.

    The slowest of n shifted exponential steps takes 1 − α + α H_n mean steps. With a fixed batch a worker's step is
    n times shorter than that of one worker.

    Args:
        batches: How the batch grows.
        n: Number of workers.
        cost: Time of a step besides computing, in the same unit.
    """
    slowest = 1.0 - ALPHA + ALPHA * theory.harmonic(n)
    return slowest / (n if batches == BatchKind.STRONG else 1) + cost


def to_loss(losses: Sequence[float | None], ends: Sequence[float], examples_per_step: int) -> float | None:
    """Returns the seconds from the end of the first step until the mean loss of the last examples is at the target.

    In its first step a cluster builds its graph. It is None if the loss never reaches the target.

    Args:
        losses: Loss of each step of all workers, in the order in which the steps ended; None for NaN.
        ends: Time of each end, in seconds.
        examples_per_step: Examples of a step.
    """
    window = math.ceil(_WINDOW_EXAMPLES / examples_per_step)
    known = [math.inf if loss is None else loss for loss in losses]
    for end in range(window, len(known) + 1):
        if sum(known[end - window : end]) / window <= TARGET_LOSS:
            return ends[end - 1] - ends[0]
    return None
