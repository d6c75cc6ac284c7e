"""The scaling curve: its claims in virtual time and on simulated clusters, and with a broken link."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.scaling_curve import experiment as scaling_curve
from ps_trainer.experiments.scaling_curve import records
from ps_trainer.experiments.scaling_curve.cases import pairs_of, points_of, scale_of
from ps_trainer.experiments.scaling_curve.experiment import ScalingCurve
from ps_trainer.experiments.scaling_curve.records import (
    ASYNC,
    EVEN,
    FREQUENT,
    IMAGES_PER_STEP,
    RARE,
    SYNC,
    ClusterSetting,
    CurveFigures,
    CurveSettings,
    PointFigures,
    RealPointSettings,
)
from ps_trainer.experiments.toolkit import shaped_clusters, theory
from ps_trainer.experiments.toolkit.delayed_training import StepCost
from ps_trainer.experiments.toolkit.shaped_clusters import ShapedCluster
from ps_trainer.experiments.toolkit.step_times import with_mean
from ps_trainer.simulation.link import SharedLink
from tests.experiments.executed import drawn, findings_of, refuted, results_of

MB = 1_000_000
B = 25 * MB
COST = StepCost(overhead_secs=0.5)  # of one worker of the small real runs
VIRTUAL = ("concave_virtual", "knee", "more_ps", "median", "tail_rare")
REAL = {"concave", "fit_sync", "fit_async", "simulator", "real_median", "real_tail"}


def part(monkeypatch, why_not="switched off"):
    """The quick form with the larger model only."""
    monkeypatch.setattr(shaped_clusters, "why_not", lambda: why_not)
    experiment = ScalingCurve()
    return experiment, [run for run in experiment.runs([0], quick=True) if run.settings.cluster.num_bytes != MB]


@pytest.fixture(scope="module")
def virtual_results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        experiment, runs = part(monkeypatch)
        return results_of(experiment, runs, tmp_path_factory.mktemp("runs"))


def real_results(monkeypatch, folder, secs_of):
    """Results of small real runs whose rounds take `secs_of(setting, seed)`."""
    monkeypatch.setattr(scaling_curve, "_QUICK_REAL", scaling_curve._FULL_REAL[:14])
    experiment, runs = part(monkeypatch, why_not="")

    def train(cluster, folder):
        update, n = cluster.settings["update"], cluster.num_workers
        num_bytes = 4 * int(cluster.settings["model_option"][0].partition("=")[2])
        setting = ClusterSetting(
            update, n, cluster.num_ps, num_bytes, shaped_clusters.payload_bytes_per_sec(cluster.rate), 1250.0
        )
        assert cluster.queue_secs == 0.05
        assert cluster.settings["straggler"] == (f"{setting.compute},paced=true",)
        assert cluster.settings["max_steps"] == 5 * (3 if n == 1 else 1) * (1 if update == SYNC else n)
        secs = secs_of(setting, cluster.settings["seed"])
        step = SimpleNamespace(t_start=0.0, injected_delay=1.0, t_computed=1.0)
        step.t_end = step.t_applied = 1.0 + setting.transfer_secs + COST.overhead_secs
        training = SimpleNamespace(steps_as_json=list, window=(0.0, 1.0), warm_steps=[step])
        lost = {"num_retransmitted": 40, "num_dropped": 20}
        return SimpleNamespace(round_secs=secs, step_secs={0: [secs] * 3}, training=training, **lost)

    monkeypatch.setattr(ShapedCluster, "train", train)
    return experiment, results_of(experiment, [run for run in runs if run.level is Level.SHAPED], folder)


def test_in_virtual_time_the_quick_form_reproduces_the_shape(virtual_results):
    found = findings_of(ScalingCurve(), virtual_results)
    # With the links that the published rates need, synchronous workers are slower at the median, too.
    assert found == dict.fromkeys(VIRTUAL, ClaimFinding.OK) | {"median": ClaimFinding.REFUTED}
    assert drawn(ScalingCurve().plots(virtual_results)) == ["throughput", "paper_speedup", "paper_steps"]


def paper_results(monkeypatch, folder, shapes, counts):
    """Results of the paper's cluster with these shapes of step times and numbers of workers."""
    monkeypatch.setattr(shaped_clusters, "why_not", lambda: "switched off")
    experiment = ScalingCurve()
    own = [
        run
        for run in experiment.runs([0], quick=False)
        if run.settings.scale == "paper" and run.settings.cluster.shape in shapes
    ]
    small = [dataclasses.replace(run, settings=dataclasses.replace(run.settings, counts=counts)) for run in own]
    return results_of(experiment, small, folder)


def test_the_tail_is_longer_only_where_delays_are_rarer_than_one_in_n(monkeypatch, tmp_path):
    # The slowest of many varies less than one alone, and with 50 workers most rounds have one delay in 50.
    results = paper_results(monkeypatch, tmp_path, (EVEN, FREQUENT), [50])
    assert findings_of(ScalingCurve(), results) == {"tail_frequent": ClaimFinding.OK}


def test_delays_that_stay_rare_refute_that_the_tail_is_not_longer(monkeypatch, tmp_path):
    monkeypatch.setattr(records.ClusterSetting, "compute", property(lambda one: with_mean(RARE, one.mean_ms)))
    results = paper_results(monkeypatch, tmp_path, (FREQUENT,), [50])
    assert findings_of(ScalingCurve(), results) == {"tail_frequent": ClaimFinding.REFUTED}


@pytest.mark.parametrize(("factor", "finding"), [(1.0, ClaimFinding.OK), (0.5, ClaimFinding.REFUTED)])
def test_the_published_throughput_of_200_workers_decides_the_calibrated_model(factor, finding):
    def result(update):
        setting = records.paper_setting(update, RARE)
        secs = records.NUM_LARGEST * IMAGES_PER_STEP / records.RATES_200[update].value / factor
        point = PointFigures(round_secs=secs, percentiles=[secs] * 4, simulated_secs=secs)
        run = Run(update, CurveSettings(cluster=setting, scale="paper", counts=[records.NUM_LARGEST]))
        return RunResult(run, CurveFigures(points={str(records.NUM_LARGEST): point}), 1.0, None, None)

    assert findings_of(ScalingCurve(), Results(map(result, (SYNC, ASYNC))))["paper_throughput"] is finding


def test_the_calibrated_model_gives_the_two_points_of_its_calibration():
    setting = records.paper_setting(ASYNC, RARE)
    for n, p, rate in ((1, 1, records.RATE_1), (records.NUM_TOGETHER, records.NUM_TOGETHER_PS, records.RATE_50)):
        assert IMAGES_PER_STEP / setting._replace(n=n, p=p).predicted_secs() == pytest.approx(rate.value)
    low, high = records.reading_range(ASYNC)
    assert 0.8 < low < 1 < high < 1.2


def real_result(setting, seed, factor, percentiles=None, **settings):
    """The result of a real run whose rounds take `factor` times as long as predicted."""
    settings = RealPointSettings(cluster=setting, scale="ours", rate="200mbit", rounds=15, **settings)
    secs = factor * setting.predicted_secs()
    point = PointFigures(round_secs=secs, percentiles=percentiles or [secs] * 4, simulated_secs=secs / 1.1)
    run = Run(f"L3-{seed}", settings, seed, level=Level.SHAPED)
    return RunResult(run, CurveFigures(points={str(setting.n): point}), 1.0, None, None)


def test_the_seeds_of_a_case_give_it_an_interval():
    setting = ClusterSetting(SYNC, 4, 1, 4 * MB, B, 200.0)
    (point,) = points_of(Results([real_result(setting, 0, 1.0), real_result(setting, 1, 1.21)]))
    half = 6.314 * math.log(1.21) / 2  # of two values, the standard error is half their distance
    value, (low, high) = point.over_predicted()
    assert (value, low, high) == pytest.approx((1.1, 1.1 * math.exp(-half), 1.1 * math.exp(half)))
    value, interval = point.over_simulated()
    assert (value, *interval) == pytest.approx((1.1, 1.1, 1.1))


@pytest.mark.parametrize(("factor", "finding"), [(1.3, ClaimFinding.OK), (0.9, ClaimFinding.REFUTED)])
def test_long_queues_are_an_arm_of_their_own(factor, finding):
    setting = ClusterSetting(ASYNC, 2, 1, 4 * MB, B, 1250.0)
    short = [real_result(setting, seed, 1.0) for seed in (0, 1)]
    long = [real_result(setting, seed, factor, queue_secs=0.5) for seed in (0, 1)]
    results = Results([*long, *short])
    ((slow, usual),) = scale_of(results).by_queues
    assert slow.secs_over(usual).value == pytest.approx(factor)
    checked = {one.claim.key: one for one in ScalingCurve().analyse(results).checked}
    assert checked["queues"].finding is finding
    # No other claim, curve or plot has the arm.
    assert [one.value for one in checked["fit_async"].measured] == [pytest.approx(1.0)]
    assert [curve.points for curve in scale_of(results).curves] == [[usual]]
    table = scaling_curve.OurScale().tables(scale_of(results))[0]
    assert [row[4] for row in table.rows] == [50, 500]


@pytest.mark.parametrize(
    ("percentiles", "median", "tail"),
    [
        ([0.9, 1.2, 1.3, 1.4], ClaimFinding.OK, ClaimFinding.OK),
        ([0.9, 1.8, 1.9, 2.0], ClaimFinding.REFUTED, ClaimFinding.OK),
        ([0.9, 1.2, 1.3, 2.8], ClaimFinding.OK, ClaimFinding.REFUTED),
    ],
)
def test_steps_of_real_clusters_are_compared_at_the_median_and_far_above_it(percentiles, median, tail):
    own = {SYNC: percentiles, ASYNC: [0.8, 1.0, 1.1, 1.2]}
    found = findings_of(
        ScalingCurve(),
        Results(
            real_result(ClusterSetting(update, 2, 1, 4 * MB, B, 1250.0), seed, 1.0, each)
            for update, each in own.items()
            for seed in (0, 1)
        ),
    )
    assert (found["real_median"], found["real_tail"]) == (median, tail)


def test_workers_of_the_source_begin_one_after_the_other_so_that_they_are_not_in_step():
    setting = records.paper_setting(ASYNC, RARE)._replace(n=records.NUM_LARGEST)
    spread = setting.simulate(40, seed=0).round_secs
    assert spread == pytest.approx(setting.predicted_secs(), rel=0.1)
    assert setting._replace(begins_together=True).simulate(40, seed=0).round_secs > 1.2 * spread


def test_single_cases_outside_do_not_refute_a_family_and_are_named(monkeypatch, tmp_path):
    def one_slow(setting, seed):
        is_slow = (setting.n, setting.p, setting.num_bytes) == (2, 1, 4 * MB) and setting.update == ASYNC
        return (1.4 if is_slow else 1.0) * setting.predicted_secs()

    experiment, results = real_results(monkeypatch, tmp_path, one_slow)
    (check,) = [one for one in experiment.analyse(results).checked if one.claim.key == "fit_async"]
    assert check.finding is not ClaimFinding.REFUTED
    assert "outside, farthest: 1.4 (L3, async, n=2, p=1, 4 MB)" in check.text


def test_links_that_are_not_shared_refute_knee_and_gain_of_ps_tasks(monkeypatch, tmp_path):
    monkeypatch.setattr(SharedLink, "_rate", lambda link: link._flow)
    experiment, runs = part(monkeypatch)
    own = [run for run in runs if run.settings.scale == "ours"]
    findings = findings_of(experiment, results_of(experiment, own, tmp_path))
    assert {"knee", "more_ps"} <= refuted(findings)


def test_real_clusters_that_behave_like_the_simulator(monkeypatch, tmp_path):
    experiment, results = real_results(monkeypatch, tmp_path, lambda s, seed: 1.05 * s.simulate_long(seed).round_secs)
    findings = findings_of(experiment, results)
    assert {findings[key] for key in ("simulator", "fit_sync", "fit_async")} == {ClaimFinding.OK}
    assert drawn(experiment.plots(results)) == ["throughput", "steps"]


def test_the_cost_of_a_step_with_one_worker_is_in_the_simulation_of_several(monkeypatch, tmp_path):
    _, results = real_results(monkeypatch, tmp_path, lambda setting, seed: setting.predicted_secs())
    for result in results:
        setting, seed = result.run.settings.cluster, result.run.seed
        (figures,) = result.figures.points.values()
        assert figures.simulated_secs == pytest.approx(setting.simulate_long(seed, COST).round_secs)
        # Among many asynchronous workers, the links hide a part of it.
        assert figures.simulated_secs > setting.simulate_long(seed).round_secs + (0.4 if setting.update == SYNC else 0)
        assert (figures.calibration is None) == (setting.n > 1)


def test_real_clusters_whose_links_have_half_the_rate(monkeypatch, tmp_path):
    def at_half(setting, seed):
        return setting._replace(bytes_per_sec=setting.bytes_per_sec / 2).simulate_long(seed).round_secs

    experiment, results = real_results(monkeypatch, tmp_path, at_half)
    assert {"simulator", "fit_sync", "fit_async"} <= refuted(findings_of(experiment, results))


def test_without_shaped_hosts_the_real_part_gives_the_reason(monkeypatch, virtual_results):
    monkeypatch.setattr(shaped_clusters, "why_not", lambda: "tc not found")
    experiment = ScalingCurve()
    checked = {one.claim.key: one for one in experiment.analyse(virtual_results).checked}
    assert {key for key, one in checked.items() if one.finding is ClaimFinding.NOT_TESTABLE} == {
        *REAL,
        "queues",
        "paper_throughput",
        "tail_frequent",
    }
    assert "tc not found" in checked["fit_sync"].text


@pytest.mark.parametrize(("update", "directions"), [(SYNC, 2), (ASYNC, 1)])
def test_knee_is_where_one_workers_line_meets_the_ceiling(update, directions):
    setting = ClusterSetting(update, 8, 2, 4 * MB, B, 200.0)
    alone_secs = 0.2 + 2 * 4 / 25
    assert setting._replace(n=1).predicted_secs() == pytest.approx(alone_secs, rel=0.01)
    assert setting.ceiling() == pytest.approx(2 * 25 / (4 * directions))
    assert setting.knee() == pytest.approx(2 * 25 / (4 * directions) * alone_secs, rel=0.01)


@pytest.mark.parametrize(("n", "p", "num_bytes"), [(4, 1, 4 * MB), (8, 2, 4 * MB), (8, 1, MB)])
def test_simulated_asynchronous_steps_are_those_of_the_closed_network(n, p, num_bytes):
    setting = ClusterSetting(ASYNC, n, p, num_bytes, B, mean_ms=200)
    assert setting.simulate(1000, seed=0).round_secs == pytest.approx(setting.predicted_secs(), rel=0.04)


def test_simulated_steps_without_transfers_are_the_slowest_workers():
    setting = ClusterSetting(SYNC, 8, 1, 1, 1e12, 200.0)
    measured = setting.simulate(2000, seed=1).round_secs
    draws = np.random.default_rng(0).lognormal(-0.02, 0.2, (20000, 8)) * 0.2  # mean 0.2
    assert measured == pytest.approx(draws.max(axis=1).mean(), rel=0.02)
    assert setting.predicted_secs() == pytest.approx(measured, rel=0.02)


def test_a_synchronous_round_that_transfers_only_takes_the_closed_forms_time():
    setting = ClusterSetting(SYNC, 8, 2, 4 * MB, B, 0.001)
    assert setting.simulate(50, seed=0).round_secs == pytest.approx(theory.ps_round_secs(4 * MB, 8, 2, B), rel=0.01)


def test_one_worker_alone_begins_the_curves_of_both_rules(monkeypatch, tmp_path):
    _, results = real_results(monkeypatch, tmp_path, lambda setting, seed: setting.predicted_secs())
    curves = scale_of(results).curves
    by_name = {curve.name: [point.setting.n for point in curve.points] for curve in curves}
    assert by_name["L3, sync, p=1, 4 MB"] == by_name["L3, async, p=1, 4 MB"] == [1, 2, 4, 8]
    assert by_name["L3, async, p=2, 4 MB"] == [1, 8]
    assert by_name["L3, sync, p=4, 4 MB"] == by_name["L3, async, p=4, 4 MB"] == [1, 4]


def test_pairs_belong_to_the_same_cluster(virtual_results):
    pairs = pairs_of(points_of(virtual_results.where(scale="paper")))
    assert all(pair.sync.setting == pair.other.setting._replace(update=SYNC) for pair in pairs)
    assert sorted({pair.sync.setting.n for pair in pairs}) == [10, 25, 50]


def test_slow_links_leave_the_knees_where_fast_ones_have_them(monkeypatch):
    monkeypatch.setattr(shaped_clusters, "why_not", lambda: "")
    real = [run.settings for run in ScalingCurve().runs(range(5), quick=False) if run.level is Level.SHAPED]
    assert {(one.rate, one.rounds, one.cluster.mean_ms) for one in real} == {
        ("32mbit", rounds, 1250.0) for rounds in (7, 21)
    }
    assert {run.seed for run in ScalingCurve().runs(range(5), quick=False) if run.level is Level.SHAPED} == {*range(5)}
    assert {one.cluster.bytes_per_sec for one in real} == {32e6 / 8 * 1448 / 1514}
    for one in (one.cluster for one in real):
        fast = one._replace(bytes_per_sec=200e6 / 8 * 1448 / 1514, mean_ms=200.0)
        assert one.knee() == pytest.approx(fast.knee())
        assert one.predicted_secs() == pytest.approx(200 / 32 * fast.predicted_secs())


@pytest.mark.parametrize(("is_quick", "most_minutes"), [(False, 105), (True, 2)])
def test_the_runs_are_planned_to_end_in_time(monkeypatch, is_quick, most_minutes):
    monkeypatch.setattr(shaped_clusters, "why_not", lambda: "")
    runs = ScalingCurve().runs(range(5), quick=is_quick)
    assert sum(run.expected_secs for run in runs) < 60 * most_minutes


def test_without_any_run_there_is_no_finding():
    assert points_of(Results()) == []
