"""The experiment on staleness-aware rates: verdicts on given results, and real runs of a broken arm."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.staleness_aware_rate.cases import (
    NEAR_RATE,
    SMALL_RATE,
    Rate,
    RateTraining,
    Updates,
    excess,
)
from ps_trainer.experiments.staleness_aware_rate.experiment import StalenessAwareRate
from ps_trainer.experiments.toolkit import per_gradient
from ps_trainer.simulation.replay import shared_parameters
from tests.experiments.executed import drawn


def figures_as_claimed(run):
    """The figures of a run if every claim were true."""
    settings = run.settings
    fails = settings.lr > 2 * NEAR_RATE or (settings.mode == Updates.SOFTSYNC and settings.arm == Rate.FULL)
    fails = fails and settings.splits != 1
    return {
        "test_error": 0.9 if fails else 0.05 + 0.001 * run.seed,
        "loss": 0.1,
        "losses": [1.0, 0.1],
        "staleness": 1.0,
    }


def results_of(runs, figures_of=figures_as_claimed):
    return Results(RunResult(run, SimpleNamespace(**figures_of(run)), 1.0, None, None) for run in runs)


def findings(results):
    """Findings on the claims about virtual time."""
    experiment = StalenessAwareRate()
    checked = experiment.analyse(results).checked
    return {check.claim.key: check.finding for check in checked if not check.claim.key.startswith("real_")}


def virtual_runs(quick, seeds):
    return [run for run in StalenessAwareRate().runs(seeds, quick=quick) if run.level is Level.VIRTUAL]


def full_runs():
    return virtual_runs(quick=False, seeds=range(3))


@pytest.mark.parametrize("quick", [False, True])
def test_results_as_claimed_confirm_all_claims(quick):
    results = results_of(virtual_runs(quick, range(1 if quick else 3)))
    assert set(findings(results).values()) == {ClaimFinding.OK}
    assert drawn(StalenessAwareRate().plots(results)) == ["losses", "errors"]


@pytest.mark.parametrize(
    ("claim", "error_of"),
    [
        ("fails", lambda s: 0.05 if s.lr == NEAR_RATE else None),
        ("aware", lambda s: 0.12 if s.lr == NEAR_RATE and s.arm == Rate.BY_STALENESS else None),
        ("fails_small", lambda s: 0.05 if s.lr == SMALL_RATE else None),
        ("aware_small", lambda s: 0.12 if s.splits == 8 and s.arm == Rate.BY_STALENESS else None),
        ("global", lambda s: 0.12 if s.splits == 8 and s.arm == Rate.BY_SPLITS else None),
        ("batch", lambda s: 0.12 if s.mode == Updates.SINGLE else None),
    ],
)
def test_contrary_errors_refute_a_claim(claim, error_of):
    def figures(run):
        given, error = figures_as_claimed(run), error_of(run.settings)
        return given if error is None else given | {"test_error": error}

    assert findings(results_of(full_runs(), figures))[claim] is ClaimFinding.REFUTED


def test_without_a_rate_near_the_limit_two_claims_are_not_testable():
    def figures(run):
        fails = run.settings.mode == Updates.SYNC and run.settings.lr > SMALL_RATE
        return figures_as_claimed(run) | ({"test_error": 0.9} if fails else {})

    found = findings(results_of(full_runs(), figures))
    assert (found["fails"], found["aware"]) == (ClaimFinding.NOT_TESTABLE, ClaimFinding.NOT_TESTABLE)
    assert found["aware_small"] is ClaimFinding.OK


def training_of(*errors):
    run = Run(key="k", level=Level.VIRTUAL, settings=SimpleNamespace())
    return RateTraining(Results(RunResult(run, SimpleNamespace(test_error=error), 1.0, None, None) for error in errors))


def test_the_standard_error_has_the_parts_of_seeds_and_test_set():
    case = training_of(0.10, 0.14)
    baseline = training_of(0.04, 0.06)
    # Seeds: for two values s²/n is a quarter of the squared difference; the test set has 360 digits.
    variance = 0.04**2 / 4 + 0.02**2 / 4 + 0.05 * 0.95 / 360
    assert excess(case, baseline) == pytest.approx((0.12 - 0.05) / variance**0.5)


def test_full_runs_have_the_papers_learners_and_splits():
    soft = [run.settings for run in full_runs() if run.settings.mode == Updates.SOFTSYNC]
    assert {settings.learners for settings in soft} == {30}
    assert {settings.splits for settings in soft} == {1, 8, 15, 30}
    assert len({run.key for run in full_runs()}) == len(full_runs())


def short(mode, arm):
    """Six epochs of eight learners with a small α₀."""
    runs = StalenessAwareRate().runs([0], quick=True)
    run = next(
        r
        for r in runs
        if (r.settings.mode, r.settings.arm, r.settings.lr) == (mode, arm, SMALL_RATE) and r.settings.splits != 1
    )
    return dataclasses.replace(run, settings=dataclasses.replace(run.settings, epochs=6))


def test_real_gradients_divided_by_their_staleness_converge_and_with_a_broken_division_they_do_not(monkeypatch):
    def loss():
        return StalenessAwareRate().execute(short(Updates.SOFTSYNC, Rate.BY_STALENESS), None).figures.loss

    tamed = loss()
    monkeypatch.setattr(per_gradient.PerGradient, "gradient_to_push", shared_parameters.Mean.gradient_to_push)
    assert 1.5 * tamed < loss()
