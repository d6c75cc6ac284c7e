"""Runs of the experiment on the cost of distribution on one machine."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Measured, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import local_control
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.stock_clusters import StockCluster

from . import claims, plots, tables
from .cases import BYTES_PER_PARAMETER, RULES, SIZES, OverheadFigures, OverheadSettings, overheads_of
from .texts import TEXTS

_LEVEL = Level.PROCESSES
_START_SECS = 16.0
_STOCK_START_SECS = 12.0

# Model, its option, number of steps, and approximate seconds of a step with a ps task.
_BY_SIZE = (
    ("softmax", "", 300, 0.003),
    ("mlp", "hidden=128", 300, 0.003),
    ("cnn", "", 300, 0.01),
    ("mlp", "hidden=512,512", 200, 0.01),
    ("mlp", "hidden=1024,1024", 150, 0.025),
    ("mlp", "hidden=2048,2048", 100, 0.09),
)
_QUICK_SIZES = (_BY_SIZE[0], _BY_SIZE[4])
_EQUAL_TOO: tuple[dict[str, Any], ...] = (
    {"optimizer": "momentum"},
    {"optimizer": "adam", "learning_rate": 0.001},
    {"update": "sync"},
    {"update": "ssp"},
    {"num_ps": 2},
    {"layout": "per_variable", "num_ps": 2},
    {"layout": "per_variable", "update": "sync_replicas"},
)


class OneWorker(Part[OverheadSettings, OverheadFigures]):
    """One worker with ps tasks, and the same training in one process; of models by size, also with the TF1 script."""

    figures_type = OverheadFigures
    claims = claims.CLAIMS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[OverheadSettings]]:
        sizes = _QUICK_SIZES if quick else _BY_SIZE
        runs = [run for size in sizes for run in _runs(seeds, SIZES, *size)]
        if quick:
            return runs
        equal_too = [_runs(seeds[:1], RULES, "mlp", "hidden=128", 200, 0.005, **other) for other in _EQUAL_TOO]
        return [*runs, *itertools.chain(*equal_too)]

    def execute(self, run: Run[OverheadSettings], folder: pathlib.Path) -> Measured[OverheadFigures]:
        of_harness = ("part", "num_ps")
        training = {name: value for name, value in run.settings.as_json().items() if name not in of_harness}
        training |= {"model_option": [option for option in [run.settings.model_option] if option], "seed": run.seed}
        num_ps, deadline_secs = run.settings.num_ps or 1, 10 * run.expected_secs
        done = local_control.compare(training, folder, num_ps=num_ps, deadline_secs=deadline_secs)
        stock = self._train_stock(training, folder, deadline_secs) if run.settings.part == SIZES else None
        pushed_bytes = done.cluster.summary["workers"]["0"]["push_bytes_computed"]  # size of one step's gradient
        figures = OverheadFigures(
            loss_difference=done.loss_difference,
            first_loss=done.local[0].loss,
            last_loss=done.local[-1].loss,
            num_steps=len(done.local),
            parameters=round(pushed_bytes / BYTES_PER_PARAMETER),
            local_ms=done.local_ms(),
            cluster_ms=done.cluster_ms(),
            stock_ms=local_control.step_ms(stock.steps) if stock else None,
            stock_loss_difference=local_control.Comparison(done.local, stock).loss_difference if stock else None,
        )
        return Measured(figures, done.cluster.steps_as_json() if run.seed == 0 else (), done.cluster.window)

    @staticmethod
    def _train_stock(training: Mapping[str, Any], folder: pathlib.Path, deadline_secs: float) -> Training:
        settings = {name: value for name, value in training.items() if name != "max_steps" and value is not None}
        return StockCluster(
            num_workers=1, num_updates=training["max_steps"], settings=settings, deadline_secs=deadline_secs
        ).train(folder)

    cases = staticmethod(overheads_of)
    notes = staticmethod(tables.notes)
    tables = staticmethod(tables.tables)
    plots = plots.PLOTS


class LocalOverhead(Experiment):
    """The cost of a ps task on one machine: losses and step times with and without one, and of a TF1 script."""

    name = "local_overhead"
    source = "Abadi et al. 2016 (OSDI), Table 1; tensorflow/benchmarks, issue 15"
    texts = TEXTS
    untested = "Abadi et al.'s table, which compares libraries on a GPU"
    published = claims.PUBLISHED
    parts = (OneWorker(),)
    num_quick_seeds = 1


def _runs(
    seeds: Sequence[int], part: str, model: str, option: str, steps: int, step_secs: float, **others: Any
) -> list[Run[OverheadSettings]]:
    settings = OverheadSettings(
        part=part,
        model=model,
        model_option=option,
        dataset="digits",
        batch_size=16,
        learning_rate=0.05,
        max_steps=steps,
    )
    settings = dataclasses.replace(settings, **others)
    secs = _START_SECS + 2 * steps * step_secs + (part == SIZES) * (_STOCK_START_SECS + 2 * steps * step_secs)
    named = [model, *option.replace(",", "-").split(), *(f"{name}={value}" for name, value in others.items())]
    return runs_of_seeds(seeds, "-".join(named), settings, secs, _LEVEL, is_paced=False)
