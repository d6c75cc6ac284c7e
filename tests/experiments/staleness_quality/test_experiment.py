"""The experiment on staleness and quality: its claims hold, and fail for schedules that are broken on purpose."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.harness.tables import LowerBound
from ps_trainer.experiments.harness.targets import Samples
from ps_trainer.experiments.staleness_quality.claims import rising_share
from ps_trainer.experiments.staleness_quality.experiment import PILOT_SEEDS, StalenessQuality
from ps_trainer.experiments.staleness_quality.records import (
    Kind,
    PilotPair,
    QuadraticSettings,
    RampSearchFigures,
    RampSearchSettings,
    RampSettings,
    RateChoice,
    RateSearchFigures,
    RateSearchSettings,
    StaleTrainingSettings,
)
from ps_trainer.experiments.staleness_quality.searches import is_tried_out
from ps_trainer.experiments.toolkit import quadratic
from ps_trainer.simulation import given_staleness
from tests.experiments.executed import drawn

SLOPES = {"sgd": 0.05, "adagrad": 0.02, "momentum": 0.2, "adam": 0.1, "rmsprop": 0.3}


def as_claimed(run):
    """The figures of a run if every claim were true."""
    settings = run.settings
    match settings:
        case QuadraticSettings():
            exact = quadratic.largest_stable_rate(settings.tau)
            in_mean_square = quadratic.largest_stable_geometric_rate(settings.tau)
            return SimpleNamespace(rate=exact, mean_square_rate=in_mean_square)
        case RateSearchSettings():
            return RateSearchFigures(updates={str(tau): [[100], [50], [None]] for tau in settings.taus})
        case RampSearchSettings():
            return RampSearchFigures(
                pairs={"sgd 0.1": PilotPair(optimizer="sgd", lr=0.1, without=[0.2], with_ramp=[0.95])}
            )
        case RampSettings():
            return SimpleNamespace(optimizer="sgd", lr=0.1, accuracy=0.95 if settings.ramp else 0.3)
    slowdown = 1 + SLOPES[settings.optimizer] * settings.tau * (1 + settings.depth)
    # Nearly the same for all seeds, as an interval is judged.
    return SimpleNamespace(lr=0.05, cap=3000, target_version=round((100 + run.seed % 2) * slowdown), accuracy=0.9)


def results_of(figures_of=as_claimed, *, quick=False, seeds=range(4)):
    runs = StalenessQuality().runs(seeds, quick=quick)
    return Results(RunResult(run, figures_of(run), 1.0, None, None) for run in runs)


def findings(results):
    return {check.claim.key: check.finding for check in StalenessQuality().analyse(results).checked}


def texts_of(results):
    return {check.claim.key: check.text for check in StalenessQuality().analyse(results).checked}


def executed(run, needed=None):
    return StalenessQuality().execute(run, None, needed).figures


def test_results_as_claimed_confirm_all_claims():
    results = results_of()
    assert set(findings(results).values()) == {ClaimFinding.OK}
    assert drawn(StalenessQuality().plots(results)) == ["boundary", "grid", "updates", "depth", "optimizers"]


def test_the_quick_form_names_the_claims_that_it_cannot_test():
    found = findings(results_of(quick=True, seeds=[0]))
    untested = [key for key, finding in found.items() if finding is ClaimFinding.NOT_TESTABLE]
    assert untested == ["ramp", "depth", "depth_of_perceptrons", "adagrad", "sgd", "rmsprop"]


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("slower", lambda s: {"target_version": 100 - s.tau} if s.depth == 1 else {}),
        ("depth", lambda s: {"target_version": 100 + s.tau * (4 - s.depth)}),
        ("depth_of_perceptrons", lambda s: {"target_version": 100 + s.tau * (4 - s.depth)}),
        ("depth_at_one_rate", lambda s: {"target_version": 100 + s.tau * (4 - s.depth)}),
        ("adagrad", lambda s: {"target_version": 1500} if (s.optimizer, s.tau) == ("adagrad", 16) else {}),
        ("sgd", lambda s: {"target_version": 1500} if s.tau == 16 and s.choice == RateChoice.FASTEST else {}),
        ("rmsprop", lambda s: {"target_version": 110} if (s.optimizer, s.tau) == ("rmsprop", 16) else {}),
    ],
)
def test_contrary_trainings_refute_a_claim(claim, change):
    def figures(run):
        given = as_claimed(run)
        is_changed = isinstance(run.settings, StaleTrainingSettings)
        changed = change(run.settings) if is_changed else {}
        if claim == "sgd" and changed and run.settings.optimizer != "sgd":
            changed = {"target_version": 200}
        return SimpleNamespace(**(vars(given) | changed)) if changed else given

    assert findings(results_of(figures))[claim] is ClaimFinding.REFUTED


def ramps_that_reach(count):
    def figures(run):
        given = as_claimed(run)
        if isinstance(run.settings, RampSettings) and run.settings.ramp and run.seed >= count:
            given.accuracy = 0.5
        return given

    return figures


def test_a_ramp_that_rescues_few_seeds_is_refuted_and_one_that_rescues_half_is_undecided():
    results = [results_of(ramps_that_reach(count), seeds=range(10)) for count in (1, 5, 10)]
    assert [findings(one)["ramp"] for one in results] == [
        ClaimFinding.REFUTED,
        ClaimFinding.UNDECIDED,
        ClaimFinding.OK,
    ]


def test_where_most_seeds_need_no_ramp_the_claim_is_not_tested():
    def figures(run):
        given = as_claimed(run)
        if isinstance(run.settings, RampSettings):
            given.accuracy = 0.95
        return given

    assert findings(results_of(figures))["ramp"] is ClaimFinding.NOT_TESTABLE


def test_the_ramp_is_judged_where_it_rescues_most_pilot_seeds():
    pairs = {
        "a": PilotPair(optimizer="sgd", lr=0.1, without=[0.95, 0.3], with_ramp=[0.95, 0.3]),
        "b": PilotPair(optimizer="momentum", lr=0.2, without=[0.95, 0.3], with_ramp=[0.95, 0.95]),
        "c": PilotPair(optimizer="sgd", lr=0.3, without=[0.3, 0.3], with_ramp=[0.3, 0.95]),
    }
    assert RampSearchFigures(pairs=pairs).best() is pairs["b"]


def test_gradients_one_update_older_than_stated_refute_the_exact_rate(monkeypatch):
    right = given_staleness.constant
    monkeypatch.setattr(given_staleness, "constant", lambda tau, n, **options: right(tau + 1, n, **options))
    found = findings(results_of(lambda run: executed(run) if is_quadratic(run) else as_claimed(run), quick=True))
    assert found["exact"] is ClaimFinding.REFUTED


def is_quadratic(run, *kinds):
    return isinstance(run.settings, QuadraticSettings) and (not kinds or run.settings.kind in kinds)


def test_on_the_quadratic_the_measured_rates_are_the_exact_ones():
    results = results_of(lambda run: executed(run) if is_quadratic(run) else as_claimed(run), quick=True, seeds=[0])
    found = findings(results)
    assert {found[key] for key in ("exact", "exact_geometric", "boundary_geometric")} == {ClaimFinding.OK}


@pytest.mark.parametrize(
    ("kind", "claims"),
    [(Kind.UNIFORM, ["boundary"]), (Kind.GEOMETRIC, ["exact_geometric", "boundary_geometric"])],
)
def test_gradients_that_are_never_stale_refute_the_boundary(monkeypatch, kind, claims):
    monkeypatch.setattr(given_staleness, kind, lambda tau, n, *, seed=0: given_staleness.constant(0, n))
    results = results_of(
        lambda run: executed(run) if is_quadratic(run, kind) else as_claimed(run), quick=True, seeds=[0]
    )
    refuted = [key for key, finding in findings(results).items() if finding is ClaimFinding.REFUTED]
    assert refuted == claims


def run_of(tau, choice=RateChoice.FIXED, kind=Kind.CONSTANT, depth=1):
    wanted = (kind, tau, depth, choice)
    for run in StalenessQuality().runs([0], quick=False):
        s = run.settings
        if isinstance(s, StaleTrainingSettings) and (s.kind, s.tau, s.depth, s.choice) == wanted:
            return run
    raise LookupError(wanted)


def searched(run, by_place):
    """The figures of a search that found these updates at the places of the rates, for every staleness."""
    settings = run.settings.searched
    updates = [[by_place.get(place)] for place in range(len(settings.rates))]
    return RateSearchFigures(updates={str(tau): updates for tau in settings.taus})


def test_stale_real_gradients_take_longer_and_fresh_ones_do_not(monkeypatch):
    # 0.2 is the fastest rate, and runs give up after 20 · 8 updates.
    runs = [run_of(tau, RateChoice.FASTEST) for tau in (0, 16)]
    needed = searched(runs[0], {runs[0].settings.searched.rates.index(0.2): 8})
    fresh, stale = (executed(run, needed) for run in runs)
    assert (fresh.lr, fresh.cap) == (0.2, 160)
    assert fresh.target_version < 140
    assert stale.target_version is None
    right = given_staleness.constant
    monkeypatch.setattr(given_staleness, "constant", lambda tau, n, **options: right(0, n, **options))
    assert executed(runs[1], needed) == fresh


@pytest.mark.parametrize(
    ("choice", "lr", "cap"),
    [(RateChoice.FIXED, 0.05, 40), (RateChoice.FRACTION, 0.1, 30), (RateChoice.FASTEST, 0.8, 40)],
)
def test_a_run_takes_its_rate_and_its_cap_from_the_search(choice, lr, cap):
    run = run_of(0, choice)
    rates = run.settings.searched.rates
    needed = searched(run, {rates.index(0.05): 4, rates.index(0.1): 3, rates.index(0.8): 2})
    figures = executed(run, needed)
    assert (figures.lr, figures.cap) == (lr, cap)


def test_a_search_trains_pilot_seeds_only_and_leaves_out_rates_above_one_where_all_gave_up():
    experiment = StalenessQuality()
    run = run_of(0)
    settings = dataclasses.replace(
        experiment.needed_by(run).settings, taus=(16,), rates=(0.2, 0.8, 1.6), pilot_seeds=PILOT_SEEDS[:1], cap=30
    )
    search = dataclasses.replace(experiment.needed_by(run), settings=settings)
    assert executed(search).updates == {"16": [[None], [None], [None]]}  # none reaches it, so nothing is known
    assert is_tried_out([[30, None], [None, None]])
    assert not is_tried_out([[30, None], [None, 40]])
    assert not set(PILOT_SEEDS) & set(range(experiment.num_seeds))


def test_the_fastest_rate_is_that_with_the_smallest_median():
    figures = RateSearchFigures(updates={"0": [[90, 80, 70], [50, 60, None], [40, None, None]], "8": [[None], [None]]})
    assert figures.fastest(0) == 1
    assert figures.median(0, 2) == math.inf
    assert figures.median(0, 7) == math.inf
    assert figures.fastest(8) == 0


def known(*values):
    return Samples(values, values)


LOST = Samples([math.inf] * 3, [10.0] * 3)


def test_a_slowdown_of_runs_that_gave_up_is_a_bound_and_never_infinite():
    (more,) = LOST.over(known(2.0, 2.0, 2.0), "τ=8")
    assert (more.sign, more.value, more.interval.high) == ("≥", 5.0, math.inf)
    assert "inf" not in str(more)
    (less,) = known(2.0, 2.0, 2.0).over(LOST, "τ=8")
    assert (less.sign, less.value, less.interval.low) == ("≤", 0.2, 0.0)
    assert LOST.over(LOST, "τ=8") == []


def test_the_median_is_known_as_long_as_most_runs_reach_the_target():
    some = Samples([2.0, 3.0, 4.0, math.inf], [2.0, 3.0, 4.0, 10.0])
    assert (some.is_open, some.median) == (False, 3.5)
    assert (some.percentile(50), some.percentile(90)) == (3.5, LowerBound(pytest.approx(8.2)))


def test_pairs_of_unknown_medians_are_no_evidence_of_a_rise():
    (measure,) = rising_share("constant", [known(1.0, 1.0), known(2.0, 2.0), Samples([math.inf] * 2, [9.0] * 2)])
    assert measure.value == 1.0
    (measure,) = rising_share("constant", [known(2.0), known(1.0), *[Samples([math.inf], [9.0])] * 2])
    assert measure.value == pytest.approx(4 / 5)  # of 6 pairs one falls, and one is unknown
    assert rising_share("constant", [LOST, LOST]) == []


def test_full_runs_have_all_kinds_depths_and_optimizers():
    runs = StalenessQuality().runs(range(10), quick=False)
    assert len({run.key for run in runs}) == len(runs)
    trained = [run.settings for run in runs if isinstance(run.settings, StaleTrainingSettings)]
    assert {one.tau for one in trained if one.kind == Kind.CONSTANT and one.depth == 1} == {0, 1, 2, 4, 8, 16, 32}
    assert {one.depth for one in trained if one.choice == RateChoice.FRACTION} == {0, 1, 2, 4}
    assert {one.optimizer for one in trained if one.choice == RateChoice.FASTEST} == set(SLOPES)
    assert all(isinstance(run.settings, Record) and np.isfinite(run.expected_secs) for run in runs)
