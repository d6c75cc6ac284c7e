"""Backup workers on real clusters: one like the simulator confirms the claims, one with a broken rule does not."""

from __future__ import annotations

from ps_trainer.experiments.backup_workers.cases import RealBarrier
from ps_trainer.experiments.backup_workers.experiment import BackupWorkers
from ps_trainer.experiments.backup_workers.records import Rule
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.toolkit.step_times import Shape
from tests.experiments.backup_workers.test_experiment import Sleeping
from tests.experiments.executed import drawn, findings_of, planned, refuted
from tests.experiments.simulated_cluster import SimulatedCluster, real_results_of

REAL = planned(BackupWorkers(), range(2), quick=False, level=Level.PROCESSES)


def findings(tmp_path, delayed_share=0.003):
    return findings_of(BackupWorkers(), real_results_of(BackupWorkers(), REAL, tmp_path, delayed_share))


def test_a_cluster_like_the_simulator_confirms_all_claims(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch)
    found = findings(tmp_path)
    assert found.keys() == {claim.key for claim in BackupWorkers.claims if claim.key.startswith("real_")}
    assert set(found.values()) == {ClaimFinding.OK}


def test_a_broken_rule_on_the_cluster_refutes_the_claims_about_it(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch, {"backup": Sleeping})
    assert {"real_barrier_drop", "real_time"} <= refuted(findings(tmp_path))


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
    slow = RealBarrier(results.where(shape=Shape.PERSISTENT, b=1))
    assert slow.share_by_worker[0] < 0.05 < 0.1 < min(slow.share_by_worker[1:])


def test_full_runs_use_the_barrier_with_all_numbers_of_backup_workers():
    cases = {(run.settings.shape, run.settings.b, run.settings.rule) for run in REAL}
    assert {rule for _, _, rule in cases} == {Rule.BARRIER}
    want = {
        (shape, b, Rule.BARRIER)
        for shape in (Shape.EXPONENTIAL, Shape.MODERATE, Shape.PERSISTENT)
        for b in (0, 1, 2, 4)
    }
    assert want <= cases
    assert {run.settings.n - run.settings.b for run in REAL} == {8}
    assert all(run.settings.mean_ms >= 100 for run in REAL)
