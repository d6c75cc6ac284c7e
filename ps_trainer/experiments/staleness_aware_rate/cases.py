"""Cases of the experiment on staleness-aware learning rates: its runs, seeds together, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.experiments.frame.base import Level, Results
from ps_trainer.experiments.frame.tables import Column, Table
from ps_trainer.experiments.lab import quadratic
from ps_trainer.experiments.lab.statistics import accuracy_standard_error, standard_error

NUM_TEST_EXAMPLES = 360
SINGLE, SYNC, SOFTSYNC = "single", "sync", "softsync"
EVEN, DISPERSED = "nearly even", "exponential"
SHAPES = {EVEN: "det:jitter=0.05", DISPERSED: "exp"}
FAILED_ERROR = 0.5  # of the test examples; above, a run has failed
FULL, BY_SPLITS, BY_STALENESS, BY_RULE = "α₀", "α₀/n", "α₀/τ", "α₀/τ of the rule"


class Case(NamedTuple):
    """Trainings of one kind, all seeds together.

    Attributes:
        mode: `SINGLE` worker with the whole batch, `SYNC`, or `SOFTSYNC`.
        splits: n of n-softsync; None otherwise.
        arm: how the learning rate follows the staleness.
        rate: α₀.
        shape: of the step times.
        errors: on the test examples at the end, 0..1, of each seed; of a run that diverged, of its last parameters.
        losses: training loss in the last window, of each seed; NaN when diverged.
        staleness: mean over the gradients.
    """

    mode: str
    splits: int | None
    arm: str
    rate: float
    shape: str
    errors: Sequence[float]
    losses: Sequence[float]
    staleness: float

    @property
    def name(self) -> str:
        """For tables and claims."""
        mode = f"n={self.splits}, {self.arm}, α₀={self.rate:g}" if self.mode == SOFTSYNC else self.mode
        return mode if self.shape == EVEN else f"{mode}, {self.shape} steps"

    @property
    def error(self) -> float:
        """Mean test error, 0..1."""
        return float(np.mean(self.errors))

    @property
    def variance(self) -> float:
        """Square of the error's standard error between seeds; 0 with one seed."""
        return standard_error(self.errors) ** 2 if len(self.errors) > 1 else 0.0

    @property
    def num_failed(self) -> int:
        """Seeds with more than half of the test examples wrong."""
        return sum(error > FAILED_ERROR for error in self.errors)


def cases_of(results: Results) -> list[Case]:
    """The cases, in the order of the runs."""
    return [
        Case(
            *key,
            errors=group.figures("test_error"),
            losses=[math.nan if loss is None else loss for loss in group.figures("loss")],
            staleness=float(np.mean(group.figures("staleness"))),
        )
        for key, group in results.by("mode", "splits", "arm", "lr", "shape").items()
    ]


def excess(case: Case, baseline: Case) -> float:
    """Test error above the baseline's, in standard errors of the difference.

    Its square has the seeds' part of both, and that of a finite test set, √(a (1 − a) / 360) of the baseline.
    """
    test_set = accuracy_standard_error(baseline.error, NUM_TEST_EXAMPLES)
    return (case.error - baseline.error) / math.sqrt(case.variance + baseline.variance + test_set**2)


def largest_stable_rate(sync_cases: Sequence[Case]) -> float:
    """The largest learning rate below the first one at which a seed of `sync` fails; 0 when already the first does."""
    stable = 0.0
    for case in sorted(sync_cases, key=lambda case: case.rate):
        if case.num_failed:
            return stable
        stable = case.rate
    return stable


def table_of(title: str, cases: Sequence[Case]) -> Table:
    """Test error and training loss of cases."""
    columns = (
        *(Column(name="updates from"), Column(name="n", form="d"), Column(name="arm"), Column(name="α₀", form="g")),
        *(Column(name="steps"), Column(name="mean staleness", form=".2f")),
        *(Column(name="test error", unit="%", form=".2f"), Column(name="± SE of seeds", unit="%", form=".2f")),
        *(Column(name="± SE of the test set", unit="%", form=".2f"), Column(name="training loss", form=".3f")),
        *(Column(name="failed", form="d"), Column(name="seeds", form="d")),
    )
    rows = [
        [case.mode, case.splits, case.arm, case.rate, case.shape, case.staleness, 100 * case.error]
        + [100 * standard_error(case.errors), 100 * accuracy_standard_error(case.error, NUM_TEST_EXAMPLES)]
        + [float(np.mean(case.losses)), case.num_failed, len(case.errors)]
        for case in cases
    ]
    return Table(title=title, level=Level.VIRTUAL.value, columns=columns, rows=rows)


def theory_table(momentum: float, taus: Sequence[int]) -> Table:
    """What a quadratic says of momentum and staleness together."""
    columns = (
        *(Column(name="τ", form="d"), Column(name="largest stable rate", form=".4f")),
        *(Column(name="largest α₀ with α₀/τ", form=".4f"), Column(name="over that without staleness", form=".4f")),
    )
    fresh = quadratic.largest_stable_momentum_rate(0, momentum)
    rows = []
    for tau in taus:
        rate = quadratic.largest_stable_momentum_rate(tau, momentum)
        rows.append([tau, rate, rate * max(tau, 1), rate * max(tau, 1) / fresh])
    return Table(
        title=f"Quadratic with curvature 1 and momentum {momentum:g}, exact",
        level=Level.VIRTUAL.value,
        columns=columns,
        rows=rows,
    )
