"""The cost of a step with one worker, and the simulator that has it: against a cluster of known cost."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Run
from ps_trainer.experiments.toolkit import calibration, real_clusters
from ps_trainer.experiments.toolkit.calibration import Calibrations, calibration_of
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.delayed_training import DelayedTraining, StepCost
from tests.experiments.simulated_cluster import OVERHEAD_SECS, SERVICE_SECS, SimulatedCluster
from tests.testing.step_records import step_record


def one_worker(overheads, services):
    steps = [
        step_record(t_start=float(i), injected_delay=0.4, t_computed=i + 0.4, t_applied=i + 0.4 + service,
                    t_end=i + 0.4 + overhead, wall_time=float(i))
        for i, (overhead, service) in enumerate(zip(overheads, services, strict=True))
    ]  # fmt: skip
    return Training({}, steps, 1.0)


def test_a_calibration_is_a_median_with_its_interval():
    rng = np.random.default_rng(1)
    overheads, services = 0.005 + 0.001 * rng.standard_normal((2, 500))
    found = calibration_of(one_worker(overheads, services))
    assert found.overhead_secs == pytest.approx(np.median(overheads[100:]), abs=1e-9)  # the first 20 % are warm-up
    assert found.overhead_low < 0.005 < found.overhead_high
    # the standard error of a median is √(π/2) σ/√n; 90 % of a normal lie within 1.645 of them
    width = 2 * 1.645 * np.sqrt(np.pi / 2) * 0.001 / np.sqrt(400)
    assert found.overhead_high - found.overhead_low == pytest.approx(width, rel=0.35)
    assert found.service_low < 0.005 < found.service_high


def test_the_transfers_that_the_simulator_adds_itself_are_no_cost():
    found = calibration_of(one_worker([0.045] * 50, [0.02] * 50), transfer_secs=0.04)
    assert found.overhead_secs == pytest.approx(0.005)
    assert calibration_of(one_worker([0.03] * 50, [0.02] * 50), transfer_secs=0.04).overhead_secs == 0.0


def test_a_simulated_step_of_one_worker_takes_its_delay_and_the_cost():
    cost = StepCost(overhead_secs=0.03, service_secs=0.01)
    run = Run("r", None, seed=2)
    done = DelayedTraining("async", (), 1, 40, ["exp:mean_ms=80"]).simulate(run, cost)
    steps = done.schedule.steps
    delays = steps.t_compute_done - steps.t_pull_done
    assert np.diff(done.schedule.update_secs) == pytest.approx(delays[1:] + 0.03)


@pytest.mark.parametrize(
    ("update", "options", "alone"),
    [
        ("backup", ("backup_workers=2",), "backup_workers=0"),
        ("softsync", ("splits=4",), "splits=1"),
        ("ssp", ("staleness=3",), "staleness=0"),
        ("async", (), None),
    ],
)
def test_a_calibration_runs_the_same_rule_with_one_worker(tmp_path, monkeypatch, update, options, alone):
    cluster = SimulatedCluster(monkeypatch)
    training = DelayedTraining(update, options, 8, 60, ["exp:mean_ms=400"])
    run = calibration.run_for(training, Level.PROCESSES)
    found = Calibrations().execute(run, tmp_path).figures
    (trained,) = cluster.trained
    assert (trained.num_workers, f"--update={update}" in trained.flags) == (1, True)
    assert [flag for flag in trained.flags if "update_option" in flag] == (
        [f"--update_option={alone}"] if alone else []
    )
    assert {"--model=softmax", "--max_steps=60", "--straggler=det:jitter=0,mean_ms=600,paced=true"} <= set(
        trained.flags
    )
    assert found.overhead_secs == pytest.approx(OVERHEAD_SECS)
    assert found.service_secs == pytest.approx(SERVICE_SECS)


def test_trainings_that_cost_the_same_share_a_calibration():
    def key_of(**changes):
        training = DelayedTraining("ssp", ("staleness=3",), 8, 600, ["exp:mean_ms=400"])
        return calibration.run_for(training._replace(**changes), Level.PROCESSES).key

    settings = {"model": "mlp", "batch_size": 4}
    assert key_of() == key_of(options=("staleness=1",), num_workers=4, compute=["det"])
    assert key_of(settings=settings | {"learning_rate": 1.0}) == key_of(settings=settings | {"learning_rate": 0.1})
    assert key_of(settings=settings) != key_of()
    assert key_of(update="async", options=()) != key_of()


def test_a_calibrated_simulation_has_the_times_of_a_cluster_of_that_cost(tmp_path, monkeypatch):
    """Three of four workers at a barrier, 20 ms a step: without the cost of 4 ms it would be 15 % too fast."""
    SimulatedCluster(monkeypatch)
    delayed = DelayedTraining("sync", (), 4, 100, ["det:jitter=0.05,mean_ms=20"])
    run = Run("r", None, seed=1, level=Level.PROCESSES)
    alone = Calibrations().execute(calibration.run_for(delayed, Level.PROCESSES), tmp_path).figures
    measured = real_clusters.update_secs(delayed.train(run, tmp_path))[-1]
    assert measured / delayed.simulate(run, alone.cost).schedule.update_secs[-1] == pytest.approx(1.0, abs=0.01)
    assert measured / delayed.simulate(run, StepCost()).schedule.update_secs[-1] > 1.1
