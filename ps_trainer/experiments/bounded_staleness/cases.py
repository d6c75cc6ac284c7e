"""Finished runs under each bound, grouped for claims, tables and plots."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from ps_trainer.experiments.harness.cases import Case, largest, median, setting
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit import real_clusters
from ps_trainer.experiments.toolkit.statistics import IntervalEstimate, mean_estimate, spread
from ps_trainer.experiments.toolkit.step_times import Shape

from .records import NUM_REAL_WORKERS, SLOWNESS, BoundRun

Key = TypeVar("Key")


@dataclasses.dataclass(frozen=True)
class TimedBound(Case):
    """One kind of cluster under one bound in virtual time; medians over its seeds."""

    models: Results  # of the model with the same step times

    shape = setting("shape")  # of the step times
    n = setting("n")
    is_slow = setting("is_slow")  # whether the last worker is `SLOWNESS` times slower
    bound = setting("bound")  # s; None = no bound, so no worker waits
    rate = median("rate")  # clocks per mean step of a worker that is not slow, mean over the workers
    predicted = median("rate", of="models")  # the same rate by the model of clocks
    barrier_rate = median("barrier_rate", of="models")  # the same rate with a barrier after each step
    mean_staleness = median("mean_staleness")  # in updates
    # Largest lead over the slowest worker in completed steps, at the begin and just after the end of a step.
    lead_at_begin = largest("lead_at_begin")
    lead_when_done = largest("lead_when_done")

    def of_seeds(self, statistic: Callable[[TimedBound], float]) -> dict[int, float]:
        """Returns seed -> statistic of its run alone, with the model of that seed."""
        return {
            result.run.seed: statistic(TimedBound(Results([result]), self.models.where(seed=result.run.seed)))
            for result in self.runs
        }

    def mean_of_seeds(self, statistic: Callable[[TimedBound], float]) -> IntervalEstimate:
        """Returns the mean over the seeds of a statistic of one run."""
        return mean_estimate([*self.of_seeds(statistic).values()])

    @property
    def wait_by_worker(self) -> list[float]:
        """Share of each worker's time that it waits, 0..1."""
        return np.median(self.runs.figures("wait_by_worker"), axis=0).tolist()

    @property
    def cluster(self) -> str:
        return f"n = {self.n}, {self.shape}{', one slow worker' if self.is_slow else ''}"

    @property
    def name(self) -> str:
        return f"{self.cluster}, {bound_name(self.bound)}"

    @property
    def wait_share(self) -> float:
        """Share of the workers' time that they wait, 0..1."""
        return float(np.mean(self.wait_by_worker))

    @property
    def free_rate(self) -> float:
        """Rate if no worker waits."""
        return (self.n - 1 + 1 / SLOWNESS) / self.n if self.is_slow else 1.0

    @property
    def predicted_wait_share(self) -> float:
        """Share of waiting by the model of clocks.

        Under a bound all workers make the same number of steps, and a worker waits whenever it does not compute.
        """
        if self.bound is None:
            return 0.0
        steps = self.n - 1 + SLOWNESS if self.is_slow else self.n  # mean steps that one clock of every worker takes
        return 1.0 - self.predicted * steps / self.n


class TrainedBound(Case):
    """Trainings under a bound; medians over the seeds, inf if the target was not reached."""

    bound = setting("bound")

    @property
    def updates_by_rate(self) -> dict[float, float]:
        """Updates to the target by learning rate."""
        return {rate: _median_or_later(own, "updates") for (rate,), own in self.runs.by("rate").items()}

    def by_rate(self, name: str) -> dict[float, dict[int, float]]:
        """Returns learning rate -> seed -> figure, inf if the target was not reached."""
        return {
            rate: {result.run.seed: _or_later(getattr(result.figures, name)) for result in own}
            for (rate,), own in self.runs.by("rate").items()
        }

    def at_others_rate(self, name: str) -> dict[int, float]:
        """Returns seed -> figure at the learning rate that is soonest at the target with the other seeds."""
        return _soonest_of_others(self.by_rate("time"), self.by_rate(name))

    @property
    def rate(self) -> float:
        """Learning rate that reaches the target soonest."""
        groups = {rate: own for (rate,), own in self.runs.by("rate").items()}
        return min(groups, key=lambda rate: [_median_or_later(groups[rate], name) for name in ("time", "updates")])

    @property
    def updates(self) -> float:
        """Updates to the target at the best learning rate."""
        return self.updates_by_rate[self.rate]

    @property
    def time(self) -> float:
        """Time to the target at the best learning rate, in mean steps."""
        return _median_or_later(self.runs.where(rate=self.rate), "time")


class RealBound(real_clusters.RealCase):
    """Runs of all seeds under one bound on real clusters, runs whose times are not comparable included."""

    bound = setting("bound")

    @property
    def name(self) -> str:
        return f"L2, n = {NUM_REAL_WORKERS}, {Shape.EXPONENTIAL}, {bound_name(self.bound)}"

    @property
    def largest_lead(self) -> int:
        """Largest lead over the slowest worker at the begin of a step, in completed steps, over all runs."""
        return max(one.lead_at_begin for one in self.runs.figures("measured"))

    def timed(self) -> Results:
        """Returns the runs whose times count."""
        return self.runs.uncontended()

    def pair(self, figure: str) -> real_clusters.Pair:
        """Returns a figure of the cluster and of the simulator, from the runs whose times count."""
        return real_clusters.pair(self.name, self.timed(), figure)

    def median(self, name: str) -> float:
        """Returns a figure of the cluster alone, from the runs whose times count."""
        return spread([getattr(one, name) for one in self.timed().figures("measured")]).median


def soonest_times(cases: Sequence[TrainedBound]) -> dict[int, float]:
    """Returns seed -> time to the target at the bound and rate that are soonest there with the other seeds."""
    times = {(case.bound, rate): own for case in cases for rate, own in case.by_rate("time").items()}
    return _soonest_of_others(times, times)


def _soonest_of_others(
    times: Mapping[Key, Mapping[int, float]], values: Mapping[Key, Mapping[int, float]]
) -> dict[int, float]:
    """Returns the value of each seed with the option whose median time is the shortest for the other seeds."""

    def median_of_others(option: Key, seed: int) -> float:
        others = [time for other, time in times[option].items() if other != seed]
        return statistics.median_high(others or times[option].values())

    def chosen(seed: int) -> float:
        return values[min(times, key=lambda option: median_of_others(option, seed))][seed]

    return {seed: chosen(seed) for seed in next(iter(times.values()))}


def bound_name(bound: int | None) -> str:
    """Returns the name of a bound for tables and plots."""
    return "no bound" if bound is None else f"s = {bound}"


def timed_bounds(results: Results) -> list[TimedBound]:
    """Returns the cases in virtual time, in the order of the runs."""
    groups = results.by("shape", "n", "is_slow", "bound").values()
    pairs = [(group.where(what=BoundRun.RULE), group.where(what=BoundRun.MODEL)) for group in groups]
    return [TimedBound(own, models) for own, models in pairs if own and models]


def by_cluster(cases: Sequence[TimedBound]) -> dict[str, dict[int | None, TimedBound]]:
    """Returns the cases of each cluster by rising bound, with None last."""
    groups: dict[str, dict[int | None, TimedBound]] = {}
    for case in cases:
        groups.setdefault(case.cluster, {})[case.bound] = case
    return groups


def _median_or_later(results: Results, name: str) -> float:
    """Returns the median over the runs; a run that missed the target counts as later than all others."""
    return statistics.median_high(map(_or_later, results.figures(name)))


def _or_later(value: float | None) -> float:
    return math.inf if value is None else value
