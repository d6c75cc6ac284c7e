"""The cases that the runs of the experiment on cached reads make."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.experiments.harness.cases import cases_by, figures, find, largest, setting
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.harness.targets import TargetCase
from ps_trainer.experiments.toolkit.pilots import PILOT
from ps_trainer.experiments.toolkit.statistics import spread
from ps_trainer.simulation.schedule import Schedule

NUM_WORKERS = 8
BOUNDS = (0, 1, 3, 7, 15)
FRESH_BOUND = 3


class Problem(Label):
    """Model and data."""

    RATINGS = "matrix factorization"
    CLICKS = "ℓ1 logistic regression"


class Reads(Label):
    """Where the parameters of a step come from, and what the step waits for."""

    CACHED = "cached reads"
    FRESH = "fresh reads"
    BARRIER = "averaging barrier"
    NONE = "asynchronous"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheSettings(Record):
    """Settings of a training."""

    problem: Problem
    reads: Reads
    bound: int | None  # s; None where the rule has no bound
    max_gradients: int  # after which a training gives up


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheFigures(Record):
    """Figures of a training and of its schedule; times in mean steps."""

    rate: float
    is_reached: bool  # whether the objective was reached
    time: float  # until the objective, or until the training gave up
    gradients: float  # until the same moment
    computes: float  # share of the workers' time that they compute, 0..1
    pulls: float  # pulls per step
    age: int  # largest number of steps of another worker that a read lacks, of those that the worker has made itself
    times: Sequence[float]  # of the evaluations
    losses: Sequence[float]  # test loss at these times


class CacheArm(TargetCase):
    """Trainings of one problem under one rule, all their seeds together."""

    problem = setting("problem")
    reads = setting("reads")
    bound = setting("bound")
    rates = figures("rate")
    is_reached = figures("is_reached")
    times = figures("time")
    gradients = figures("gradients")
    computes = figures("computes")
    pulls = figures("pulls")
    age = largest("age")

    @property
    def name(self) -> str:
        return self.reads if self.bound is None else f"{self.reads}, s = {self.bound}"


class CacheComparison(NamedTuple):
    """The arms of one problem."""

    problem: Problem
    arms: Sequence[CacheArm]
    chosen: int | None  # the bound above 0 whose pilot run was fastest; None = without pilot runs

    def at(self, reads: Reads, bound: int | None = None) -> CacheArm | None:
        """Returns an arm, or None if it was not run."""
        return find(self.arms, reads=reads, bound=bound)

    @property
    def cached(self) -> list[CacheArm]:
        """The arms with cached reads, by rising bound."""
        return sorted((arm for arm in self.arms if arm.reads == Reads.CACHED), key=lambda arm: arm.bound)

    @property
    def best(self) -> CacheArm | None:
        """The arm with cached reads and the chosen bound."""
        return None if self.chosen is None else self.at(Reads.CACHED, self.chosen)


def comparisons(results: Results) -> list[CacheComparison]:
    """Returns the arms of each problem; pilot runs choose the bound."""
    pilots = [(one.run.settings.training, one.figures.cost) for one in results.where(what=PILOT)]
    made = []
    for (problem,), group in results.where(what=None).by("problem").items():
        costs: Mapping[int, float] = {
            training.bound: cost
            for training, cost in pilots
            if (training.problem, training.reads) == (problem, Reads.CACHED) and training.bound and cost is not None
        }
        arms = cases_by(CacheArm, group, "reads", "bound")
        made.append(CacheComparison(Problem(problem), arms, min(costs, key=lambda s: costs[s]) if costs else None))
    return made


def largest_age(schedule: Schedule) -> int:
    """Returns the largest number of a worker's steps, of those that the reader has made itself, that its read lacks.

    Ho et al. (2013, section 2) allow s: a read at clock c returns all updates of clocks up to c − s − 1.
    """
    steps = schedule.steps
    updates = [np.sort(steps.update[steps.worker == worker]) for worker in range(schedule.num_workers)]
    seen = np.stack([np.searchsorted(own, steps.version) for own in updates])
    seen[steps.worker, np.arange(len(steps.worker))] = np.iinfo(seen.dtype).max  # a worker reads its own updates
    return int(np.max(steps.local_step - seen.min(axis=0)))


def pulls_per_step(schedule: Schedule) -> float:
    """Returns the pulls per step; a pull follows a push of its worker, so it reads a version of its own."""
    steps = schedule.steps
    return len(np.unique(np.stack([steps.worker.astype(np.int64), steps.version]), axis=1)[0]) / len(steps.worker)


def median(values: Sequence[float]) -> float:
    """Returns the median over the seeds."""
    return spread(values).median
