"""The tables and the explanations of the experiment on staleness and model quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import quadratic
from ps_trainer.experiments.toolkit.statistics import spread, standard_error

from .cases import FIXED_RATE, Kind, StaleTraining, best, by_depth, select, tuned_pairs


def of_quadratic(rates: Mapping[str, Mapping[int, float]]) -> list[Table]:
    """Returns the largest stable learning rates, and their products with 1 + τ and √(1 + τ)."""
    columns = (
        *texts("staleness"),
        *numbers("d", "τ"),
        *numbers(".4f", "largest stable rate", "exact"),
        *numbers(".2f", "× (1 + τ)", "× √(1 + τ)"),
    )
    rows = [
        [kind, tau, rate, quadratic.largest_stable_rate(tau) if kind == Kind.CONSTANT else None]
        + [rate * (1 + tau), rate * (1 + tau) ** 0.5]
        for kind, by_tau in rates.items()
        for tau, rate in by_tau.items()
    ]
    return [Table("Quadratic: largest stable learning rate", columns, rows)]


def of_training(cases: Sequence[StaleTraining]) -> list[Table]:
    """Returns tables of updates to the target: the grid, and by kind of staleness, depth, ramp and optimizer."""
    if not cases:
        return []
    ramps = [case for case in cases if case.ramp is not None]
    best_ones = [case for pair in tuned_pairs(cases).values() for case in pair]
    return [
        _grid_table(select(cases, kind=Kind.CONSTANT)),
        _case_table("By kind of staleness", select(cases, lr=FIXED_RATE)),
        _case_table("By depth", by_depth(cases)),
        _case_table("With and without ramp", ramps),
        _case_table("Optimizers, each at its best learning rate", best_ones),
    ]


def _grid_table(cases: Sequence[StaleTraining]) -> Table:
    """Returns a table of updates to the target by staleness and learning rate; a dash if most seeds do not reach it."""
    rates = sorted({case.lr for case in cases})
    columns = (
        *numbers("d", "τ"),
        *numbers(".0f", *(f"lr {rate:g}" for rate in rates)),
        *numbers("g", "best lr"),
        *numbers(".2f", "slowdown at the best lr", "slowdown at the best lr of τ = 0"),
    )
    taus = sorted({case.tau for case in cases})
    fastest = best([case for case in cases if case.tau == taus[0]])
    rows = []
    for tau in taus:
        by_rate = {case.lr: case for case in cases if case.tau == tau}
        tuned = best(list(by_rate.values()))
        same = by_rate.get(fastest.lr)
        row = [None if lr not in by_rate or by_rate[lr].is_lost else by_rate[lr].median for lr in rates]
        slowdowns = [None if case is None or case.is_lost else case.median / fastest.median for case in (tuned, same)]
        rows.append([tau, *row, None if tuned.is_lost else tuned.lr, *slowdowns])
    return Table("One hidden layer, constant staleness: median updates to the target", columns, rows)


def _case_table(title: str, cases: Sequence[StaleTraining]) -> Table:
    """Returns a row per case."""
    columns = (
        *texts("staleness"),
        *numbers("d", "τ", "hidden layers"),
        *texts("optimizer"),
        *numbers("g", "lr"),
        *numbers("d", "ramp", unit="updates"),
        *numbers(".0f", "updates", "p10", "p90"),
        *numbers("d", "not reached", "seeds"),
        *numbers(".3f", "last accuracy", "± SE"),
    )
    rows = []
    for case in cases:
        updates = spread(case.updates)
        rows.append(
            [case.kind, case.tau, case.depth, case.optimizer, case.lr, case.ramp]
            + ([None] * 3 if case.is_lost or case.ramp is not None else [updates.median, updates.p10, updates.p90])
            + [case.num_lost if case.ramp is None else None, len(case.updates)]
            + [float(np.mean(case.accuracies)), standard_error(case.accuracies)]
        )
    return Table(title, columns, rows)
