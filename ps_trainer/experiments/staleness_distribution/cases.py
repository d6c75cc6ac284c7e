"""Cases of the experiment on the distribution of gradient staleness, and the format of its histograms."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.cases import Case, cases_by, setting
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit import theory
from ps_trainer.experiments.toolkit.statistics import HistogramSummary, ks_distance, of_histogram
from ps_trainer.experiments.toolkit.step_times import Shape, with_mean

SHAPES = (Shape.EVEN, Shape.MODERATE, Shape.EXPONENTIAL)
SLOW_RATES = (1.0, 1.0, 1.0, 0.25)
PAPER_LEARNERS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class StalenessSettings(Record):
    """Settings of a run."""

    n: int  # number of workers
    shape: Shape  # shape of the step times
    splits: int | None = None  # n of n-softsync; None = asynchronous
    is_slow: bool | None = None  # True if the workers have the rates `SLOW_RATES`
    mean_ms: float  # mean step
    num_updates: int

    @property
    def num_gradients(self) -> float:
        """Number of gradients of all workers."""
        return self.num_updates * self.n / (self.splits or self.n)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StalenessFigures(Record):
    """Staleness of all gradients of a run."""

    staleness: Mapping[str, Mapping[str, int]]  # worker -> staleness -> number of gradients
    steps_per_sec: float | None = None  # of a real cluster
    # of the same delays in virtual time, with the calibrated cost of a step, beside a real cluster
    simulated: Mapping[str, Mapping[str, int]] | None = None


class Staleness(Case):
    """One kind of run, all its seeds together."""

    level = setting("level")
    n = setting("n")
    shape = setting("shape")  # shape of the step times

    @property
    def per_update(self) -> int:
        """Number of gradients per update; 1 = asynchronous."""
        splits = self.runs.setting("splits")
        return -(-self.n // splits) if splits else 1

    @property
    def is_slow(self) -> bool:
        """Whether the workers have the rates `SLOW_RATES`."""
        return bool(self.runs.setting("is_slow"))

    @functools.cached_property
    def by_worker(self) -> dict[int, Counter[int]]:
        """Histogram of the staleness of each worker's gradients, seeds pooled."""
        return _pool_seeds(self.runs.figures("staleness"), self.n)

    @functools.cached_property
    def simulated_by_worker(self) -> dict[int, Counter[int]] | None:
        """As `by_worker`, of the same delays in virtual time, beside a real cluster; else None."""
        simulated = self.runs.figures("simulated")
        return None if None in simulated else _pool_seeds(simulated, self.n)

    @functools.cached_property
    def simulated(self) -> Counter[int] | None:
        """As `counts`, of the same delays in virtual time, beside a real cluster; else None."""
        by_worker = self.simulated_by_worker
        return None if by_worker is None else sum(by_worker.values(), Counter())

    @property
    def name(self) -> str:
        slow = ", one slow worker" if self.is_slow else ""
        grouped = f", c={self.per_update}" if self.per_update > 1 else ""
        return f"{self.level.value[:2]}, n={self.n}, {self.shape}{grouped}{slow}"

    @functools.cached_property
    def counts(self) -> Counter[int]:
        """Histogram of the staleness of all gradients."""
        return sum(self.by_worker.values(), Counter())

    @functools.cached_property
    def summary(self) -> HistogramSummary:
        """Summary of the staleness of all gradients."""
        return of_histogram(self.counts)

    @property
    def predicted_mean(self) -> float:
        """Mean staleness (n − 1)/c in updates."""
        return theory.mean_staleness(self.n, self.per_update)

    def num_above(self, staleness: int) -> int:
        """Returns the number of gradients with a greater staleness."""
        return sum(count for value, count in self.counts.items() if value > staleness)

    def share_above(self, staleness: int) -> float:
        """Returns the share of gradients with a greater staleness, 0..1."""
        return self.num_above(staleness) / self.counts.total()

    def ks_to_simulated(self) -> float:
        """Returns the Kolmogorov-Smirnov distance to the simulation of the same delays; needs one."""
        if self.simulated is None:
            raise ValueError(f"{self.name} has no simulation")
        total, of_value = self.simulated.total(), self.simulated
        shares = np.cumsum([of_value[value] for value in range(max(*self.counts, *of_value) + 1)]) / total
        return ks_distance(self.counts, lambda staleness: shares[staleness])

    def ks_to_geometric(self) -> float:
        """Returns the Kolmogorov-Smirnov distance to the distribution that exponential steps should give."""
        return ks_distance(self.counts, lambda staleness: theory.geometric_cdf(staleness, self.n))


def compute_of(shape: str, mean_ms: float, *, is_slow: bool) -> list[str]:
    """Returns values of `--compute` and `--straggler`: step times of all workers, and then of the slow one."""
    slow_worker = [with_mean(Shape(shape).text, mean_ms / SLOW_RATES[-1], len(SLOW_RATES) - 1)] if is_slow else []
    return [with_mean(Shape(shape).text, mean_ms), *slow_worker]


def _pool_seeds(of_seeds: Sequence[Mapping[str, Mapping[str, int]]], n: int) -> dict[int, Counter[int]]:
    pooled: dict[int, Counter[int]] = {worker: Counter() for worker in range(n)}
    for histograms in of_seeds:
        for worker, counts in histograms.items():
            pooled[int(worker)].update({int(value): count for value, count in counts.items()})
    return pooled


def staleness_of(results: Results) -> list[Staleness]:
    """Returns the cases, in the order of the runs; those of calibrations are none."""
    own = Results(result for result in results if isinstance(result.run.settings, StalenessSettings))
    return cases_by(Staleness, own, "level", "n", "shape", "splits", "is_slow")


def by_level(cases: Iterable[Staleness]) -> list[list[Staleness]]:
    """Returns the cases of each level."""
    groups: dict[Level, list[Staleness]] = {}
    for case in cases:
        groups.setdefault(case.level, []).append(case)
    return list(groups.values())


def histograms_as_json(by_worker: Mapping[int, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """Returns the histograms as JSON values, which `Staleness.by_worker` reads."""
    return {
        str(worker): {str(value): counts[value] for value in sorted(counts)} for worker, counts in by_worker.items()
    }
