"""The tables of the experiment on staleness and model quality."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import quadratic
from ps_trainer.experiments.toolkit.statistics import standard_error

from .cases import (
    MEAN_SQUARE,
    RampTraining,
    RateSearch,
    StaleTraining,
    select,
)
from .records import Kind, PilotPair, RateChoice


def of_quadratic(rates: Mapping[str, Mapping[int, float]]) -> list[Table]:
    """Returns the largest stable learning rates, and their products with 1 + τ and √(1 + τ)."""
    exact = {
        Kind.CONSTANT: quadratic.largest_stable_rate,
        MEAN_SQUARE: quadratic.largest_stable_geometric_rate,
    }
    columns = (
        *texts("staleness"),
        *numbers("d", "τ"),
        *numbers(".4f", "largest stable rate", "exact"),
        *numbers(".2f", "× (1 + τ)", "× √(1 + τ)"),
    )
    rows = [
        [kind, tau, rate, exact[kind](tau) if kind in exact else None, rate * (1 + tau), rate * (1 + tau) ** 0.5]
        for kind, by_tau in rates.items()
        for tau, rate in by_tau.items()
    ]
    return [Table("Quadratic: largest stable learning rate", columns, rows)]


def of_searches(searches: Sequence[RateSearch]) -> list[Table]:
    """Returns the median updates of the pilot seeds by learning rate: a table per grid of rates."""
    tables = []
    for rates in dict.fromkeys(tuple(search.rates) for search in searches):
        own = [search for search in searches if tuple(search.rates) == rates]
        columns = (
            *texts("optimizer"),
            *numbers("d", "hidden layers", "τ"),
            *numbers(".0f", *(f"lr {rate:g}" for rate in rates)),
            *numbers("g", "fastest"),
        )
        rows = []
        for search in own:
            for tau in search.taus:
                medians = [search.figures.median(tau, place) for place in range(len(rates))]
                fastest = search.figures.fastest(tau)
                known = [median if math.isfinite(median) else None for median in medians]
                head = [search.optimizer, search.depth, tau]
                rows.append([*head, *known, rates[fastest] if known[fastest] is not None else None])
        names = ", ".join(dict.fromkeys(search.optimizer for search in own))
        tables.append(Table(f"Pilot seeds, {names}: median updates to the target", columns, rows))
    return tables


def of_ramp_search(pairs: Sequence[PilotPair]) -> list[Table]:
    """Returns the accuracies of the pilot seeds with and without a ramp."""
    columns = (
        *texts("optimizer"),
        *numbers("g", "lr"),
        *numbers(".3f", "last accuracy without a ramp", "with it"),
        *numbers("d", "seeds rescued", "seeds"),
    )
    rows = [
        [pair.optimizer, pair.lr, *(float(np.median(one)) for one in (pair.without, pair.with_ramp))]
        + [pair.num_rescued, len(pair.without)]
        for pair in pairs
    ]
    return [Table("Pilot seeds, with and without a ramp: medians", columns, rows)]


def of_ramps(cases: Sequence[RampTraining]) -> list[Table]:
    """Returns the accuracies at the end with and without a ramp."""
    columns = (
        *texts("optimizer"),
        *numbers("d", "hidden layers", "τ"),
        *numbers("g", "lr"),
        *numbers("d", "ramp", unit="updates"),
        *numbers(".3f", "last accuracy", "± SE"),
        *numbers("d", "at the target", "seeds"),
    )
    rows = [
        [case.optimizer, case.searched.depth, case.searched.tau, case.lr, case.ramp]
        + [float(np.mean(case.accuracies)), standard_error(case.accuracies), sum(case.reached), len(case.reached)]
        for case in cases
    ]
    return [Table("With and without a ramp", columns, rows)]


def of_training(cases: Sequence[StaleTraining]) -> list[Table]:
    """Returns tables of updates to the target: by kind of staleness, depth and optimizer."""
    constant = [case for case in cases if case.kind == Kind.CONSTANT]
    fixed = [case for case in constant if case.choice == RateChoice.FIXED]
    return [
        _case_table(f"By kind of staleness, learning rate {RateChoice.FIXED}", select(cases, choice=RateChoice.FIXED)),
        _case_table(f"By depth, learning rate {RateChoice.FIXED}", fixed),
        _case_table(
            f"By depth, learning rate {RateChoice.FRACTION} one",
            [case for case in constant if case.choice == RateChoice.FRACTION],
        ),
        _case_table(
            "By optimizer, each at its fastest learning rate",
            [case for case in constant if case.choice == RateChoice.FASTEST],
        ),
    ]


def _case_table(title: str, cases: Sequence[StaleTraining]) -> Table:
    """Returns a row per case; the slowdown is over the same model and rate choice without staleness."""
    fresh = {(case.depth, case.optimizer, case.choice): case for case in cases if case.tau == 0}
    columns = (
        *texts("staleness"),
        *numbers("d", "τ", "hidden layers"),
        *texts("optimizer"),
        *numbers("g", "lr"),
        *numbers(".0f", "updates", "p10", "p90"),
        *numbers(".2f", "slowdown"),
        *numbers("d", "not reached", "seeds"),
        *numbers(".3f", "last accuracy", "± SE"),
    )
    rows = []
    for case in sorted(cases, key=lambda case: (case.depth, case.optimizer)):
        updates = case.updates
        slowdowns = case.slowdowns(fresh[case.depth, case.optimizer, case.choice])
        rows.append(
            [case.kind, case.tau, case.depth, case.optimizer, case.lr]
            + [updates.percentile(percent) for percent in (50, 10, 90)]
            + [slowdowns.percentile(50), case.num_lost, len(case.accuracies)]
            + [float(np.mean(case.accuracies)), standard_error(case.accuracies)]
        )
    return Table(title, columns, rows)
