"""The experiment on backup workers: its claims hold, and fail for rules that are broken on purpose."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from ps_trainer.experiments.backup_workers.cases import Sweep, TimedRule, timings_of
from ps_trainer.experiments.backup_workers.experiment import BackupWorkers
from ps_trainer.experiments.backup_workers.records import BackupTrainingSettings, Rule
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.simulation.rules import gradient_groups, schedule_table, tokens
from ps_trainer.simulation.rules.base import PushOutcome
from ps_trainer.simulation.schedule import DROPPED
from tests.experiments.executed import drawn, findings_of, planned, refuted, results_of


def is_training(run):
    return isinstance(run.settings, BackupTrainingSettings)


ALL = BackupWorkers().runs([0], quick=True)
QUICK = [run for run in ALL if run.level is Level.VIRTUAL and not is_training(run)]


class FewTokens(tokens.TokenQueue):
    """Broken `token_queue`: only the workers whose gradients are in an update receive its tokens, not all workers."""

    def __init__(self, options, cluster):
        super().__init__(options, cluster)
        self.num_workers = self.required


class Sleeping(gradient_groups.Backup):
    """Broken `backup`: a late worker does nothing until the next update."""

    def __init__(self, options, cluster):
        super().__init__(options, cluster)
        self._late = []

    def push(self, worker, version):
        if version < self.version:
            self._late.append(worker)
            return PushOutcome(DROPPED, ())
        outcome = super().push(worker, version)
        late, self._late = (self._late, []) if outcome.resumed else ([], self._late)
        return outcome._replace(resumed=[*outcome.resumed, *late])


def of_8(*shapes, rules=(Rule.TOKENS, Rule.BARRIER, Rule.MODELS)):
    return [
        run
        for run in QUICK
        if run.settings.size == "N = 8" and run.settings.shape in shapes and run.settings.rule in rules
    ]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Results of one part of the quick form."""
    large = [run for run in QUICK if run.settings.size != "N = 8"]
    runs = of_8(Shape.EXPONENTIAL, Shape.EVEN, Shape.SHIFTED, Shape.PERSISTENT) + large
    return results_of(BackupWorkers(), runs, tmp_path_factory.mktemp("runs"))


def test_every_claim_is_measured_in_the_quick_form_and_holds(measured):
    findings = findings_of(BackupWorkers(), measured)
    assert findings.keys() == {
        claim.key for claim in BackupWorkers.claims if claim.key != "work" and not claim.key.startswith("real_")
    }
    assert set(findings.values()) == {ClaimFinding.OK}


def test_report_has_tables_of_all_sizes_and_plots_that_can_be_drawn(measured):
    experiment = BackupWorkers()
    titles = [one.title for one in experiment.analyse(measured).tables]
    assert titles[:3] == ["Backup workers, N = 8", "Backup workers, N = 50", "Backup workers, N + b = 100"]
    assert titles[3].startswith("Gradients used by worker")
    assert drawn(experiment.plots(measured)) == [
        "step_times", "speedups", "paper_scale", "arrivals-N=8", "arrivals-N+b=100"
    ]  # fmt: skip


def test_no_plot_and_no_finding_without_runs():
    assert findings_of(BackupWorkers(), Results()) == {}
    assert list(BackupWorkers().plots(Results())) == []


def test_a_token_queue_with_too_few_tokens_refutes_its_claims(tmp_path, monkeypatch):
    monkeypatch.setitem(schedule_table.RULES, "token_queue", FewTokens)
    found = findings_of(
        BackupWorkers(), results_of(BackupWorkers(), of_8(Shape.EXPONENTIAL, Shape.PERSISTENT), tmp_path)
    )
    assert {"tokens_drop", "prediction"} <= refuted(found)
    assert found["barrier_drop"] is ClaimFinding.OK  # not broken


def test_a_barrier_whose_late_workers_sleep_refutes_its_claims(tmp_path, monkeypatch):
    monkeypatch.setitem(schedule_table.RULES, "backup", Sleeping)
    found = findings_of(BackupWorkers(), results_of(BackupWorkers(), of_8(Shape.EXPONENTIAL), tmp_path))
    assert {"barrier_drop", "prediction"} <= refuted(found)
    assert found["tokens_drop"] is ClaimFinding.OK  # not broken


def test_a_barrier_drops_b_gradients_per_update_minus_those_that_long_steps_save(measured):
    # With even steps every dropped gradient is one update old, so both rules drop b/(N + b).
    shares = {(sweep.shape, sweep.rule): sweep.at(2) for sweep in timings_of(measured).sweeps if sweep.size == "N = 8"}
    assert shares[Shape.EVEN, Rule.BARRIER].dropped_staleness == 1
    assert shares[Shape.EVEN, Rule.BARRIER].dropped_share == pytest.approx(2 / 10, abs=1e-3)
    assert shares[Shape.EXPONENTIAL, Rule.TOKENS].dropped_share == pytest.approx(2 / 10, abs=1e-3)
    assert shares[Shape.EXPONENTIAL, Rule.BARRIER].dropped_share < 0.19
    stale = shares[Shape.EXPONENTIAL, Rule.BARRIER].dropped_staleness
    assert shares[Shape.EXPONENTIAL, Rule.BARRIER].dropped_share == pytest.approx(2 / (2 + 8 * stale), abs=1e-3)


def test_full_runs_have_the_papers_numbers_of_workers():
    runs = [
        run
        for run in BackupWorkers().runs(range(5), quick=False)
        if run.level is Level.VIRTUAL and not is_training(run)
    ]
    osdi = [run.settings for run in runs if run.settings.size == "N = 50"]
    chen = [run.settings for run in runs if run.settings.size == "N + b = 100"]
    assert {one.n - one.b for one in osdi} == {50}
    assert {one.b for one in osdi} == {0, 1, 2, 3, 4, 5}
    assert {one.n for one in chen} == {100}
    assert {0, 4} <= {one.b for one in chen}
    assert {run.seed for run in runs if run.settings.rule != Rule.MODELS} == set(range(5))


def case(num_backups, *steps):
    settings = SimpleNamespace(n=8 + num_backups, b=num_backups)
    results = [
        RunResult(Run(f"k-{seed}", settings, seed), SimpleNamespace(step=step), 1.0, None, None)
        for seed, step in enumerate(steps)
    ]
    return TimedRule(Results(results), Results())


def test_speedups_and_lost_gains_of_a_sweep():
    sweep = Sweep(Shape.EVEN, "N = 8", Rule.TOKENS, [case(0, 2.0), case(1, 1.5), case(2, 1.25), case(4, 1.25)])
    assert [sweep.speedup(one) for one in sweep.cases] == pytest.approx(
        [1, 2 / 1.5 * 8 / 9, 2 / 1.25 * 8 / 10, 2 / 1.25 * 8 / 12]
    )
    assert sweep.best.num_backups == 2
    assert [(one.num_backups, *lost) for one, lost in sweep.lost_gains()] == [(2, 0.25 / 2, None), (4, 0.25 / 2, None)]


def test_the_seeds_of_a_sweep_give_intervals():
    sweep = Sweep(Shape.EVEN, "N = 8", Rule.TOKENS, [case(0, 2.0, 2.0, 2.0), case(1, 1.5, 1.2, 1.9)])
    # In a quarter of the resamples the median step is 1.9, so that no backup worker is best.
    assert sweep.best_number == (1, (0, 1))
    gains = [math.log(2 / step * 8 / 9) for step in (1.5, 1.2, 1.9)]
    half = 2.920 * np.std(gains, ddof=1) / math.sqrt(3)
    value, (low, high) = sweep.best_with_backups
    assert [math.log(one) for one in (value, low, high)] == pytest.approx([(m := np.mean(gains)), m - half, m + half])


def trained(updates_of):
    """Results of all trainings, whose number of updates is a function of the settings and the seed."""
    runs = [run for run in BackupWorkers().runs(range(3), quick=False) if is_training(run)]
    return Results(
        RunResult(run, SimpleNamespace(updates=updates_of(run.settings, run.seed)), 1.0, None, None) for run in runs
    )


def test_backup_workers_that_cost_updates_refute_the_claim_that_they_do_not():
    fresh = trained(lambda settings, seed: 60 + seed)
    assert findings_of(BackupWorkers(), fresh)["work"] is ClaimFinding.OK
    assert BackupWorkers().analyse(fresh).tables[-1].title.startswith("Updates to a training accuracy")
    stale = trained(lambda settings, seed: 60 + seed + 3 * settings.b)
    assert findings_of(BackupWorkers(), stale)["work"] is ClaimFinding.REFUTED
    lost = trained(lambda settings, seed: None if settings.b == 4 and seed else 60)
    assert findings_of(BackupWorkers(), lost)["work"] is ClaimFinding.REFUTED


def test_a_training_reaches_its_target_after_a_number_of_updates(tmp_path):
    run = next(run for run in ALL if is_training(run) and run.settings.b == 2)
    figures = BackupWorkers().execute(run, tmp_path).figures
    assert figures.accuracy >= 0.9
    assert 10 < figures.updates < 250


def test_there_is_a_real_run_of_the_barrier_and_of_the_stock_class_in_the_quick_form():
    assert [run.key for run in planned(BackupWorkers(), [0], quick=True, level=Level.PROCESSES)] == [
        "L2-backup-n=5-b=1-lognormal-seed=0",
        "L2-stock_sync-n=5-b=1-lognormal-seed=0",
    ]
