"""Figures from real clusters, and their comparison with the simulator's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ps_trainer.experiments.harness.cpu import CpuUse
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.toolkit import real_clusters
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.delayed_training import StepCost
from tests.experiments.simulated_cluster import OVERHEAD_SECS, SimulatedCluster
from tests.testing.step_records import step_record


def a_run(seed=0):
    return Run(key=f"r{seed}", level=Level.PROCESSES, settings=SimpleNamespace(), seed=seed, expected_secs=30.0)


def step(worker, number, start, delay, end, global_step):
    return step_record(
        worker=worker,
        local_step=number,
        t_start=start,
        injected_delay=delay,
        t_end=end,
        global_step=global_step,
        wall_time=end,
    )


def test_an_update_is_dated_by_the_first_worker_that_sees_it():
    seen = [(0.5, 1), (0.6, 1), (0.9, 3), (1.0, 2), (1.4, 4)]
    training = Training({}, [step(0, i, 0.0, 0.0, end, version) for i, (end, version) in enumerate(seen)], 1.0)
    assert real_clusters.update_secs(training).tolist() == [0.5, 0.9, 0.9, 1.4]


def test_a_step_counts_as_completed_when_its_delay_is_over():
    steps = [step(1, 1, 0.0, 0.2, 0.9, 1), step(0, 1, 0.0, 0.8, 1.0, 2), step(1, 2, 0.9, 0.1, 1.2, 3)]
    schedule = real_clusters.as_schedule(Training({}, steps, 1.0), 2)
    assert schedule.steps.worker.tolist() == [1, 0, 1]
    assert schedule.steps.local_step.tolist() == [0, 0, 1]
    assert schedule.steps.t_push_done.tolist() == pytest.approx([0.2, 0.8, 1.0])
    assert schedule.steps.t_start.tolist() == [0.0, 0.0, 0.9]


def test_overhead_comes_from_steps_that_wait_for_no_other_worker():
    steps = [step(0, i, float(i), 0.5, i + 0.5 + (0.01 if i % 5 == 0 else 0.3), i) for i in range(100)]
    assert real_clusters.overhead_secs(Training({}, steps, 1.0)) == pytest.approx(0.01)


def test_the_cluster_takes_the_delays_of_the_simulator(tmp_path, monkeypatch):
    cluster = SimulatedCluster(monkeypatch)
    run = a_run(seed=3)
    delayed = real_clusters.DelayedTraining("sync", ["replicas_to_aggregate=1"], 2, 50, ["exp:mean_ms=80"])
    training = delayed.train(run, tmp_path)
    (trained,) = cluster.trained
    given = {
        "--update=sync",
        "--update_option=replicas_to_aggregate=1",
        "--straggler=exp:mean_ms=80,paced=true",
        "--seed=3",
    }
    assert given | {"--max_steps=50", "--intra_op_threads=1"} <= set(trained.flags)
    assert (trained.num_workers, trained.num_ps, trained.deadline_secs) == (2, 1, 300.0)
    assert real_clusters.overhead_secs(training) == pytest.approx(OVERHEAD_SECS)
    assert len(real_clusters.update_secs(training)) == 50
    steps = delayed.simulate(run, StepCost()).schedule.steps
    computed = (steps.t_compute_done - steps.t_pull_done)[steps.worker == 0]
    slept = [step.injected_delay for step in training.steps if step.worker == 0]
    assert slept[:40] == pytest.approx(computed[:40].tolist())


def test_a_pair_consists_of_medians_and_the_table_has_its_ratio():
    def result(seed, measured, simulated):
        measured, simulated = SimpleNamespace(x=measured), SimpleNamespace(x=simulated)
        figures = real_clusters.RealFigures(measured=measured, simulated=simulated, overhead_secs=0.005)
        return RunResult(a_run(seed), figures, 1.0, CpuUse(0.4, 1.0, 0.0, 0.004), None)

    one = real_clusters.pair("a case", Results([result(0, 2.0, 1.0), result(1, 3.0, 2.0), result(2, 9.0, 8.0)]), "x")
    assert (one.measured, one.simulated, one.ratio, one.num_seeds) == (3.0, 2.0, pytest.approx(1.5), 3)
    table = real_clusters.timing_table("x", "s", [one])
    low, high = one.interval
    # the mean of the logarithms of 2, 1.5 and 1.125, ± 2.920 standard errors
    logs = np.log([2.0, 1.5, 1.125])
    assert np.log(high) - np.log(low) == pytest.approx(2 * 2.920 * logs.std(ddof=1) / 3**0.5)
    assert low * high == pytest.approx(np.exp(2 * logs.mean()))
    cells = ["a case", "3.000", "2.000", "1.500", f"{low:.3f}", f"{high:.3f}", "5.0", "0.40", "3"]
    assert table.cells() == [cells]
    assert table.level == "L2 processes on one machine"


def test_two_cores_stay_mostly_idle():
    assert [real_clusters.mean_ms(n) for n in (1, 4, 6)] == [320, 320, 320]
    assert [real_clusters.mean_ms(n) for n in (7, 8, 16)] == [400, 400, 640]  # with the ps task 8 tasks or more
    assert [real_clusters.mean_ms(n, behind_barrier=True) for n in (4, 8)] == [480, 600]
    assert [real_clusters.mean_ms(n, in_bursts=True) for n in (1, 2, 4, 8)] == [410, 520, 740, 1180]
