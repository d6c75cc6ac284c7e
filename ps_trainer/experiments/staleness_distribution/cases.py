"""Cases of the experiment on staleness: its runs, seeds pooled, and tables of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ps_trainer.experiments.frame.base import Level, Results
from ps_trainer.experiments.frame.tables import Column, Table, numbers
from ps_trainer.experiments.lab import theory
from ps_trainer.experiments.lab.statistics import HistogramSummary, ks_distance, of_histogram
from ps_trainer.experiments.lab.step_times import with_mean

EVEN, MODERATE, EXPONENTIAL = "even", "lognormal", "exponential"
SHAPES = {EVEN: "det:jitter=0.02", MODERATE: "lognormal:sigma=0.5", EXPONENTIAL: "exp"}
SLOW_RATES = (1.0, 1.0, 1.0, 0.25)


class Case(NamedTuple):
    """One kind of run, all its seeds together.

    Attributes:
        level: what of it is real.
        n: workers.
        shape: of the step times, a key of `SHAPES`.
        per_update: gradients that make an update; 1 = asynchronous.
        is_slow: whether the workers have the rates `SLOW_RATES`.
        by_worker: histogram of the staleness of each worker's gradients.
    """

    level: Level
    n: int
    shape: str
    per_update: int
    is_slow: bool
    by_worker: Mapping[int, Counter[int]]

    @property
    def name(self) -> str:
        """For tables and plots."""
        slow = ", one slow worker" if self.is_slow else ""
        grouped = f", c={self.per_update}" if self.per_update > 1 else ""
        return f"{self.level.value[:2]}, n={self.n}, {self.shape}{grouped}{slow}"

    @property
    def counts(self) -> Counter[int]:
        """Histogram of all gradients."""
        return sum(self.by_worker.values(), Counter())

    @property
    def summary(self) -> HistogramSummary:
        """Of all gradients."""
        return of_histogram(self.counts)

    @property
    def predicted_mean(self) -> float:
        """By A6."""
        return theory.mean_staleness(self.n, self.per_update)

    def share_above(self, staleness: int) -> float:
        """Gradients that are staler, 0..1."""
        return sum(count for value, count in self.counts.items() if value > staleness) / self.counts.total()

    def ks_to_geometric(self) -> float:
        """Distance to the distribution that exponential steps should give."""
        return ks_distance(self.counts, lambda staleness: theory.geometric_cdf(staleness, self.n))


def compute_of(shape: str, is_slow: bool, mean_ms: float) -> list[str]:
    """Step times as for `--compute` and `--straggler`, of all workers, and then of the slow one."""
    slow_worker = [with_mean(SHAPES[shape], mean_ms / SLOW_RATES[-1], len(SLOW_RATES) - 1)] if is_slow else []
    return [with_mean(SHAPES[shape], mean_ms), *slow_worker]


def cases_of(results: Results) -> list[Case]:
    """The cases, in the order of the runs."""
    cases = []
    for (level, n, shape, splits, is_slow), group in results.by("level", "n", "shape", "splits", "is_slow").items():
        by_worker = {worker: Counter() for worker in range(n)}
        for histograms in group.figures("staleness"):
            for worker, counts in histograms.items():
                by_worker[int(worker)].update({int(value): count for value, count in counts.items()})
        cases.append(Case(level, n, shape, -(-n // splits) if splits else 1, bool(is_slow), by_worker))
    return cases


def histograms_as_json(by_worker: Mapping[int, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """What `cases_of` reads."""
    return {
        str(worker): {str(value): counts[value] for value in sorted(counts)} for worker, counts in by_worker.items()
    }


def table_of(cases: Sequence[Case]) -> Table:
    """All cases of one level."""
    columns = (
        *numbers("d", "n"),
        Column(name="step times"),
        *numbers("d", "gradients per update"),
        *numbers(",d", "gradients"),
        *numbers(".2f", "mean", "mean, A6", "sd", "sd, A7"),
        *numbers("d", "p50", "p99", "max"),
        *numbers(".3f", "KS to geometric"),
    )
    rows = []
    for case in cases:
        summary = case.summary
        is_geometric = case.shape == EXPONENTIAL and case.per_update == 1 and not case.is_slow
        shape = f"{case.shape}, last worker 4 × slower" if case.is_slow else case.shape
        rows.append(
            [case.n, shape, case.per_update, summary.count, summary.mean, case.predicted_mean, summary.sd]
            + [theory.geometric_sd(case.n) if is_geometric else None, summary.p50, summary.p99, summary.largest]
            + [case.ks_to_geometric() if case.per_update == 1 and not case.is_slow else None]
        )
    return Table(title="Staleness in updates", level=cases[0].level.value, columns=columns, rows=rows)


def worker_table_of(cases: Sequence[Case]) -> Table:
    """The cases with a slow worker, of one level."""
    columns = [Column(name="worker"), Column(name="relative rate", form="g"), Column(name="mean, A8", form=".2f")]
    columns += [Column(name=f"mean, {case.shape}", form=".2f") for case in cases]
    predicted = theory.worker_staleness(SLOW_RATES)
    rows = [
        [str(worker), rate, predicted[worker], *(of_histogram(case.by_worker[worker]).mean for case in cases)]
        for worker, rate in enumerate(SLOW_RATES)
    ]
    return Table(title="Staleness by worker", level=cases[0].level.value, columns=columns, rows=rows)
