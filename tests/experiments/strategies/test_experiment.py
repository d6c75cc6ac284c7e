"""The experiment on strategies: its claims hold, fail for contrary results, and its refusals are those of the rules."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from ps_trainer import component_tables
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.cpu import CpuUse
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.strategies import experiment as experiment_module
from ps_trainer.experiments.strategies import texts
from ps_trainer.experiments.strategies.cases import (
    DENSE,
    PERIOD,
    WITH_TABLES,
    Strategy,
    StrategyModel,
    StrategySettings,
    refusal,
)
from ps_trainer.experiments.strategies.claims import SPEEDUP
from ps_trainer.experiments.strategies.experiment import TRAININGS, Strategies, config_of
from ps_trainer.training import components
from tests.experiments.executed import drawn, findings_of, refuted

PARAMETER_BYTES = 1_000_000


def as_claimed(run):
    """The figures of a run if every claim were true."""
    strategy, noise = run.settings.strategy, 1 + 0.001 * run.seed
    speed = {Strategy.ALONE: 1.0, Strategy.ASYNC: 2.0, Strategy.BACKUP: 1.9}.get(strategy, SPEEDUP)
    traffic = {Strategy.ALONE: 0.0, Strategy.LOCAL: 1 / PERIOD}.get(strategy, 1.0)
    is_sparse = run.settings.model == StrategyModel.WIDE_DEEP
    return {
        "speed": 500 * speed * noise,
        "quality": 0.95 * noise,
        "worker_cpu_secs": (1.0 if strategy == Strategy.ALONE else 1.3) * noise,
        "ps_cpu_secs": 0.0 if strategy == Strategy.ALONE else 0.2 * noise,
        "worker_mib": 500.0,
        "ps_mib": None if strategy == Strategy.ALONE else 400.0,
        "step_bytes": traffic * 2 * PARAMETER_BYTES * (0.1 if is_sparse else 1.0) * noise,
        "parameter_bytes": PARAMETER_BYTES,
    }


def given(figures_of=as_claimed, *, quick=False, others_share=0.0):
    runs = Strategies().runs(range(3), quick=quick)
    cpu = CpuUse(1.0, 1.0 - others_share, others_share)
    return Results(RunResult(run, SimpleNamespace(**figures_of(run)), 1.0, cpu, None) for run in runs)


def test_results_as_claimed_confirm_all_claims():
    found = findings_of(Strategies(), given())
    assert found.keys() == {claim.key for claim in Strategies.claims}
    assert set(found.values()) == {ClaimFinding.OK}
    assert drawn(Strategies().plots(given())) == ["strategies"]


def test_the_quick_form_tests_some_claims():
    found = findings_of(Strategies(), given(quick=True))
    assert found.keys() == {"local_bytes", "local_quality", "sync_quality", "speedup", "cpu"}
    assert drawn(Strategies().plots(given(quick=True))) == ["strategies"]


@pytest.mark.parametrize(
    ("claims", "strategy", "name", "factor"),
    [
        ({"async_speed"}, Strategy.ASYNC, "speed", 0.5),
        ({"backup_speed"}, Strategy.BACKUP, "speed", 0.5),
        ({"local_bytes"}, Strategy.LOCAL, "step_bytes", 2.0),
        ({"local_quality"}, Strategy.LOCAL, "quality", 0.9),
        ({"sync_quality", "adaptive_quality"}, Strategy.SYNC, "quality", 0.9),
        ({"ring_bytes"}, Strategy.RING, "step_bytes", 2.0),
        ({"hybrid_bytes"}, Strategy.HYBRID, "step_bytes", 2.0),
        ({"async_quality"}, Strategy.ASYNC, "quality", 0.9),
        ({"table_bytes", "local_bytes", "ring_bytes", "hybrid_bytes"}, Strategy.SYNC, "step_bytes", 10.0),
        ({"speedup"}, Strategy.ALONE, "speed", 2.0),
        ({"cpu"}, Strategy.ALONE, "worker_cpu_secs", 3.0),
    ],
)
def test_contrary_results_refute_a_claim(claims, strategy, name, factor):
    def figures_of(run):
        figures = as_claimed(run)
        return figures | ({name: factor * figures[name]} if run.settings.strategy == strategy else {})

    assert refuted(findings_of(Strategies(), given(figures_of))) == claims


def test_speeds_of_a_machine_that_others_use_do_not_count():
    found = findings_of(Strategies(), given(others_share=0.5))
    assert not {"async_speed", "backup_speed", "speedup"} & found.keys()
    assert {"local_bytes", "sync_quality", "cpu"} <= found.keys()


def test_the_table_shows_what_a_strategy_cannot_train():
    (table,) = Strategies().analyse(given()).tables
    assert len(table.rows) == len(Strategy) * len(StrategyModel)
    refused = [row[:3] for row in table.cells() if "tables" in row[2]]
    assert len(refused) == 2 * len(WITH_TABLES) + len(DENSE)
    assert ["wide_deep", "ring all-reduce", "holds no tables"] in refused


@pytest.mark.parametrize("strategy", list(Strategy))
def test_refusals_are_those_of_the_rules(strategy):
    rule = component_tables.UPDATES.load(str(experiment_module._RULES[strategy]["update"]))
    assert bool(refusal(strategy, StrategyModel.WIDE_DEEP)) == (not rule.holds_tables)
    assert bool(refusal(strategy, StrategyModel.CNN)) == rule.needs_tables


def test_qualities_of_all_models_and_seeds_make_one_interval():
    def figures_of(run):
        figures, settings = as_claimed(run), run.settings
        is_worse = (settings.strategy, settings.model) == (Strategy.SYNC, StrategyModel.RESNET)
        return figures | ({"quality": figures["quality"] - 0.01 * run.seed} if is_worse else {})

    (check,) = [one for one in Strategies().analyse(given(figures_of)).checked if one.claim.key == "sync_quality"]
    (measure,) = check.measured
    assert measure.case == "mean of cnn, resnet"
    assert measure.value == pytest.approx((0 + 0.01 + 0.02) / 6 * -1)
    assert measure.interval.low < measure.value < measure.interval.high


def test_the_texts_give_the_steps_of_the_trainings():
    means = [training.mean_ms for training in TRAININGS.values()]
    assert (min(means), max(means)) == (texts.LEAST_MS, texts.MOST_MS)


def settings_of(strategy, model):
    training = TRAININGS[model]
    return StrategySettings(
        strategy=strategy, model=model, num_gradients=training.num_gradients, mean_ms=training.mean_ms
    )


def test_every_strategy_uses_the_same_number_of_gradients():
    for model, strategy in itertools.product(StrategyModel, Strategy):
        config = TrainConfig(**config_of(settings_of(strategy, model), 0))
        config.check()
        assert config.max_steps * strategy.gradients_per_update == TRAININGS[model].num_gradients


@pytest.mark.parametrize("model", list(StrategyModel))
def test_what_is_refused_is_refused_before_the_start_and_nothing_else(model):
    for strategy in (Strategy.RING, Strategy.HYBRID):
        config = TrainConfig(**config_of(settings_of(strategy, model), 0))
        fails = pytest.raises(OptionError, match="embedding tables") if refusal(strategy, model) else nullcontext()
        with fails:
            components.load(config, strategy.num_workers)


def test_a_real_training_gives_all_figures(tmp_path, monkeypatch):
    monkeypatch.setitem(
        TRAININGS, StrategyModel.CNN, TRAININGS[StrategyModel.CNN]._replace(num_gradients=32, mean_ms=5.0)
    )
    runs = {run.settings.strategy: run for run in Strategies().runs([0], quick=True)}
    measured = Strategies().execute(runs[Strategy.LOCAL], tmp_path)
    figures = measured.figures
    assert measured.num_workers == 2
    assert figures.speed > 0 and 0 <= figures.quality <= 1
    assert figures.worker_cpu_secs > 0 and figures.worker_mib > 50 and figures.ps_mib > 50
    assert figures.parameter_bytes == pytest.approx(4 * 35_914, rel=0.001)  # and some counters
    assert figures.step_bytes < figures.parameter_bytes
