"""The experiment on cached reads: its claims hold, and fail for results and rules that contradict them."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.client_cache import cases, experiment
from ps_trainer.experiments.client_cache.cases import BOUNDS, CacheSettings, Problem, Reads
from ps_trainer.experiments.client_cache.experiment import PROBLEM_SETUPS, CachedReads, ClientCache
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.harness.tables import LowerBound
from ps_trainer.experiments.toolkit import virtual_run
from ps_trainer.experiments.toolkit.pilots import PilotSettings
from ps_trainer.simulation.rules import schedule_table, update_per_push
from tests.experiments.executed import drawn, findings_of, refuted
from tests.simulation.runs import scripted

TIMES = {Reads.BARRIER: 150.0, Reads.NONE: 80.0, Reads.FRESH: 75.0}
CACHED_TIMES = {0: 140.0, 1: 70.0, 3: 60.0, 7: 64.0, 15: 90.0}


class OneMore(update_per_push.SspCache):
    """Broken `ssp_cache`: a copy may be one step older than the bound allows."""

    def __init__(self, options, cluster):
        super().__init__(self.Options(staleness=options.staleness + 1), cluster)


def as_claimed(run):
    """The figures of a run if every claim were true."""
    settings = run.settings
    if isinstance(settings, PilotSettings):
        time = CACHED_TIMES.get(settings.training.bound, 100.0)
        return {"rate": 1.0, "cost": time, "costs": {"1": [time]}}
    is_cached = settings.reads == Reads.CACHED
    time = (CACHED_TIMES[settings.bound] if is_cached else TIMES[settings.reads]) * (1 + 0.01 * run.seed)
    return {
        "rate": 1.0,
        "is_reached": True,
        "time": time,
        "gradients": 1000 + 50 * (settings.bound or 0) + run.seed,
        "computes": (0.5 + 0.02 * (settings.bound or 0) if is_cached else 0.4) + 0.001 * run.seed,
        "pulls": 1.0,
        "age": settings.bound or 0,
        "times": [time / 2, time],
        "losses": [1.0, 0.1],
    }


def results_of(figures_of=as_claimed, *, quick=False):
    runs = ClientCache().runs(range(4), quick=quick)
    return Results(RunResult(run, SimpleNamespace(**figures_of(run)), 1.0, None, None) for run in runs)


@pytest.mark.parametrize("quick", [False, True])
def test_results_as_claimed_confirm_all_claims(quick):
    results = results_of(quick=quick)
    found = findings_of(ClientCache(), results)
    missing = {"quality", "interior", "cache"} if quick else set()  # it has no large bound, and no fresh reads
    assert found.keys() == {claim.key for claim in ClientCache.claims} - missing
    assert set(found.values()) == {ClaimFinding.OK}
    assert drawn(ClientCache().plots(results)) == ["times", "parts", "curves"]


def test_the_pilot_seeds_choose_the_bound():
    def others_are_faster(run):
        figures = as_claimed(run)
        if isinstance(run.settings, PilotSettings) and run.settings.training.bound == 7:
            return figures | {"cost": 1.0}
        return figures

    for one in cases.comparisons(results_of(others_are_faster)):
        assert one.best.bound == 7
    for one in cases.comparisons(results_of()):
        assert one.best.bound == 3


def changed(reads, factor, figure, bounds=(None, *BOUNDS)):
    def figures_of(run):
        figures, settings = as_claimed(run), run.settings
        is_changed = isinstance(settings, CacheSettings) and settings.reads == reads and settings.bound in bounds
        return figures | ({figure: figures[figure] * factor} if is_changed else {})

    return results_of(figures_of)


@pytest.mark.parametrize(
    ("claim", "results"),
    [
        ("computes", changed(Reads.BARRIER, 1.4, "computes")),
        ("sooner_than_barrier", changed(Reads.BARRIER, 0.3, "time")),
        ("sooner_than_async", changed(Reads.NONE, 0.6, "time")),
        ("quality", changed(Reads.CACHED, 0.5, "gradients", [15])),
        ("interior", changed(Reads.CACHED, 0.5, "time", [15])),
        ("cache", changed(Reads.FRESH, 0.5, "time")),
        ("bound", changed(Reads.CACHED, 2, "age")),
    ],
)
def test_contrary_results_refute_a_claim(claim, results):
    assert refuted(findings_of(ClientCache(), results)) == {claim}


def test_times_that_lie_on_both_sides_of_the_margin_are_undecided():
    def noisy(run):
        figures = as_claimed(run)
        is_async = isinstance(run.settings, CacheSettings) and run.settings.reads == Reads.NONE
        return figures | ({"time": 60.0 * (0.8 if run.seed % 2 else 1.4)} if is_async else {})

    assert findings_of(ClientCache(), results_of(noisy))["sooner_than_async"] is ClaimFinding.UNDECIDED


def test_where_both_arms_give_up_neither_is_said_to_be_sooner():
    lost = {Reads.BARRIER, Reads.CACHED}

    def figures_of(run):
        is_lost = isinstance(run.settings, CacheSettings) and run.settings.reads in lost
        return as_claimed(run) | ({"is_reached": False} if is_lost else {})

    results = results_of(figures_of)
    assert "sooner_than_barrier" not in findings_of(ClientCache(), results)
    (table, *_) = [one for one in ClientCache().analyse(results).tables if one.title.startswith("To the objective")]
    assert all(isinstance(value, LowerBound) for value in table.rows[0][2:5])
    assert table.rows[0][5] is None  # a geometric mean


def test_a_read_that_is_too_old_refutes_the_bound(monkeypatch):
    def ages(bound):
        schedule = virtual_run.run(
            "ssp_cache", [f"staleness={bound}"], num_workers=4, compute=["exp"], num_updates=800, seed=1
        ).schedule
        return cases.largest_age(schedule)

    assert [ages(bound) for bound in (0, 1, 3)] == [0, 1, 3]
    monkeypatch.setitem(schedule_table.RULES, "ssp_cache", OneMore)
    assert [ages(bound) for bound in (0, 1, 3)] == [1, 2, 4]


def test_pulls_and_missing_steps_are_counted():
    # Steps of 1 s and of 3.5 s. The fast worker's reads: version 0 twice; at 3.5 the slow one's push lets it pull.
    schedule = scripted("ssp_cache", ["staleness=1"], ("1", "3.5"), 4)
    assert schedule.steps.worker.tolist() == [0, 0, 1, 0]
    assert schedule.steps.version.tolist() == [0, 0, 0, 3]
    assert cases.pulls_per_step(schedule) == 3 / 4
    assert cases.largest_age(schedule) == 1  # its second step lacks the slow worker's first


@pytest.mark.parametrize("problem", list(Problem))
def test_a_training_reaches_an_easy_objective(problem, monkeypatch):
    setup = PROBLEM_SETUPS[problem]
    easy = setup._replace(objective={Problem.RATINGS: 0.9, Problem.CLICKS: 0.68}[problem])
    monkeypatch.setitem(PROBLEM_SETUPS, problem, easy)
    monkeypatch.setattr(experiment, "NUM_WORKERS", 3)  # each has an input pipeline of its own
    arms = [(CacheSettings(problem=problem, reads=Reads.CACHED, bound=1, max_gradients=2000), setup.rates[2])]
    arms += [(dataclasses.replace(arms[0][0], reads=Reads.BARRIER, bound=None), 3 * setup.rates[2])]
    figures = {settings.reads: CachedReads().train(settings, rate, 0) for settings, rate in arms}
    for one in figures.values():
        assert one.is_reached
        assert one.losses[-1] <= easy.objective
        assert 0 < one.time <= one.times[-1]
    assert figures[Reads.CACHED].pulls < 1 == figures[Reads.BARRIER].pulls
    assert figures[Reads.CACHED].age == 1
