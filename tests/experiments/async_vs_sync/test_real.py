"""Asynchronous and synchronous SGD on real clusters: claims hold on a simulated one and fail with a broken rule."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.async_vs_sync.cases import (
    REAL_RATES,
    REAL_TRAINING,
    GradientRateFigures,
    Mode,
    TargetFigures,
    predicted_ratio,
    to_target,
)
from ps_trainer.experiments.async_vs_sync.experiment import AsyncVsSync
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, RunResult
from tests.experiments.async_vs_sync.test_experiment import InPairs
from tests.experiments.executed import drawn, planned
from tests.experiments.simulated_cluster import SimulatedCluster, real_results_of

REAL = planned(AsyncVsSync(), range(5), quick=False, level=Level.PROCESSES)
TIMED = [run for run in REAL if run.settings.what == REAL_RATES]
TRAINED = [run for run in REAL if run.settings.what == REAL_TRAINING]


def findings(results):
    """Claim's key -> finding on the claims about real clusters, without any virtual run."""
    experiment = AsyncVsSync()
    return {one.claim.key: one.finding for one in experiment.analyse(results).checked}


def target(examples, secs):
    return TargetFigures(examples=examples, secs=secs)


def trained(figures_of):
    """Results of the trainings, each with its examples and its seconds on the cluster and in the simulator."""
    return Results(
        RunResult(
            run,
            SimpleNamespace(
                measured=target(*figures_of(run.settings, "measured")),
                simulated=target(*figures_of(run.settings, "simulated")),
                overhead_secs=0.005,
            ),
            9.0,
            None,
            None,
        )
        for run in TRAINED
    )


def test_a_cluster_like_the_simulator_confirms_the_claims_on_throughput(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch)
    results = real_results_of(AsyncVsSync(), TIMED, tmp_path)
    found = findings(results)
    keys = ("real_rate", "real_throughput", "real_rates", "real_control")
    assert {found[key] for key in keys} == {ClaimFinding.OK}
    assert [len(table.rows) for table in AsyncVsSync().analyse(results).tables[-2:]] == [7, 14]
    assert drawn(AsyncVsSync().plots(results)) == ["real_throughput"]


def test_a_broken_rule_on_the_cluster_refutes_the_claims_about_it(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch, {"async": InPairs})
    found = findings(
        real_results_of(AsyncVsSync(), [run for run in TIMED if run.settings.n > 1], tmp_path, is_calibrated=False)
    )
    assert (found["real_throughput"], found["real_rates"]) == (ClaimFinding.REFUTED, ClaimFinding.REFUTED)


def test_throughput_of_a_contended_machine_does_not_count(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch)
    found = findings(real_results_of(AsyncVsSync(), TIMED, tmp_path, delayed_share=0.03))
    assert set(found.values()) == {ClaimFinding.NOT_TESTABLE}


def test_trainings_are_judged_by_examples_and_by_time():
    as_claimed = trained(lambda settings, name: (5000, 2.0 if settings.mode == Mode.ASYNC else 6.0))
    found = findings(as_claimed)
    assert (found["real_examples"], found["real_time"]) == (ClaimFinding.OK, ClaimFinding.OK)
    slow = findings(trained(lambda settings, name: (5000, 7.0 if settings.mode == Mode.ASYNC else 6.0)))
    assert (slow["real_examples"], slow["real_time"]) == (ClaimFinding.OK, ClaimFinding.REFUTED)
    lost = findings(trained(lambda settings, name: (None, None) if name == "measured" else (5000, 6.0)))
    assert lost["real_examples"] is ClaimFinding.REFUTED


def timed(async_factor):
    """Results of the runs that are timed; `async_factor` returns a seed's asynchronous rate over the predicted one."""

    def rates(run):
        is_async = run.settings.mode == Mode.ASYNC
        ratio = async_factor(run.seed) * predicted_ratio(run.settings.n, run.settings.alpha) if is_async else 1.0
        rate = GradientRateFigures(rate=ratio)
        return SimpleNamespace(measured=rate, simulated=rate, overhead_secs=0.005)

    return Results(RunResult(run, rates(run), 9.0, None, None) for run in TIMED)


def test_slower_asynchronous_workers_refute_the_claim_of_the_literature():
    assert findings(timed(lambda seed: 0.8))["real_rate"] is ClaimFinding.REFUTED


def test_seeds_that_disagree_leave_a_claim_undecided():
    found = findings(timed(lambda seed: 1.3 if seed == 0 else 1.0))
    # Logarithms 0.26, 0, 0, 0, 0: the mean is 0.052, and t gives ± 2.132 · 0.117 / √5 = 0.112, beyond 1.15.
    assert found["real_throughput"] is ClaimFinding.UNDECIDED
    assert found["real_rates"] is ClaimFinding.OK  # each is as its simulation


def test_the_target_is_reached_by_the_mean_of_a_window():
    def reached(losses):
        return to_target(losses, [10.0 + i for i in range(len(losses))], 32)

    high, low = [1.0] * 30, [0.1] * 30
    # A window is 20 steps of 32 examples. With k low losses its mean is 1 − 0.045 k, at most 0.55 for k = 10.
    assert reached(high + low) == target(40 * 32, 39.0)
    assert reached(high) == target(None, None)
    assert reached([*high, None, *low]).examples == (31 + 20) * 32


def test_every_arm_is_trained_once_and_timed_at_all_numbers_of_workers():
    assert {(run.settings.mode, run.settings.alpha) for run in TRAINED} == {
        (Mode.ASYNC, 0.05), (Mode.ASYNC, 1.0), (Mode.SYNC_SAME, 0.05), (Mode.SYNC_SAME, 1.0), (Mode.SYNC_GLOBAL, 1.0)
    }  # fmt: skip
    timed = {(run.settings.n, run.settings.alpha) for run in TIMED}
    assert timed == {(1, 0.05)} | {(n, alpha) for n in (2, 4, 8) for alpha in (0.05, 1.0)}
    updates = {run.settings.mode: run.settings.num_updates for run in TIMED if run.settings.n == 4}
    assert updates[Mode.ASYNC] == 4 * updates[Mode.SYNC_SAME]  # so that the workers take the same delays
    assert all(1000 * run.settings.n / run.settings.mean_ms < 85 for run in REAL)


def test_a_real_training_is_replayed_in_virtual_time(tmp_path, monkeypatch):
    cluster = SimulatedCluster(monkeypatch, losses=[2.0] * 50 + [0.1])
    run = next(run for run in TRAINED if (run.settings.mode, run.settings.alpha) == (Mode.ASYNC, 1.0))
    figures = AsyncVsSync().execute(run, tmp_path).figures
    (trained,) = cluster.trained
    assert {"--model=mlp", "--model_option=hidden=32", "--learning_rate=0.1", "--batch_size=32"} <= set(trained.flags)
    # A window of 20 with the mean 2 − 0.095 k: 16 low losses.
    assert figures.measured.examples == (50 + 16) * 32
    assert 2000 < figures.simulated.examples < 12000
    # Eight workers, one step each per mean step of 600 ms.
    per_example = figures.simulated.secs / figures.simulated.examples
    assert per_example == pytest.approx(0.6 / (8 * 32), rel=0.2)
    assert math.isfinite(figures.overhead_secs)
