"""Runs of the experiment on strategies."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.runs import Measured, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import real_clusters
from ps_trainer.experiments.toolkit.clusters import LOGDIR_NAME, QUIET, Cluster, Training, flags_of
from ps_trainer.experiments.toolkit.task_resources import TaskResources

from . import claims, plots, tables
from .cases import (
    ALPHA,
    PERIOD,
    Strategy,
    StrategyCell,
    StrategyFigures,
    StrategyModel,
    StrategySettings,
    refusal,
)
from .texts import TEXTS

_RULES: Mapping[Strategy, Mapping[str, Any]] = {
    Strategy.ALONE: {"update": "async"},
    Strategy.SYNC: {"update": "sync"},
    Strategy.ASYNC: {"update": "async"},
    Strategy.BACKUP: {"update": "backup", "update_option": ("backup_workers=1",)},
    Strategy.RING: {"update": "all_reduce"},
    Strategy.HYBRID: {"update": "hybrid"},
    Strategy.LOCAL: {"update": "local_sgd", "update_option": (f"period={PERIOD}",)},
}
_AVERAGING = (Strategy.SYNC, Strategy.BACKUP, Strategy.RING, Strategy.HYBRID)
_QUICK_STRATEGIES = (Strategy.ALONE, Strategy.SYNC, Strategy.LOCAL)
_NO_PARAMETERS = ("global_step", "data/position")  # of the variables in a checkpoint
_DEADLINE_SECS = 400.0
_START_SECS = 1.0
_START_SECS_PER_WORKER = 1.0


class ModelTraining(NamedTuple):
    """The training of a model."""

    flags: Mapping[str, Any]  # fields of `TrainConfig`: data, model, batch size, optimizer
    learning_rate: float  # of one process
    factor: float  # of the learning rate where an update averages two gradients; 1 for adaptive optimizers
    num_gradients: int  # a multiple of 2 · `PERIOD`
    mean_ms: float  # of a step; several times what a worker computes, so that two cores serve all workers
    metric: str  # test metric, 0..1
    is_error: bool = False  # whether the metric is an error, whose complement is the quality


TRAININGS = {
    StrategyModel.CNN: ModelTraining(
        {"dataset": "digits", "batch_size": 32, "optimizer": "momentum"}, 0.02, 2.0, 240, 30.0, "accuracy"
    ),
    StrategyModel.RESNET: ModelTraining(
        {"dataset": "glyphs", "model_option": ("depth=8",), "batch_size": 32, "optimizer": "momentum"},
        0.05, 2.0, 320, 40.0, "accuracy",
    ),
    StrategyModel.SPEECH: ModelTraining(
        {"dataset": "tones", "model_option": ("units=48",), "batch_size": 16, "optimizer": "adam"},
        0.01, 1.0, 256, 90.0, "label_error_rate", is_error=True,
    ),
    StrategyModel.TRANSFORMER: ModelTraining(
        {"dataset": "numbers", "batch_size": 32, "optimizer": "adam", "optimizer_option": ("beta2=0.98",)},
        0.002, 1.0, 240, 60.0, "exact_match",
    ),
    StrategyModel.WIDE_DEEP: ModelTraining(
        {
            "dataset": "planted_clicks",
            "model_option": ("crosses=8x9,10x11,12x13,14x15", "dim=4", "hidden=32"),
            "batch_size": 256,
            "optimizer": "adagrad",
            "optimizer_for": ("wide/*=ftrl:learning_rate=0.5",),
        },
        0.1, 1.0, 240, 30.0, "auc",
    ),
    StrategyModel.WORD2VEC: ModelTraining(
        {"dataset": "planted_synonyms", "batch_size": 512, "optimizer": "adagrad"}, 1.0, 1.0, 640, 20.0, "recovered"
    ),
}  # fmt: skip


class Cells(Part[StrategySettings, StrategyFigures]):
    """Trainings of each model with each strategy that can train it, from the same number of used gradients."""

    figures_type = StrategyFigures
    claims = claims.OF_CELLS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[StrategySettings]]:
        return [
            run
            for model in ((StrategyModel.CNN,) if quick else StrategyModel)
            for strategy in (_QUICK_STRATEGIES if quick else Strategy)
            if not refusal(strategy, model)
            for settings in [
                StrategySettings(
                    strategy=strategy,
                    model=model,
                    num_gradients=TRAININGS[model].num_gradients,
                    mean_ms=TRAININGS[model].mean_ms,
                )
            ]
            for run in runs_of_seeds(
                seeds,
                f"L2-{model}-{strategy.name.lower()}",
                settings,
                _expected_secs(settings),
                real_clusters.LEVEL,
                is_paced=False,  # workers compute, though for less than their steps last
            )
        ]

    def execute(self, run: Run[StrategySettings], folder: pathlib.Path) -> Measured[StrategyFigures]:
        strategy = run.settings.strategy
        cluster = Cluster(
            num_workers=strategy.num_workers,
            num_ps=0 if strategy == Strategy.ALONE else 1,
            flags=flags_of(config_of(run.settings, run.seed)),
            deadline_secs=_DEADLINE_SECS,
        )
        with TaskResources() as resources:
            training = cluster.train(folder)
        return Measured(
            _figures(run.settings, training, resources, parameter_bytes(folder / LOGDIR_NAME / "checkpoints")),
            window=training.window,
            num_workers=strategy.num_workers,
        )

    cases = staticmethod(case_factory(StrategyCell, "model", "strategy"))
    tables = staticmethod(tables.of_cells)
    plots = plots.OF_CELLS

    def why_none(self, cases: Any) -> str:
        """Returns the reason why nothing was measured."""
        del cases
        return "the short form has no such strategy or model, or others used the cores"


class Strategies(Experiment):
    """Strategies: speed, quality and resources of seven ways to train six models."""

    name = "strategies"
    source = (
        "Chen et al. 2016, abstract; Goyal et al. 2017, section 2.1; Abadi et al. 2016 (OSDI), section 4.2, in a"
        " summary; Stich 2019, abstract; Kim et al. 2019 (Parallax), abstract"
    )
    texts = TEXTS
    parts = (Cells(),)
    num_quick_seeds = 1


def config_of(settings: StrategySettings, seed: int) -> dict[str, Any]:
    """Returns the fields of `TrainConfig` of a run."""
    model, strategy = TRAININGS[settings.model], settings.strategy
    return {
        **QUIET,
        "model": settings.model,
        **model.flags,
        **_RULES[strategy],
        "learning_rate": model.learning_rate * (model.factor if strategy in _AVERAGING else 1.0),
        "max_steps": settings.num_gradients // strategy.gradients_per_update,
        "straggler": (f"shifted_exp:alpha={ALPHA:g},mean_ms={settings.mean_ms:g},paced=true",),
        "seed": seed,
    }


def _expected_secs(settings: StrategySettings) -> float:
    num_workers = settings.strategy.num_workers
    steps = settings.num_gradients / min(2, num_workers)
    return _START_SECS + _START_SECS_PER_WORKER * num_workers + 1.2 * steps * settings.mean_ms / 1000


def parameter_bytes(checkpoints: pathlib.Path) -> int:
    """Returns the size in bytes of the parameters in a checkpoint, without the slots of optimizers.

    The name of a slot continues that of its parameter. Imports TensorFlow.
    """
    import tensorflow.compat.v1 as tf

    shapes = dict(tf.train.list_variables(str(checkpoints)))
    own = [
        shape for name, shape in shapes.items() if name.rpartition("/")[0] not in shapes and name not in _NO_PARAMETERS
    ]
    return 4 * sum(math.prod(shape) for shape in own)


def _figures(
    settings: StrategySettings, training: Training, resources: TaskResources, num_bytes: int
) -> StrategyFigures:
    model, (start, end) = TRAININGS[settings.model], training.window
    # The window begins at the end of the first of these steps.
    used = sum(step.examples for step in training.warm_steps[1:] if not step.dropped)
    metric = float(training.summary["metrics"][model.metric])
    workers = list(training.summary["workers"].values())
    traffic = [(one.get("push_bytes_per_step") or 0.0) + (one.get("pull_bytes_per_step") or 0.0) for one in workers]
    return StrategyFigures(
        speed=used / (end - start),
        quality=1 - metric if model.is_error else metric,
        worker_cpu_secs=1000 * resources.cpu_secs("worker", start, end) / used,
        ps_cpu_secs=1000 * resources.cpu_secs("ps", start, end) / used,
        worker_mib=resources.peak_mib("worker"),
        ps_mib=resources.peak_mib("ps"),
        step_bytes=float(np.mean(traffic)),
        parameter_bytes=num_bytes,
    )
