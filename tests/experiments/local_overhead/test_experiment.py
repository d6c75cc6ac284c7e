"""The experiment on the cost of distribution: its claims hold, and fail for a cluster that is broken on purpose."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.local_overhead.cases import Overheads, SizedModel, line_of, overheads_of
from ps_trainer.experiments.local_overhead.experiment import LocalOverhead
from ps_trainer.experiments.toolkit import local_control
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.stock_clusters import StockCluster
from tests.experiments.executed import drawn, findings_of, refuted, results_of
from tests.testing import plain_loop
from tests.testing.step_records import step_record

FIXED_MS, MS_PER_MB = 2.0, 5.0


class Twice:
    """Broken training: every gradient is applied twice."""

    @staticmethod
    def change(config):
        return dataclasses.replace(config, learning_rate=2 * config.learning_rate)


class Shifted:
    """Broken training: other initial values."""

    @staticmethod
    def change(config):
        return dataclasses.replace(config, seed=config.seed + 1)


class Right:
    """Correct training."""

    @staticmethod
    def change(config):
        return config


@pytest.fixture
def trained(monkeypatch):
    """Replaces both processes by real losses of few steps and times of a + b·M; returns the parts that may break."""
    broken = [Right]

    def records(config, step_ms):
        steps = plain_loop.train(dataclasses.replace(config, max_steps=10))
        return [
            step_record(local_step=i + 1, t_start=float(i), t_end=i + step_ms / 1000, loss=step["loss"])
            for i, step in enumerate(steps)
        ]

    def train(cluster, folder):
        given = dict(flag.removeprefix("--").split("=", 1) for flag in cluster.flags if "model_option" not in flag)
        options = [flag.partition("=")[2] for flag in cluster.flags if "model_option" in flag]
        numbers = {name: int(given[name]) for name in ("seed", "batch_size")}
        config = plain_loop.config_of(
            {name: given[name] for name in ("model", "dataset")}
            | {"model_option": options, "learning_rate": float(given["learning_rate"]), **numbers}
        )
        if not cluster.num_ps:
            return Training({}, records(config, 1.0), 1.0)
        pushed = {(): 650 * 4, ("hidden=1024,1024",): 1_126_410 * 4}[tuple(options)]
        summary = {"workers": {"0": {"push_bytes_computed": pushed}}}
        return Training(summary, records(broken[-1].change(config), 1.0 + FIXED_MS + MS_PER_MB * pushed / 1e6), 1.0)

    def train_stock(cluster, folder):
        settings = {name: value for name, value in cluster.settings.items() if name != "model_option"}
        config = plain_loop.config_of({**settings, "model_option": list(cluster.settings["model_option"])})
        changed = broken_stock[-1].change(config)
        return Training({}, records(changed, 1.0 + stock_ms[-1]), 1.0)

    broken_stock, stock_ms = [Right], [60.0]
    monkeypatch.setattr(local_control.Cluster, "train", train)
    monkeypatch.setattr(StockCluster, "train", train_stock)
    return SimpleNamespace(cluster=broken, stock=broken_stock, stock_ms=stock_ms)


@pytest.fixture
def quick(trained, tmp_path):
    def results():
        experiment = LocalOverhead()
        return experiment, results_of(experiment, experiment.runs([3], quick=True), tmp_path)

    return results


def test_one_worker_has_the_losses_of_one_process(quick):
    experiment, results = quick()
    assert results.figures("loss_difference") == [0.0, 0.0]
    assert refuted(findings_of(experiment, results)) == set()
    assert drawn(experiment.plots(results)) == ["overhead"]


@pytest.mark.parametrize("fault", [Twice, Shifted])
def test_a_broken_cluster_refutes_the_equality(quick, trained, fault):
    trained.cluster.append(fault)
    assert refuted(findings_of(*quick())) == {"equal"}


def test_a_script_that_trains_otherwise_refutes_the_comparison(quick, trained):
    trained.stock.append(Twice)
    assert refuted(findings_of(*quick())) == {"stock_equal"}


@pytest.mark.parametrize(("stock_ms", "claims"), [(1.0, {"over_stock"}), (-0.5, {"over_stock", "stock_slower"})])
def test_a_fast_script_refutes_the_claims_about_it(quick, trained, stock_ms, claims):
    trained.stock_ms.append(stock_ms)
    assert refuted(findings_of(*quick())) == claims


def test_a_cluster_that_lacks_a_step_is_not_equal(tmp_path):
    steps = [step_record(t_end=1.0)] * 3
    assert local_control.Comparison(steps, Training({}, steps, 1.0)).is_equal
    assert not local_control.Comparison(steps, Training({}, steps[1:], 1.0)).is_equal
    assert not local_control.Comparison(steps, Training({}, [*steps[1:], step_record(loss=None)], 1.0)).is_equal


def test_sizes_are_medians_over_seeds_and_the_overhead_their_difference(quick):
    _, results = quick()
    sizes = overheads_of(results).sizes
    assert [size.parameters for size in sizes] == [650, 1_126_410]
    assert [size.local.median for size in sizes] == pytest.approx([1.0, 1.0])
    assert [size.overhead.value for size in sizes] == pytest.approx(
        [FIXED_MS + MS_PER_MB * size.parameters * 4 / 1e6 for size in sizes]
    )


def test_two_models_are_too_few_for_a_line(quick):
    experiment, results = quick()
    checked = {one.claim.key: one.text for one in experiment.analyse(results).checked}
    assert "needs 4 models" in checked["linear"]


def test_each_model_is_predicted_by_the_line_of_the_others():
    sizes = [
        sized(parameters, FIXED_MS + MS_PER_MB * parameters * 4 / 1e6) for parameters in (10**3, 10**5, 10**6, 10**7)
    ]
    assert [ratio.value for _, ratio in Overheads(Results(), sizes).over_others()] == pytest.approx([1.0] * 4)
    off = [*sizes[:3], sized(10**7, 2 * sizes[3].overhead.value)]
    assert Overheads(Results(), off).over_others()[3][1].value == pytest.approx(2.0)
    assert Overheads(Results(), sizes[:3]).over_others() == []


def sized(parameters, overhead_ms):
    """A model with this overhead."""
    figures = SimpleNamespace(parameters=parameters, local_ms=[1.0], cluster_ms=[1.0 + overhead_ms], stock_ms=None)
    run = Run(key="k", level=Level.PROCESSES, settings=SimpleNamespace())
    return SizedModel(Results([RunResult(run, figures, 1.0, None, None)]))


def test_three_models_on_a_line_give_its_two_parameters():
    sizes = [sized(parameters, FIXED_MS + MS_PER_MB * parameters * 4 / 1e6) for parameters in (10**3, 10**5, 10**7)]
    line = line_of(sizes)
    assert (line.a, line.b) == (pytest.approx(FIXED_MS), pytest.approx(MS_PER_MB))
    assert line_of(sizes[:2]) is None


def test_full_runs_compare_other_rules_optimizers_layouts_and_numbers_of_ps_tasks():
    runs = LocalOverhead().runs(range(5), quick=False)
    others = [run.settings for run in runs if run.settings.part == "rules"]
    assert {"momentum", "adam"} <= {one.optimizer for one in others}
    assert {"sync", "ssp"} <= {one.update for one in others}
    assert {one.num_ps for one in others} == {None, 2}
    assert len({run.settings.model_option for run in runs}) == 5
    assert len({run.key for run in runs}) == len(runs)


def test_published_numbers_state_that_they_come_from_a_summary():
    assert all("a summary of" in str(one) for one in LocalOverhead.published)
    assert "AlexNet on one GPU, TensorFlow: 81 ms" in str(LocalOverhead.published[0])
