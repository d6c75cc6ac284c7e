"""The experiment on staleness-aware rates: verdicts on given results, and real runs of a broken arm."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.staleness_aware_rate.cases import (
    NEAR_RATE,
    SMALL_RATE,
    Rate,
    RateSettings,
    TunedSettings,
    Updates,
    difference,
)
from ps_trainer.experiments.staleness_aware_rate.experiment import StalenessAwareRate
from ps_trainer.experiments.toolkit import per_gradient
from ps_trainer.experiments.toolkit.pilots import PILOT_SEEDS, PilotSettings
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.simulation.replay import shared_parameters
from tests.experiments.executed import drawn

TUNED = ["tuned", "tuned_dispersed", "cnn_fails", "cnn_aware"]


def figures_as_claimed(run):
    """The figures of a run if every claim were true."""
    settings = run.settings
    if isinstance(settings, PilotSettings):
        return {"rate": settings.rates[0], "cost": 0.1, "costs": {}}
    if isinstance(settings, TunedSettings):
        if settings.arm != settings.rate_of and settings.mode == Updates.SOFTSYNC:
            return {"lr": 0.1, "test_error": 0.9, "loss": 2.0}
        is_worse = (settings.arm, settings.shape) == (Rate.FULL, Shape.EXPONENTIAL)
        return {"lr": 0.1, "test_error": 0.05 + 0.001 * run.seed + (0.02 if is_worse else 0), "loss": 0.1}
    fails = settings.lr > 2 * NEAR_RATE or (settings.mode == Updates.SOFTSYNC and settings.arm == Rate.FULL)
    fails = fails and settings.splits != 1
    is_worse = (settings.arm, settings.shape) == (Rate.BY_SPLITS, Shape.EXPONENTIAL)
    return {
        "test_error": 0.9 if fails else 0.05 + 0.001 * run.seed + (0.01 if is_worse else 0),
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


@pytest.mark.parametrize(("quick", "untested"), [(False, []), (True, [*TUNED, "dispersed"])])
def test_results_as_claimed_confirm_all_claims(quick, untested):
    results = results_of(virtual_runs(quick, range(1 if quick else 3)))
    found = findings(results)
    assert [key for key, finding in found.items() if finding is not ClaimFinding.OK] == untested
    assert {found[key] for key in untested} <= {ClaimFinding.NOT_TESTABLE}
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
        ("dispersed", lambda s: 0.01 if (s.arm, s.shape) == (Rate.BY_SPLITS, Shape.EXPONENTIAL) else None),
        ("tuned", lambda s: 0.12 if s.mode == Updates.SYNC else None),
        ("tuned_dispersed", lambda s: 0.01 if (s.arm, s.shape) == (Rate.FULL, Shape.EXPONENTIAL) else None),
        ("cnn_fails", lambda s: 0.05 if s.arm != s.rate_of else None),
        ("cnn_aware", lambda s: 0.12 if (s.model, s.arm) == ("cnn", Rate.BY_STALENESS) else None),
    ],
)
def test_contrary_errors_refute_a_claim(claim, error_of):
    def figures(run):
        given, settings = figures_as_claimed(run), run.settings
        if isinstance(settings, PilotSettings) or isinstance(settings, TunedSettings) != (claim in TUNED):
            return given
        error = error_of(settings)
        return given if error is None else given | {"test_error": error}

    assert findings(results_of(full_runs(), figures))[claim] is ClaimFinding.REFUTED


def test_without_a_rate_near_the_limit_two_claims_are_not_testable():
    def figures(run):
        settings = run.settings
        fails = isinstance(settings, RateSettings) and settings.mode == Updates.SYNC and settings.lr > SMALL_RATE
        return figures_as_claimed(run) | ({"test_error": 0.9} if fails else {})

    found = findings(results_of(full_runs(), figures))
    assert (found["fails"], found["aware"]) == (ClaimFinding.NOT_TESTABLE, ClaimFinding.NOT_TESTABLE)
    assert found["aware_small"] is ClaimFinding.OK


def test_the_difference_of_two_errors_is_that_of_the_same_seeds():
    measure = difference("n=8", [0.10, 0.14, 0.12], [0.09, 0.11, 0.10])
    # 0.01, 0.03 and 0.02: mean 0.02, standard error 0.01/√3, 2 degrees of freedom.
    assert measure.value == pytest.approx(0.02)
    assert measure.interval == pytest.approx((0.02 - 2.920 * 0.01 / 3**0.5, 0.02 + 2.920 * 0.01 / 3**0.5))


@pytest.mark.parametrize(("spread", "finding"), [(0.0, ClaimFinding.OK), (0.05, ClaimFinding.UNDECIDED)])
def test_equal_means_with_wide_intervals_do_not_show_that_arms_end_alike(spread, finding):
    def figures(run):
        given, settings = figures_as_claimed(run), run.settings
        if isinstance(settings, RateSettings) and settings.mode == Updates.SINGLE:
            return given | {"test_error": given["test_error"] + spread * (run.seed - 1)}
        return given

    assert findings(results_of(full_runs(), figures))["batch"] is finding


def test_tuned_arms_take_the_rate_with_the_smallest_loss_on_pilot_seeds(monkeypatch):
    trained = []

    def train(settings, seed):
        trained.append((settings.lr, seed))
        loss = None if settings.lr > 0.3 else (settings.lr - 0.08) ** 2
        return SimpleNamespace(loss=loss, test_error=0.1), SimpleNamespace(records=lambda: ())

    monkeypatch.setattr("ps_trainer.experiments.staleness_aware_rate.experiment._train", train)
    experiment = StalenessAwareRate()
    run = next(run for run in full_runs() if isinstance(run.settings, TunedSettings))
    search = experiment.needed_by(run)
    needed = experiment.execute(search, None).figures
    assert {seed for _, seed in trained} == set(PILOT_SEEDS)
    assert not set(PILOT_SEEDS) & set(range(experiment.num_seeds))
    figures = experiment.execute(run, None, needed).figures
    assert figures.lr == 0.08
    assert trained[-1] == (0.08, run.seed)


def test_all_arms_of_the_cnn_have_the_rate_that_is_best_for_rates_by_staleness():
    arms = {
        (run.settings.mode, run.settings.arm): StalenessAwareRate().needed_by(run)
        for run in full_runs()
        if isinstance(run.settings, TunedSettings) and run.settings.model == "cnn"
    }
    assert len(arms) == 3
    assert set(map(repr, arms.values())) == {repr(arms[Updates.SOFTSYNC, Rate.BY_STALENESS])}
    assert arms[Updates.SYNC, Rate.FULL].settings.training.arm is Rate.BY_STALENESS


def test_full_runs_have_the_papers_learners_and_splits():
    virtual = [run.settings for run in full_runs() if isinstance(run.settings, RateSettings)]
    soft = [settings for settings in virtual if settings.mode == Updates.SOFTSYNC]
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
