"""Staleness-aware learning rates on a real cluster: the arms that fail in virtual time fail, or a claim does."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.errors import RunError
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.staleness_aware_rate.cases import REAL_RATE, ArmFigures, Rate, RealArmFigures
from ps_trainer.experiments.staleness_aware_rate.experiment import StalenessAwareRate
from ps_trainer.experiments.toolkit.clusters import Cluster
from tests.experiments.executed import planned
from tests.experiments.simulated_cluster import SimulatedCluster
from tests.testing.step_records import log_of, step_record

REAL = planned(StalenessAwareRate(), range(10), quick=False, level=Level.PROCESSES)


def figures(arm, error, staleness=7.0, of_virtual=None):
    simulated = of_virtual or ArmFigures(staleness=7.0, test_error=0.9 if arm == Rate.FULL else 0.05, rate=53.0)
    measured = ArmFigures(staleness=staleness, test_error=error, rate=50.0)
    return RealArmFigures(measured=measured, simulated=simulated, overhead_secs=0.005)


def findings(figures_of, of_first_seed=None):
    by_seed = {0: of_first_seed or figures_of}
    results = Results(
        RunResult(run, by_seed.get(run.seed, figures_of)(run.settings.arm), 9.0, None, None) for run in REAL
    )
    experiment = StalenessAwareRate()
    analysis = experiment.analyse(results)
    assert [len(table.rows) for table in analysis.tables] == [3, 3]
    real_claims = [one for one in analysis.checked if one.claim.key.startswith("real_")]
    return {one.claim.key: one.finding for one in real_claims}


def test_a_cluster_on_which_the_same_arm_fails_confirms_all_claims():
    assert set(findings(lambda arm: figures(arm, 0.88 if arm == Rate.FULL else 0.07)).values()) == {ClaimFinding.OK}


def as_in_virtual_time(arm):
    return figures(arm, 0.88 if arm == Rate.FULL else 0.05)


CONTRARY = [
    ("real_arms", lambda arm: figures(arm, 0.06)),
    ("real_errors", lambda arm: figures(arm, 0.88 if arm == Rate.FULL else 0.2)),
    ("real_staleness", lambda arm: figures(arm, 0.88 if arm == Rate.FULL else 0.06, staleness=6.0)),
]


@pytest.mark.parametrize(("claim", "figures_of"), CONTRARY)
def test_a_cluster_with_contrary_results_refutes_a_claim(claim, figures_of):
    assert findings(figures_of)[claim] is ClaimFinding.REFUTED


@pytest.mark.parametrize(("claim", "figures_of"), CONTRARY)
def test_every_seed_counts(claim, figures_of):
    assert findings(figures_of, of_first_seed=as_in_virtual_time)[claim] is not ClaimFinding.OK
    assert findings(as_in_virtual_time, of_first_seed=figures_of)[claim] is not ClaimFinding.OK


def test_full_runs_have_every_arm_and_the_quick_form_none():
    assert [run.settings.arm for run in REAL] == [
        arm for arm in (Rate.FULL, Rate.BY_SPLITS, Rate.BY_RULE) for _ in range(5)
    ]
    assert {run.settings.lr for run in REAL} == {REAL_RATE}
    assert not planned(StalenessAwareRate(), [0], quick=True, level=Level.PROCESSES)


def short(arm):
    run = next(run for run in REAL if run.settings.arm == arm)
    return dataclasses.replace(run, settings=dataclasses.replace(run.settings, num_updates=200))


def test_the_cluster_and_virtual_time_train_alike(tmp_path, monkeypatch):
    cluster = SimulatedCluster(monkeypatch)
    given = StalenessAwareRate().execute(short(Rate.BY_SPLITS), tmp_path).figures
    (trained,) = cluster.trained
    assert {"--update=softsync", "--update_option=splits=8", "--learning_rate=0.005"} <= set(trained.flags)
    assert {"--optimizer=momentum", "--optimizer_option=momentum=0.9", "--batch_size=15"} <= set(trained.flags)
    for one in (given.measured, given.simulated):
        assert one.staleness == pytest.approx(7, abs=0.1)
        assert one.rate == pytest.approx(8 / 0.4, rel=0.05)
    assert given.measured.test_error == pytest.approx(0.05)
    assert 0.0 < given.simulated.test_error < 0.6
    StalenessAwareRate().execute(short(Rate.BY_RULE), tmp_path)
    assert {"--update=staleness_aware", "--learning_rate=0.04"} <= set(cluster.trained[1].flags)


def failing(tmp_path, monkeypatch, losses):
    """A cluster that fails after some steps with these losses."""

    def train(cluster, folder):
        path = folder / "cluster" / "steps" / "worker_0.jsonl"
        path.parent.mkdir(parents=True)
        steps = [
            step_record(
                t_start=i - 0.1,
                t_end=float(i),
                wall_time=float(i),
                staleness=7,
                loss=loss,
                global_step=i,
                injected_delay=0.1,
            )
            for i, loss in enumerate(losses, 1)
        ]
        path.write_text(log_of(steps))
        raise RunError("exit code 1")

    monkeypatch.setattr(Cluster, "train", train)
    return StalenessAwareRate().execute(short(Rate.FULL), tmp_path).figures.measured


def test_a_nan_loss_is_a_failed_training_only_for_the_runs_claim(tmp_path, monkeypatch):
    assert failing(tmp_path, monkeypatch, [2.0] * 20 + [None]).test_error == 0.9


def test_a_run_that_fails_for_another_reason_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(RunError, match="exit code 1"):
        failing(tmp_path, monkeypatch, [2.0] * 20)
