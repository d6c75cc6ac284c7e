"""The experiment on the time to an accuracy: its claims hold, fail for contrary results, and notice a broken rule."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.time_to_accuracy import experiment as experiment_module
from ps_trainer.experiments.time_to_accuracy.cases import (
    AccuracySettings,
    BatchKind,
    PacedFigures,
    PacedSettings,
    WorkerRule,
    batch_size,
    predicted_update_time,
    to_loss,
)
from ps_trainer.experiments.time_to_accuracy.experiment import AccuracyTrainings, PacedTrainings, TimeToAccuracy
from ps_trainer.simulation.rules import schedule_table, update_per_push
from ps_trainer.simulation.rules.base import PushOutcome
from tests.experiments.executed import drawn, findings_of, planned, refuted
from tests.experiments.simulated_cluster import SimulatedCluster, real_results_of

STRONG, WEAK, ASYNC, SYNC = BatchKind.STRONG, BatchKind.WEAK, WorkerRule.ASYNC, WorkerRule.SYNC
COST = 0.01


class InTurns(update_per_push.Async):
    """Broken `async`: a worker that has pushed idles until all others have pushed, too."""

    def __init__(self, options, cluster):
        super().__init__(options, cluster)
        self._num_workers = cluster.num_workers
        self._idle = []

    def push(self, worker, version):
        self.version += 1
        self._idle.append(worker)
        resumed = self._idle if len(self._idle) == self._num_workers else []
        self._idle = [] if resumed else self._idle
        return PushOutcome(self.version - 1, resumed)


def as_claimed(run):
    """The figures of a run if every claim were true."""
    settings, noise = run.settings, 1 + 0.005 * run.seed
    n = settings.n
    if isinstance(settings, PacedSettings):
        one = PacedFigures(time=100 / n * noise, gradients=0.9 * n)
        return {"measured": one, "simulated": one, "overhead_secs": 0.004}
    is_large = settings.batches == WEAK and settings.rule == SYNC and n == 16
    examples = 3000 * noise * (2 if is_large else 1)
    update_time = predicted_update_time(settings.batches, n, COST)
    time = examples / (settings.batch_size * n) * (update_time if settings.rule == SYNC else update_time / 1.5)
    return {
        "rate": 0.1,
        "is_reached": True,
        "time": time,
        "examples": examples,
        "update_time": update_time,
        "times": [time / 2, time],
        "accuracies": [0.7, 0.94],
    }


def of_runs(runs, figures_of=as_claimed):
    return Results(RunResult(run, SimpleNamespace(**figures_of(run)), 1.0, None, None) for run in runs)


def given(figures_of=as_claimed, *, quick=False):
    return of_runs(planned(TimeToAccuracy(), range(4), quick=quick), figures_of)


@pytest.mark.parametrize("quick", [False, True])
def test_results_as_claimed_confirm_all_claims(quick):
    found = findings_of(TimeToAccuracy(), given(quick=quick))
    untested = {"wastes", "real_sooner", "real_rates", "real_times"} if quick else set()
    assert found.keys() == {claim.key for claim in TimeToAccuracy.claims} - untested
    assert set(found.values()) == {ClaimFinding.OK}
    assert drawn(TimeToAccuracy().plots(given(quick=quick))) == [
        *("speedups", "examples", "curves"), *(() if quick else ("real_speedups",))
    ]  # fmt: skip


def changed(change, **selected):
    """Results of which some are changed: those of several workers whose settings have these values."""

    def figures_of(run):
        figures = as_claimed(run)
        has_all = all(getattr(run.settings, name) == value for name, value in selected.items())
        is_paced = isinstance(run.settings, PacedSettings) == ("measured" in change(as_claimed(run)))
        return figures | (change(figures) if has_all and is_paced and run.settings.n > 1 else {})

    return given(figures_of)


def times(factor):
    return lambda figures: {"time": factor * figures["time"]} if "time" in figures else {}


def examples(factor):
    return lambda figures: {"examples": factor * figures["examples"]} if "examples" in figures else {}


def measured(**factors):
    def change(figures):
        if "measured" not in figures:
            return {}
        values = {name: factor * getattr(figures["measured"], name) for name, factor in factors.items()}
        return {"measured": PacedFigures(**{**figures["measured"].as_json(), **values})}

    return change


@pytest.mark.parametrize(
    ("claim", "results"),
    [
        ("async_sooner", changed(times(20), batches=WEAK, rule=ASYNC, n=8)),
        ("sync_sooner", changed(times(20), batches=WEAK, rule=SYNC, n=8)),
        ("halves", changed(examples(1.5), batches=WEAK, rule=SYNC, n=2)),
        ("wastes", changed(examples(0.5), batches=WEAK, rule=SYNC, n=16)),
        ("fixed_batch", changed(examples(1.5), batches=STRONG, rule=SYNC, n=4)),
        ("small_pushes", changed(examples(0.5), batches=STRONG, rule=ASYNC, n=4)),
        ("async_first", changed(times(0.1), rule=SYNC)),
        ("real_sooner", changed(measured(time=30), batches=WEAK, n=4)),
        ("real_times", given(lambda run: as_claimed(run) | measured(time=1.5)(as_claimed(run)))),
        ("real_rates", changed(measured(gradients=0.8), batches=WEAK, n=8)),
    ],
)
def test_contrary_results_refute_a_claim(claim, results):
    assert claim in refuted(findings_of(TimeToAccuracy(), results))


def test_a_loss_that_is_missed_is_infinitely_far():
    missed = changed(lambda f: {"measured": PacedFigures(time=None, gradients=1.0)} if "measured" in f else {}, n=8)
    assert {"real_sooner", "real_rates"} <= refuted(findings_of(TimeToAccuracy(), missed))


def test_where_both_miss_the_accuracy_neither_is_said_to_need_more():
    lost = given(lambda run: as_claimed(run) | ({"is_reached": False} if run.settings.batches == STRONG else {}))
    found = {one.claim.key: one.measured for one in TimeToAccuracy().analyse(lost).checked}
    assert not found["fixed_batch"] and not found["small_pushes"]


def test_workers_share_a_batch_or_have_one_each():
    assert [batch_size(STRONG, n) for n in (1, 2, 8)] == [32, 16, 4]
    assert [batch_size(WEAK, n) for n in (1, 2, 8)] == [8, 8, 8]
    settings = AccuracySettings(batches=WEAK, rule=SYNC, n=4, num_epochs=1)
    assert settings.per_update == 4 * 8


def test_the_predicted_update_waits_for_the_slowest_step():
    # Of four steps, of which a fifth is exponential, the slowest takes 0.8 + 0.2 (1 + 1/2 + 1/3 + 1/4).
    assert predicted_update_time(WEAK, 4, 0.01) == pytest.approx(0.8 + 0.2 * 25 / 12 + 0.01)
    assert predicted_update_time(STRONG, 4, 0.01) == pytest.approx((0.8 + 0.2 * 25 / 12) / 4 + 0.01)


def test_the_loss_is_reached_by_the_mean_of_a_window():
    ends = [10.0 + i for i in range(80)]
    # A window is 40 steps of 8 examples; with k low losses its mean is 1 − 0.9 k/40, at most 0.7 for k = 14.
    assert to_loss([1.0] * 40 + [0.1] * 40, ends, 8) == 53.0
    assert to_loss([1.0] * 80, ends, 8) is None
    assert to_loss([None, *[0.1] * 79], ends, 8) == 40.0


def trained(rule, n, monkeypatch):
    monkeypatch.setattr(experiment_module, "TARGET", 0.7)
    settings = AccuracySettings(batches=STRONG, rule=rule, n=n, num_epochs=3)
    return AccuracyTrainings().train(settings, 0.1 if rule == ASYNC else 0.4, 0)


def test_four_workers_that_share_a_batch_are_sooner_than_one(monkeypatch):
    one, four = trained(SYNC, 1, monkeypatch), trained(SYNC, 4, monkeypatch)
    assert one.is_reached and four.is_reached
    assert four.update_time == pytest.approx(predicted_update_time(STRONG, 4, COST), rel=0.1)
    assert four.time < 0.6 * one.time


def test_a_rule_that_waits_is_no_faster_than_a_synchronous_one(monkeypatch):
    whole = trained(ASYNC, 4, monkeypatch).update_time
    monkeypatch.setitem(schedule_table.RULES, "async", InTurns)
    assert 4 * trained(ASYNC, 4, monkeypatch).update_time > 1.2 * 4 * whole


REAL = planned(TimeToAccuracy(), range(3), quick=False, level=Level.PROCESSES)


def test_a_cluster_like_the_simulator_confirms_the_claims_about_it_and_a_broken_rule_refutes_them(
    tmp_path, monkeypatch
):
    runs = [run for run in REAL if run.settings.batches == WEAK and run.settings.n in (1, 4)]
    SimulatedCluster(monkeypatch, losses=[0.5])
    monkeypatch.setattr(PacedTrainings, "simulated_figures", without_training)
    found = findings_of(TimeToAccuracy(), real_results_of(TimeToAccuracy(), runs, tmp_path))
    assert found["real_rates"] is ClaimFinding.OK
    SimulatedCluster(monkeypatch, {"async": InTurns}, losses=[0.5])
    broken = findings_of(TimeToAccuracy(), real_results_of(TimeToAccuracy(), runs, tmp_path))
    assert broken["real_rates"] is ClaimFinding.REFUTED


def without_training(self, run, done):
    """Figures of a simulation whose losses are low from the start."""
    ends = done.schedule.steps.t_push_done.tolist()
    return experiment_module._paced_figures(run.settings, [0.5] * len(ends), ends, done.schedule.update_secs)


def test_times_of_a_contended_machine_do_not_count(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch, losses=[0.5])
    monkeypatch.setattr(PacedTrainings, "simulated_figures", without_training)
    results = real_results_of(TimeToAccuracy(), REAL[:2], tmp_path, delayed_share=0.03)
    assert not findings_of(TimeToAccuracy(), results)


def test_real_runs_have_one_to_eight_workers_with_long_steps_and_five_seeds():
    runs = planned(TimeToAccuracy(), range(10), quick=False, level=Level.PROCESSES)
    assert {run.seed for run in runs} == set(range(5))
    weak = {(run.settings.rule, run.settings.n) for run in runs if run.settings.batches == WEAK and run.settings.n > 1}
    assert weak == {(rule, n) for rule in WorkerRule for n in (2, 4, 8)}
    assert {run.settings.mean_ms for run in runs if run.settings.n == 8} == {1180.0}


def test_a_real_training_is_replayed_with_the_same_data(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch, losses=[2.0] * 50 + [0.1])
    (run,) = [run for run in REAL if (run.settings.n, run.settings.batches, run.seed) == (1, WEAK, 0)]
    figures = TimeToAccuracy().execute(run, tmp_path).figures
    assert 400 < 8 * figures.simulated.time < 1300  # examples, from the first gradient on
