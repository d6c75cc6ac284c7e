"""The tables and the explanations of the experiment on staleness-aware learning rates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import quadratic, real_clusters
from ps_trainer.experiments.toolkit.statistics import accuracy_standard_error, standard_error

from .cases import (
    FAILED_ERROR,
    MOMENTUM,
    NUM_REAL_LEARNERS,
    NUM_TEST_EXAMPLES,
    RateTraining,
    RateTrainings,
    RealArm,
    TunedTraining,
    Updates,
)


def of_virtual_time(trainings: RateTrainings) -> list[Table]:
    """Returns tables of test errors, and of stable rates of a quadratic with momentum; none without trainings."""
    by_mode = [case for case in trainings.cases if case.mode != Updates.SOFTSYNC]
    return [
        _training_table("Synchronous updates by learning rate, and one learner with the whole batch", by_mode),
        _training_table("n-softsync", trainings.soft),
        _theory_table(sorted({0, 1, *(case.splits for case in trainings.even)})),
    ][: None if trainings.cases else 0]


def of_tuned_arms(arms: Sequence[TunedTraining]) -> list[Table]:
    """Returns the test errors of arms with rates that pilot runs have chosen."""
    columns = (
        *texts("model", "updates from", "arm", "steps"),
        *numbers("d", "n"),
        *numbers("g", "rate"),
        *numbers(".2f", "test error", "± SE of seeds", unit="%"),
        *numbers(".3f", "training loss"),
        *numbers("d", "seeds"),
    )
    rows = [
        [one.model, one.mode, one.arm, one.shape, one.splits, one.rate]
        + [100 * one.error, 100 * standard_error(one.errors), float(np.mean(one.losses)), len(one.errors)]
        for one in arms
    ]
    return [Table("Rates that pilot runs have chosen", columns, rows)]


def of_real_clusters(arms: Sequence[RealArm]) -> list[Table]:
    """Returns tables of the trainings of each arm, and of the simulator's timing; none without runs."""
    columns = (
        *texts("learning rate"),
        *numbers(".2f", "mean staleness", "virtual staleness"),
        *numbers(".1f", "test error", "virtual test error", unit="%"),
        *numbers("d", "failed", "virtual failed", "seeds"),
    )
    rows = [
        [arm.name, *np.mean(arm.pairs("staleness"), axis=0), *(100 * np.mean(arm.pairs("test_error"), axis=0))]
        + [*np.sum(np.array(arm.pairs("test_error")) > FAILED_ERROR, axis=0), len(arm.pairs("test_error"))]
        for arm in arms
    ]
    title = f"Real trainings of each arm, means over the seeds, λ = n = {NUM_REAL_LEARNERS}"
    timed = [real_clusters.pair(arm.name, arm.runs.uncontended(), "rate") for arm in arms if arm.runs.uncontended()]
    return [
        Table(title, columns, rows, real_clusters.LEVEL),
        real_clusters.timing_table("throughput", "gradients/s", timed),
    ]


def notes(trainings: RateTrainings) -> list[str]:
    """Returns the sentences for the report."""
    return [
        f"No synchronous run fails up to the rate {trainings.largest_stable_rate:g} of the grid, the largest such rate."
        " A run has failed when it gets more than half of the test examples wrong.",
    ]


def _training_table(title: str, cases: Sequence[RateTraining]) -> Table:
    """Returns a table of the test error and training loss of cases."""
    columns = (
        *texts("updates from"),
        *numbers("d", "n"),
        *texts("arm"),
        *numbers("g", "α₀"),
        *texts("steps"),
        *numbers(".2f", "mean staleness"),
        *numbers(".2f", "test error", "± SE of seeds", "± SE of the test set", unit="%"),
        *numbers(".3f", "training loss"),
        *numbers("d", "failed", "seeds"),
    )
    rows = [
        [case.mode, case.splits, case.arm, case.rate, case.shape, case.staleness, 100 * case.error]
        + [100 * standard_error(case.errors), 100 * accuracy_standard_error(case.error, NUM_TEST_EXAMPLES)]
        + [float(np.mean(case.losses)), case.num_failed, len(case.errors)]
        for case in cases
    ]
    return Table(title, columns, rows)


def _theory_table(taus: Sequence[int]) -> Table:
    """Returns the largest stable rates of a quadratic with both momentum and staleness."""
    columns = (
        *numbers("d", "τ"),
        *numbers(".4f", "largest stable rate", "largest α₀ with α₀/τ", "over that without staleness"),
    )
    fresh = quadratic.largest_stable_momentum_rate(0, MOMENTUM)
    rows = []
    for tau in taus:
        rate = quadratic.largest_stable_momentum_rate(tau, MOMENTUM)
        rows.append([tau, rate, rate * max(tau, 1), rate * max(tau, 1) / fresh])
    return Table(f"Quadratic with curvature 1 and momentum {MOMENTUM:g}, exact", columns, rows)
