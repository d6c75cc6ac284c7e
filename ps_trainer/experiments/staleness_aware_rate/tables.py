"""The tables and the explanations of the experiment on staleness-aware learning rates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import quadratic, real
from ps_trainer.experiments.toolkit.statistics import accuracy_standard_error, standard_error

from .cases import MOMENTUM, NUM_REAL_LEARNERS, NUM_TEST_EXAMPLES, RateTraining, RateTrainings, RealArm, Updates

_NOTES = (
    "Why α₀/τ cannot restore what synchronous updates do at their limit: on a quadratic with momentum μ the largest"
    " stable rate is 2 (1 + μ) without staleness, but 1 − μ with a staleness of 1, which is what 1-softsync has and"
    " for which α₀/τ is α₀. For larger τ it falls nearly as 1/τ, so that the limit of α₀ with α₀/τ is much the same"
    " for all n: the rule does what it says for an α₀ that staleness 1 can stand, 38 times below the synchronous limit"
    " at μ = 0.9. The sources' α₀ = 0.001 is that of their single learner; how far below the limit of their network it"
    " lies was not measured here.",
    "A standard error is that of the difference of means between seeds, with that of the 360 test digits added:"
    " differences below about 2 % in test error are not seen.",
    "n-softsync with c = λ/n gradients per update makes n times as many updates per epoch as synchronous training;"
    " with α₀/n and α₀/τ the parameters move about as far per epoch.",
    "“α₀/τ of the rule” is `--update=staleness_aware`, which divides the optimizer's whole step, velocity included.",
)


def of_virtual_time(trainings: RateTrainings) -> list[Table]:
    """Test errors, and what a quadratic says of momentum and staleness; none without trainings."""
    by_mode = [case for case in trainings.cases if case.mode != Updates.SOFTSYNC]
    return [
        _training_table("Synchronous updates by learning rate, and one learner with the whole batch", by_mode),
        _training_table("n-softsync", trainings.soft),
        _theory_table(sorted({0, 1, *(case.splits for case in trainings.even)})),
    ][: None if trainings.cases else 0]


def of_real_clusters(arms: Sequence[RealArm]) -> list[Table]:
    """Both trainings of each arm, and the simulator's timing; none without runs."""
    columns = (
        *texts("learning rate"),
        *numbers(".2f", "mean staleness", "virtual staleness"),
        *numbers(".1f", "test error", "virtual test error", unit="%"),
    )
    rows = [
        [arm.name, *(one[name] * scale for name, scale in (("staleness", 1), ("test_error", 100)) for one in arm.both)]
        for arm in arms
    ]
    title = f"One real training of each arm, λ = n = {NUM_REAL_LEARNERS}"
    timed = [real.pair(arm.name, arm.runs.uncontended(), "rate") for arm in arms if arm.runs.uncontended()]
    return [
        Table(title, columns, rows, real.LEVEL),
        real.timing_table("throughput", "gradients/s", timed),
    ]


def notes(trainings: RateTrainings) -> list[str]:
    """Sentences for the report."""
    return [
        f"The largest rate of the grid up to which no synchronous run fails is {trainings.largest_stable_rate:g}. A"
        " run has failed when more than half of the test examples are wrong.",
        *_NOTES,
    ]


def _training_table(title: str, cases: Sequence[RateTraining]) -> Table:
    """Test error and training loss of cases."""
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
    """What a quadratic says of momentum and staleness together."""
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
