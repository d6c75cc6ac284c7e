"""The experiment on asynchronous and synchronous SGD: verdicts on given results, real schedules, a broken rule."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.async_vs_sync.cases import (
    ALPHAS,
    Mode,
    TrainedArm,
    TrainingFigures,
    predicted_ratio,
)
from ps_trainer.experiments.async_vs_sync.experiment import QUICK_RATES, RATES, AsyncVsSync, VirtualTraining
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.harness.tables import LowerBound
from ps_trainer.simulation.rules import schedule_table, update_per_push
from ps_trainer.simulation.rules.base import PushOutcome
from tests.experiments.executed import drawn, planned

EXAMPLES = {Mode.ASYNC: 3000, Mode.SYNC_SAME: 2500, Mode.SYNC_GLOBAL: 2000}


class InPairs(update_per_push.Async):
    """Broken `async`: a worker that has pushed idles until another worker has pushed too."""

    def __init__(self, options, cluster):
        super().__init__(options, cluster)
        self._idle = []

    def push(self, worker, version):
        self.version += 1
        self._idle.append(worker)
        resumed = self._idle if len(self._idle) == 2 else []
        self._idle = [] if resumed else self._idle
        return PushOutcome(self.version - 1, resumed)


def figures_as_claimed(run):
    """The figures of a run if every claim were true."""
    settings = run.settings
    mode, alpha = settings.mode, settings.alpha
    if mode == "rates":
        ratio = predicted_ratio(settings.n, alpha)
        return {"async_rate": 10 * ratio, "sync_rate": 10.0, "staleness": settings.n - 1.0}
    wait = {f"{one:g}": 1 + one if mode != Mode.ASYNC else 1.0 for one in (ALPHAS if alpha is None else [alpha])}
    examples = EXAMPLES[mode] + 10 * run.seed
    secs = {key: examples * factor for key, factor in wait.items()}
    return {"rate": 0.2, "examples": examples, "secs": secs, "is_reached": True, "losses": [2.0, 1.0, 0.3]}


def results_of(runs, figures_of=figures_as_claimed):
    return Results(RunResult(run, SimpleNamespace(**figures_of(run)), 1.0, None, None) for run in runs)


def findings(results):
    """Findings on the claims about virtual time."""
    experiment = AsyncVsSync()
    checked = experiment.analyse(results).checked
    return {check.claim.key: check.finding for check in checked if not check.claim.key.startswith("real_")}


def virtual_runs(quick, seeds):
    return planned(AsyncVsSync(), seeds, quick=quick, level=Level.VIRTUAL)


def full_runs():
    return virtual_runs(quick=False, seeds=range(3))


def rate_runs():
    return [run for run in virtual_runs(True, [0]) if run.settings.mode == "rates"]


@pytest.mark.parametrize("quick", [False, True])
def test_results_as_claimed_confirm_all_claims(quick):
    results = results_of(virtual_runs(quick, range(1 if quick else 3)))
    assert set(findings(results).values()) == {ClaimFinding.OK}
    assert drawn(AsyncVsSync().plots(results)) == ["throughput", "losses"]


@pytest.mark.parametrize(
    ("claim", "mode", "change"),
    [
        ("examples", Mode.SYNC_SAME, lambda f: {"examples": 2 * f["examples"]}),
        ("examples_global", Mode.SYNC_GLOBAL, lambda f: {"examples": 2 * f["examples"]}),
        ("time_even", Mode.SYNC_SAME, lambda f: {"secs": {key: 2 * secs for key, secs in f["secs"].items()}}),
        ("time_uneven", Mode.SYNC_SAME, lambda f: {"secs": {key: secs / 2 for key, secs in f["secs"].items()}}),
    ],
)
def test_contrary_results_refute_a_claim(claim, mode, change):
    def figures(run):
        given = figures_as_claimed(run)
        return given | (change(given) if run.settings.mode == mode else {})

    assert findings(results_of(full_runs(), figures))[claim] is ClaimFinding.REFUTED


@pytest.mark.parametrize(
    ("mode", "finding", "text"),
    [(Mode.ASYNC, ClaimFinding.OK, "≥ "), (Mode.SYNC_GLOBAL, ClaimFinding.UNDECIDED, "≤ ")],
)
def test_a_seed_that_gives_up_makes_the_examples_a_bound(mode, finding, text):
    def figures(run):
        is_lost = run.settings.mode == mode and run.seed < 2
        return figures_as_claimed(run) | ({"is_reached": False} if is_lost else {})

    checked = AsyncVsSync().analyse(results_of(full_runs(), figures)).checked
    check = next(one for one in checked if one.claim.key == "examples_global")
    assert check.finding is finding
    assert f": {text}" in check.text


def throughput():
    executed = results_of(rate_runs(), lambda run: AsyncVsSync().execute(run, None).figures.as_json())
    others = results_of(run for run in virtual_runs(True, [0]) if run.settings.mode != "rates")
    return findings(Results([*executed, *others]))["throughput"]


def test_schedules_have_the_predicted_throughput_and_those_of_a_broken_rule_do_not(monkeypatch):
    assert throughput() is ClaimFinding.OK
    monkeypatch.setitem(schedule_table.RULES, "async", InPairs)
    assert throughput() is ClaimFinding.REFUTED


@pytest.mark.parametrize("quick", [False, True])
def test_pilot_runs_choose_each_rate_on_seeds_that_no_claim_is_judged_on(quick):
    experiment = AsyncVsSync()
    seeds = range(experiment.num_quick_seeds if quick else experiment.num_seeds)
    trainings = [run for run in virtual_runs(quick, seeds) if run.settings.mode != "rates"]
    pilots = {run: experiment.needed_by(run) for run in trainings}
    assert len({pilot.key for pilot in pilots.values()}) == len(trainings) / len(seeds) == (4 if quick else 8)
    for run, pilot in pilots.items():
        assert pilot.settings.training == run.settings
        assert not set(pilot.settings.pilot_seeds) & set(seeds)
        assert pilot.settings.rates == (QUICK_RATES[run.settings.mode] if quick else RATES)


def test_a_training_that_misses_the_target_is_no_choice_of_a_pilot_run():
    examples = {"rate": 0.2, "examples": 900, "secs": {}, "losses": []}
    reached, lost = (TrainingFigures(is_reached=is_reached, **examples) for is_reached in (True, False))
    assert (VirtualTraining().cost_of(reached), VirtualTraining().cost_of(lost)) == (900, None)


def test_seeds_that_disagree_leave_the_examples_undecided():
    def figures(run):
        is_noisy = run.settings.mode == Mode.ASYNC and run.seed == 0
        return figures_as_claimed(run) | ({"examples": 1000} if is_noisy else {})

    assert findings(results_of(full_runs(), figures))["examples_global"] is ClaimFinding.UNDECIDED


def test_times_of_an_arm_that_gives_up_are_lower_bounds():
    figures = {"examples": 900, "secs": {"0.05": 2.0}, "is_reached": False}
    run = Run(key="k", level=Level.VIRTUAL, settings=SimpleNamespace())
    arm = TrainedArm(Results([RunResult(run, SimpleNamespace(**figures), 1.0, None, None)]))
    assert arm.mean_secs(0.05) == LowerBound(pytest.approx(2.0))
    assert arm.cells("examples")[0] == LowerBound(900.0)


@pytest.mark.parametrize("mode", [Mode.ASYNC, Mode.SYNC_SAME])
def test_real_runs_count_examples_and_virtual_time_alike(mode):
    run = next(run for run in virtual_runs(True, [0]) if run.settings.mode == mode)
    figures = VirtualTraining().train(dataclasses.replace(run.settings, n=2), 0.4, seed=0)
    assert figures.is_reached
    (alpha, secs), *_ = figures.secs.items()
    assert alpha == "0.05"
    # Two workers take 32 examples each in a step of about 100 ms.
    assert secs == pytest.approx(figures.examples / (2 * 32) * 0.1, rel=0.1)
    assert figures.examples % (32 if mode == Mode.ASYNC else 64) == 0
