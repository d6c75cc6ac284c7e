"""The tables and the explanations of the experiment on the distribution of gradient staleness."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import theory
from ps_trainer.experiments.toolkit.statistics import of_histogram
from ps_trainer.experiments.toolkit.step_times import Shape

from .cases import SLOW_RATES, Staleness, by_level

NOTES = (
    "The mean counts gradients that are on their way, so it does not depend on the delays; only idle gaps between a"
    " push and the next pull (below n − 1) or parameters pulled ahead (above) change it.",
    "The sources' bound of 2n on the staleness is a statement about even step times: see the last claim.",
    "The first 20 % of each run are left out; seeds are pooled.",
    "Real steps that are to be even are so only while a core is free at once: what others take of the cores spreads"
    " the staleness of even steps, and makes that of exponential ones less than geometric. The mean stays n − 1.",
)


def tables(cases: Sequence[Staleness]) -> list[Table]:
    """All cases, and each worker of those with a slow one; a table per level."""
    slow = [case for case in cases if case.per_update == 1 and case.is_slow]
    return [*map(_table, by_level(cases)), *map(_worker_table, by_level(slow))]


def _table(cases: Sequence[Staleness]) -> Table:
    """All cases of one level."""
    columns = (
        *numbers("d", "n"),
        *texts("step times"),
        *numbers("d", "gradients per update"),
        *numbers(",d", "gradients"),
        *numbers(".2f", "mean", "mean, predicted", "sd", "sd, geometric"),
        *numbers("d", "p50", "p99", "max"),
        *numbers(".3f", "KS to geometric"),
    )
    rows = []
    for case in cases:
        summary = case.summary
        is_geometric = case.shape == Shape.EXPONENTIAL and case.per_update == 1 and not case.is_slow
        shape = f"{case.shape}, last worker 4 × slower" if case.is_slow else case.shape
        rows.append(
            [case.n, shape, case.per_update, summary.num_values, summary.mean, case.predicted_mean, summary.sd]
            + [theory.geometric_sd(case.n) if is_geometric else None, summary.p50, summary.p99, summary.largest]
            + [case.ks_to_geometric() if case.per_update == 1 and not case.is_slow else None]
        )
    return Table("Staleness in updates", columns, rows, cases[0].level)


def _worker_table(cases: Sequence[Staleness]) -> Table:
    """The cases with a slow worker, of one level."""
    columns = (
        *texts("worker"),
        *numbers("g", "relative rate"),
        *numbers(".2f", "mean, predicted", *(f"mean, {case.shape}" for case in cases)),
    )
    predicted = theory.worker_staleness(SLOW_RATES)
    rows = [
        [str(worker), rate, predicted[worker], *(of_histogram(case.by_worker[worker]).mean for case in cases)]
        for worker, rate in enumerate(SLOW_RATES)
    ]
    return Table("Staleness by worker", columns, rows, cases[0].level)
