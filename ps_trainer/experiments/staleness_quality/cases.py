"""Cases of the experiment on staleness and model quality: its runs, seeds together, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.frame.base import Level, Results
from ps_trainer.experiments.frame.tables import Column, Table
from ps_trainer.experiments.lab import quadratic
from ps_trainer.experiments.lab.statistics import spread, standard_error

CONSTANT, UNIFORM, GEOMETRIC = "constant", "uniform", "geometric"
KINDS = (CONSTANT, UNIFORM, GEOMETRIC)
DEPTHS = {0: (), 1: ("hidden=32",), 2: ("hidden=32,32",), 4: ("hidden=32,32,32,32",)}
SETTINGS = ("kind", "tau", "depth", "optimizer", "lr", "ramp", "num_updates")


class Case(NamedTuple):
    """Training of one kind, all its seeds together.

    Attributes:
        kind: of staleness, one of `KINDS`.
        tau: its mean, in updates.
        depth: hidden layers.
        optimizer: of `--optimizer`.
        lr: learning rate.
        ramp: updates in which the staleness grows; None = the run ends at the target instead, and has none.
        num_updates: after which a run gave up.
        updates: until the target, of each seed; `num_updates` where it was not reached: a lower bound.
        accuracies: training accuracy in the last window, of each seed.
        num_lost: seeds that did not reach the target.
    """

    kind: str
    tau: int
    depth: int
    optimizer: str
    lr: float
    ramp: int | None
    num_updates: int
    updates: Sequence[float]
    accuracies: Sequence[float]
    num_lost: int

    @property
    def median(self) -> float:
        """Updates to the target."""
        return spread(self.updates).median

    @property
    def is_lost(self) -> bool:
        """Whether most seeds do not reach the target."""
        return 2 * self.num_lost > len(self.updates)


def cases_of(results: Results) -> list[Case]:
    """The cases, in the order of the runs; those on the quadratic are left out."""
    return [
        Case(
            *key,
            updates=[
                key[-1] if version is None else version for version in group.figures("target_version")
            ],
            accuracies=[accuracy or 0.0 for accuracy in group.figures("accuracy")],
            num_lost=group.figures("target_version").count(None),
        )
        for key, group in _trainings(results).by(*SETTINGS).items()
    ]  # fmt: skip


def select(cases: Iterable[Case], **fields: Any) -> list[Case]:
    """Those with these values; `depth` 1, `optimizer` "sgd" and no `ramp` unless they are given."""
    wanted = {"depth": 1, "optimizer": "sgd", "ramp": None} | fields
    return [case for case in cases if all(getattr(case, name) == value for name, value in wanted.items())]


def best(cases: Sequence[Case]) -> Case:
    """The one with the learning rate that needs fewest updates."""
    return min(cases, key=lambda case: (case.median, case.num_lost))


def stable_rates(results: Results) -> dict[str, dict[int, float]]:
    """Kind of staleness -> τ -> median of the largest stable learning rates on the quadratic."""
    rates: dict[str, dict[int, float]] = {}
    for (kind, tau), group in results.where(model="quadratic").by("kind", "tau").items():
        rates.setdefault(kind, {})[tau] = spread(group.figures("rate")).median
    return rates


def quadratic_table(rates: dict[str, dict[int, float]]) -> Table:
    """Largest stable learning rates, and their products with 1 + τ and √(1 + τ)."""
    columns = (
        Column(name="staleness"),
        Column(name="τ", form="d"),
        Column(name="largest stable rate", form=".4f"),
        Column(name="exact", form=".4f"),
        Column(name="× (1 + τ)", form=".2f"),
        Column(name="× √(1 + τ)", form=".2f"),
    )
    rows = [
        [kind, tau, rate, quadratic.largest_stable_rate(tau) if kind == CONSTANT else None]
        + [rate * (1 + tau), rate * (1 + tau) ** 0.5]
        for kind, by_tau in rates.items()
        for tau, rate in by_tau.items()
    ]
    return Table(title="Quadratic: largest stable learning rate", level=Level.VIRTUAL.value, columns=columns, rows=rows)


def grid_table(cases: Sequence[Case]) -> Table:
    """Updates to the target by staleness and learning rate; a dash where most seeds do not reach it."""
    rates = sorted({case.lr for case in cases})
    columns = [Column(name="τ", form="d")]
    columns += [Column(name=f"lr {rate:g}", form=".0f") for rate in rates]
    columns += [Column(name="best lr", form="g"), Column(name="slowdown at the best lr", form=".2f")]
    columns += [Column(name="slowdown at the best lr of τ = 0", form=".2f")]
    taus = sorted({case.tau for case in cases})
    fastest = best([case for case in cases if case.tau == taus[0]])
    rows = []
    for tau in taus:
        own = {case.lr: case for case in cases if case.tau == tau}
        tuned = best(list(own.values()))
        same = own.get(fastest.lr)
        row = [None if lr not in own or own[lr].is_lost else own[lr].median for lr in rates]
        slowdowns = [
            None if case is None or case.is_lost else case.median / fastest.median for case in (tuned, same)
        ]  # fmt: skip
        rows.append([tau, *row, None if tuned.is_lost else tuned.lr, *slowdowns])
    return Table(
        title="One hidden layer, constant staleness: median updates to the target",
        level=Level.VIRTUAL.value,
        columns=columns,
        rows=rows,
    )


def case_table(title: str, cases: Sequence[Case]) -> Table:
    """Cases one by one."""
    columns = (
        *(Column(name="staleness"), Column(name="τ", form="d"), Column(name="hidden layers", form="d")),
        *(Column(name="optimizer"), Column(name="lr", form="g"), Column(name="ramp", form="d", unit="updates")),
        *(Column(name="updates", form=".0f"), Column(name="p10", form=".0f"), Column(name="p90", form=".0f")),
        *(Column(name="not reached", form="d"), Column(name="seeds", form="d")),
        *(Column(name="last accuracy", form=".3f"), Column(name="± SE", form=".3f")),
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
    return Table(title=title, level=Level.VIRTUAL.value, columns=columns, rows=rows)


def _trainings(results: Results) -> Results:
    return Results(result for result in results if result.run.settings["model"] != "quadratic")
