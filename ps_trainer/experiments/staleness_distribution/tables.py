"""The tables and the explanations of the experiment on the distribution of gradient staleness."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import theory
from ps_trainer.experiments.toolkit.statistics import of_histogram
from ps_trainer.experiments.toolkit.step_times import Shape

from .cases import SLOW_RATES, Staleness, by_level


def tables(cases: Sequence[Staleness]) -> list[Table]:
    """Returns tables of all cases, and of each worker where one worker is slow; one of each kind per level."""
    slow = [case for case in cases if case.per_update == 1 and case.is_slow]
    return [*map(_table, by_level(cases)), *map(_worker_table, by_level(slow))]


def _table(cases: Sequence[Staleness]) -> Table:
    """Returns a table of all cases of one level."""
    has_simulated = any(case.simulated for case in cases)
    columns = (
        *numbers("d", "n"),
        *texts("step times"),
        *numbers("d", "gradients per update"),
        *numbers(",d", "gradients"),
        *numbers(".2f", "mean", "mean, predicted", "sd", "sd, geometric"),
        *numbers("d", "p50", "p99", "max"),
        *numbers(".3f", "KS to geometric", "share of n − 1"),
        *(numbers(".2f", "sd, simulated") + numbers(".3f", "KS to simulated") if has_simulated else []),
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
            + [case.counts[case.n - 1] / summary.num_values if case.per_update == 1 else None]
        )
        if has_simulated:
            rows[-1] += [of_histogram(case.simulated).sd, case.ks_to_simulated()] if case.simulated else [None, None]
    return Table("Staleness in updates", columns, rows, cases[0].level)


def _worker_table(cases: Sequence[Staleness]) -> Table:
    """Returns the cases with a slow worker, of one level."""
    columns = (
        *texts("worker"),
        *numbers("g", "relative rate"),
        *numbers(".2f", "mean, predicted", *(f"mean, {case.shape}" for case in cases)),
        *numbers(".2f", *(f"mean, {case.shape}, simulated" for case in cases if case.simulated)),
    )
    predicted = theory.worker_staleness(SLOW_RATES)
    simulated = [case.simulated_by_worker for case in cases if case.simulated_by_worker]
    rows = [
        [str(worker), rate, predicted[worker], *(of_histogram(case.by_worker[worker]).mean for case in cases)]
        + [of_histogram(by_worker[worker]).mean for by_worker in simulated]
        for worker, rate in enumerate(SLOW_RATES)
    ]
    return Table("Staleness by worker", columns, rows, cases[0].level)
