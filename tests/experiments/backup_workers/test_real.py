"""Backup workers on real clusters: one like the simulator confirms the claims, one with a broken rule does not."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.experiments.backup_workers import claims
from ps_trainer.experiments.backup_workers.cases import RealBarrier
from ps_trainer.experiments.backup_workers.experiment import COMPARED_BACKUPS, BackupWorkers
from ps_trainer.experiments.backup_workers.records import Rule
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.simulation.rules import gradient_groups, tokens
from tests.experiments.backup_workers.test_experiment import Sleeping
from tests.experiments.executed import drawn, findings_of, planned, refuted
from tests.experiments.simulated_cluster import OVERHEAD_SECS, SimulatedCluster, real_results_of

REAL = planned(BackupWorkers(), range(2), quick=False, level=Level.PROCESSES)
# As many seeds as a full run has, as intervals need them; and of these the runs of the claims that compare rules.
ALL = planned(BackupWorkers(), range(BackupWorkers.num_seeds), quick=False, level=Level.PROCESSES)
COMPARED = [
    run
    for run in ALL
    if run.settings.b in COMPARED_BACKUPS.get(run.settings.shape, ())
    and run.settings.num_needed == {Shape.EXPONENTIAL: 8, Shape.PERSISTENT: 4}[run.settings.shape]
]


def findings(tmp_path, delayed_share=0.003, runs=REAL):
    return findings_of(BackupWorkers(), real_results_of(BackupWorkers(), runs, tmp_path, delayed_share))


def test_a_cluster_like_the_simulator_confirms_all_claims(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch)
    found = findings(tmp_path, runs=ALL)
    assert found.keys() == {claim.key for claim in claims.OF_REAL_CLUSTERS}
    assert set(found.values()) == {ClaimFinding.OK}


def test_two_seeds_are_too_few_for_a_gain_that_is_as_small_as_its_noise(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch)
    found = findings(tmp_path)
    assert {found["real_pays"], found["real_pays_exponential"]} == {ClaimFinding.UNDECIDED}


def test_a_broken_rule_on_the_cluster_refutes_the_claims_about_it(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch, {"backup": Sleeping})
    assert {"real_barrier_drop", "real_time"} <= refuted(findings(tmp_path, runs=ALL))


class NoBackups(tokens.StockSync):
    """Broken `stock_sync`: an update waits for the gradients of all workers."""

    def __init__(self, options, cluster):
        super().__init__(options, cluster)
        self.required = cluster.num_workers


class WithBarrier(gradient_groups.SyncReplicas):
    """Broken `stock_sync`: a queue of tokens for each worker."""

    Options = tokens.StockSync.Options


class CommonQueue(tokens.TokenQueue):
    """Broken `sync_replicas`: one queue of tokens for all workers."""

    Options = gradient_groups.SyncReplicas.Options


@pytest.mark.parametrize(
    ("rules", "keys"),
    [
        ({"stock_sync": NoBackups}, {"real_stock_drop", "real_pays_exponential", "real_time"}),
        ({"stock_sync": WithBarrier}, {"real_stock_penalty"}),
        ({"sync_replicas": CommonQueue}, {"real_replicas_equal"}),
    ],
)
def test_another_class_refutes_the_claims_about_it(tmp_path, monkeypatch, rules, keys):
    SimulatedCluster(monkeypatch, rules)
    assert keys <= refuted(findings(tmp_path, runs=COMPARED))


def test_the_quick_form_has_the_stock_class_beside_the_barrier(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch)
    runs = planned(BackupWorkers(), range(1), quick=True, level=Level.PROCESSES)
    assert [run.settings.rule for run in runs] == [Rule.BARRIER, Rule.STOCK]
    found = findings_of(BackupWorkers(), real_results_of(BackupWorkers(), runs, tmp_path))
    assert {"real_time", "real_stock_drop"} <= found.keys()


def test_times_of_a_contended_machine_do_not_count(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch)
    assert findings(tmp_path, delayed_share=0.03) == {}


def test_report_has_times_shares_and_a_plot(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch)
    results = real_results_of(BackupWorkers(), REAL, tmp_path)
    titles = [table.title for table in BackupWorkers().analyse(results).tables]
    assert "The simulator's timing: mean time per update" in titles
    assert "Gradients used by worker, as a multiple of a fair share, real clusters" in titles
    assert drawn(BackupWorkers().plots(results)) == ["real_step_times"]
    slow = RealBarrier(results.where(shape=Shape.PERSISTENT, n=9, rule=Rule.BARRIER))
    assert slow.share_by_worker[0] < 0.05 < 0.1 < min(slow.share_by_worker[1:])


def test_rules_that_are_compared_alternate_with_the_same_seeds():
    planned_runs = [run for run in BackupWorkers().runs(range(2), quick=False) if run in REAL]
    compared = [run for run in planned_runs if (run.settings.shape, run.settings.b) == (Shape.EXPONENTIAL, 1)]
    rules = [Rule.BARRIER, Rule.REPLICAS, Rule.STOCK]
    assert [(run.seed, run.settings.rule) for run in compared] == [(seed, rule) for seed in range(2) for rule in rules]
    places = [planned_runs.index(run) for run in compared[:3]]
    assert places == list(range(places[0], places[0] + 3))


def test_the_stock_class_is_compared_with_a_simulation_of_its_own_cost(tmp_path, monkeypatch):
    cluster = SimulatedCluster(monkeypatch)
    experiment = BackupWorkers()
    run = next(run for run in REAL if run.settings.rule is Rule.STOCK)
    needed = experiment.needed_by(run)
    assert needed.key == "L2-stock_calibration-softmax"
    cost = experiment.execute(needed, tmp_path).figures
    assert cost.overhead_secs == pytest.approx(OVERHEAD_SECS) and cost.service_secs == 0
    figures = experiment.execute(run, tmp_path, cost).figures
    assert figures.measured.step == pytest.approx(figures.simulated.step, rel=0.02)
    flags = [one.flags for one in cluster.trained]
    assert all("--update=stock_sync" in one for one in flags)
    assert ["--update_option=replicas_to_aggregate=1" in one for one in flags] == [True, False]
    assert ["--update_option=replicas_to_aggregate=8" in one for one in flags] == [False, True]


def test_the_other_class_is_calibrated_with_one_worker_and_the_layout_of_its_variables():
    run = next(run for run in REAL if run.settings.rule is Rule.REPLICAS)
    settings = BackupWorkers().needed_by(run).settings
    assert (settings.update, list(settings.options)) == ("sync_replicas", [])
    assert settings.training["layout"] == "per_variable"


def test_full_runs_use_the_barrier_with_all_numbers_of_backup_workers():
    cases = {(run.settings.shape, run.settings.num_needed, run.settings.b, run.settings.rule) for run in REAL}
    shapes = (Shape.EXPONENTIAL, Shape.MODERATE, Shape.PERSISTENT)
    rules = (Rule.BARRIER, Rule.REPLICAS, Rule.STOCK)
    assert cases == {
        (Shape.SHIFTED, 8, 0, Rule.BARRIER),
        *((shape, 8, b, Rule.BARRIER) for shape in shapes for b in (0, 1, 2, 4)),
        *((Shape.EXPONENTIAL, 8, b, rule) for rule in rules for b in (0, 1, 2)),
        *((Shape.PERSISTENT, 4, b, rule) for rule in rules for b in (1, 2)),
    }
    assert all(run.settings.mean_ms >= 100 for run in REAL)


@pytest.mark.parametrize("rule", [Rule.BARRIER, Rule.REPLICAS, Rule.STOCK])
def test_real_processes_of_each_rule_give_all_figures(tmp_path, rule):
    run = next(run for run in REAL if run.settings.rule is rule)
    settings = dataclasses.replace(run.settings, n=2, b=1, size="N = 1", num_updates=8, mean_ms=30.0)
    experiment = BackupWorkers()
    figures = experiment.execute(dataclasses.replace(run, settings=settings), tmp_path).figures
    assert 0 <= figures.measured.dropped_share < 1
    assert sum(figures.measured.share_by_worker) == pytest.approx(1)
    assert figures.measured.step > 0
