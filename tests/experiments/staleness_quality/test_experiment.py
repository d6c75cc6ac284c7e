"""The experiment on staleness and quality: its claims hold, and fail for schedules that are broken on purpose."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.staleness_quality.cases import FIXED_RATE, Kind, select, trainings_of
from ps_trainer.experiments.staleness_quality.claims import depth_measures
from ps_trainer.experiments.staleness_quality.experiment import RAMP_UPDATES, StalenessQuality
from ps_trainer.simulation import given_staleness
from tests.experiments.executed import drawn


def figures_as_claimed(run):
    """The figures of a run if every claim were true."""
    settings = run.settings
    tau = settings.tau
    if settings.model == "quadratic":
        exact = StalenessQuality().execute(run, None).figures.rate if settings.kind == Kind.CONSTANT else 0
        return {"rate": exact or 2.0 / (1 + tau)}
    slope = {"sgd": 0.05, "adagrad": 0.02, "momentum": 0.2, "adam": 0.1, "rmsprop": 0.1}[settings.optimizer]
    updates = 50 * (1 + slope * tau * (1 + settings.depth)) * max(1.0, FIXED_RATE / settings.lr)
    if settings.ramp is not None:
        return {"target_version": None, "accuracy": 0.95 if settings.ramp else 0.3}
    return {"target_version": round(updates), "accuracy": 0.9}


def results_of(runs, figures_of):
    return Results(RunResult(run, SimpleNamespace(**figures_of(run)), 1.0, None, None) for run in runs)


def findings(results):
    experiment = StalenessQuality()
    checked = experiment.analyse(results).checked
    return {check.claim.key: check.finding for check in checked}


def quadratic_runs():
    return [run for run in StalenessQuality().runs([0], quick=True) if run.settings.model == "quadratic"]


def executed(run):
    return StalenessQuality().execute(run, None).figures.as_json()


def test_results_as_claimed_confirm_all_claims():
    runs = StalenessQuality().runs(range(2), quick=False)
    results = results_of(runs, figures_as_claimed)
    assert set(findings(results).values()) == {ClaimFinding.OK}
    assert drawn(StalenessQuality().plots(results)) == ["boundary", "grid", "updates", "depth"]


def test_the_quick_form_names_the_claims_that_it_cannot_test():
    found = findings(results_of(StalenessQuality().runs([0], quick=True), figures_as_claimed))
    assert [key for key, finding in found.items() if finding is ClaimFinding.NOT_TESTABLE] == ["adagrad"]


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("slower", lambda s: {"target_version": 100 - s.tau} if s.depth == 1 else {}),
        ("depth", lambda s: {"target_version": 100 + s.tau * (4 - s.depth)}),
        ("ramp", lambda s: {"accuracy": 0.5} if s.ramp == RAMP_UPDATES else {}),
        ("adagrad", lambda s: {"target_version": 500} if (s.optimizer, s.tau) == ("adagrad", 16) else {}),
    ],
)
def test_contrary_runs_refute_a_claim(claim, change):
    def figures(run):
        given = figures_as_claimed(run)
        return given if run.settings.model == "quadratic" else given | change(run.settings)

    found = findings(results_of(StalenessQuality().runs([0], quick=False), figures))
    assert found[claim] is ClaimFinding.REFUTED


def test_on_the_quadratic_the_rates_are_exact_and_the_geometric_ones_larger():
    rates = {(run.settings.kind, run.settings.tau): executed(run)["rate"] for run in quadratic_runs()}
    assert rates[Kind.CONSTANT, 4] == pytest.approx(0.3473, rel=0.01)
    assert rates["geometric", 16] > 3 * rates[Kind.CONSTANT, 16]


def test_gradients_one_update_older_than_stated_refute_the_exact_rate(monkeypatch):
    right = given_staleness.constant
    monkeypatch.setattr(given_staleness, "constant", lambda tau, n, **options: right(tau + 1, n, **options))
    results = results_of(StalenessQuality().runs([0], quick=True), lambda run: figures_as_claimed(run))
    assert findings(results)["exact"] is ClaimFinding.REFUTED


def test_gradients_that_are_never_stale_refute_the_boundary(monkeypatch):
    fresh = lambda tau, n, *, seed=0, ramp_updates=0: given_staleness.constant(0, n)  # noqa: E731
    monkeypatch.setattr(given_staleness, "uniform", fresh)
    runs = list(StalenessQuality().runs([0], quick=True))
    results = results_of(
        runs, lambda run: executed(run) if run.settings.kind == "uniform" and run in quadratic_runs()
        else figures_as_claimed(run)
    )  # fmt: skip
    found = findings(results)
    assert (found["boundary"], found["exact"]) == (ClaimFinding.REFUTED, ClaimFinding.OK)


def short(tau):
    """A training of at most 150 updates, which suffice at this rate without staleness."""
    runs = StalenessQuality().runs([0], quick=False)
    run = next(
        r
        for r in runs
        if r.settings.tau == tau and r.settings.kind == Kind.CONSTANT and r.settings.model != "quadratic"
    )
    return dataclasses.replace(run, settings=dataclasses.replace(run.settings, lr=0.2, num_updates=150))


def test_stale_real_gradients_take_longer_and_fresh_ones_do_not(monkeypatch):
    fresh, stale = executed(short(0)), executed(short(16))
    assert fresh["target_version"] < 120
    assert stale["target_version"] is None
    right = given_staleness.constant
    monkeypatch.setattr(given_staleness, "constant", lambda tau, n, **options: right(0, n, **options))
    assert executed(short(16)) == fresh


def test_a_model_that_fails_is_infinitely_slow_and_two_that_fail_are_not_compared():
    def figures(run):
        settings, given = run.settings, figures_as_claimed(run)
        lost = settings.model != "quadratic" and settings.tau == 32 and settings.depth in lost_depths
        return given | ({"target_version": None} if lost else {})

    runs = StalenessQuality().runs([0], quick=False)
    at_fixed = {depth: {"kind": Kind.CONSTANT, "depth": depth, "lr": FIXED_RATE} for depth in (0, 4)}

    def measured():
        cases = trainings_of(Results(r for r in results_of(runs, figures) if r.run.settings.model != "quadratic"))
        both = [case for fields in at_fixed.values() for case in select(cases, **fields)]
        return {measure.case: measure.value for measure in depth_measures(both)}

    lost_depths = (4,)
    assert measured()["τ=32"] == math.inf
    lost_depths = (0,)
    assert measured()["τ=32"] == 0
    lost_depths = (0, 4)
    assert set(measured()) == {"τ=4", "τ=8", "τ=16"}


def test_full_runs_have_the_grid_and_all_seeds():
    runs = StalenessQuality().runs(range(10), quick=False)
    assert len({run.key for run in runs}) == len(runs)
    cases = trainings_of(
        Results(r for r in results_of(runs, figures_as_claimed) if r.run.settings.model != "quadratic")
    )
    grid = select(cases, kind=Kind.CONSTANT)
    assert {case.tau for case in grid} == {0, 1, 2, 4, 8, 16, 32}
    assert len({case.lr for case in grid}) == 7
    assert {len(case.updates) for case in cases} == {10}
