"""Runs of the experiment on linear scaling."""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Sequence

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.runs import Measured, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import virtual_run, virtual_training

from . import claims, plots, tables
from .cases import BATCH_SIZE, NUM_EXAMPLES, NUM_TRAIN, ScaledFigures, ScaledSettings, ScaledTraining, Scaling
from .texts import TEXTS

TARGET = 0.97
RATE = 0.05  # of one worker, which is fastest with 0.2 to 0.4, so that k times it is a useful rate for some k
_COUNTS = (1, 2, 4, 8, 16, 32)
_QUICK_COUNTS = (1, 2, 8)
_SECS_PER_GRADIENT = 0.001


class ScaledTrainings(Part[ScaledSettings, ScaledFigures]):
    """Examples to a training accuracy, by the number of workers and the learning rate."""

    figures_type = ScaledFigures
    claims = claims.OF_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[ScaledSettings]]:
        counts = _QUICK_COUNTS if quick else _COUNTS
        arms = [(1, Scaling.NONE), *itertools.product(counts[1:], Scaling)]
        settings = [
            ScaledSettings(k=k, scaling=scaling, lr=RATE * {Scaling.NONE: 1.0, Scaling.ROOT: k**0.5}.get(scaling, k))
            for k, scaling in arms
        ]
        secs = 0.5 + _SECS_PER_GRADIENT * NUM_EXAMPLES / BATCH_SIZE / 2
        return [
            run
            for one in settings
            for run in runs_of_seeds(seeds, f"L0-k={one.k}-scaling={one.scaling.name.lower()}", one, secs)
        ]

    def execute(self, run: Run[ScaledSettings], folder: pathlib.Path) -> Measured[ScaledFigures]:
        settings = run.settings
        per_update = BATCH_SIZE * settings.k
        # One epoch, as the source's warm-up lasts a small part of the training.
        warmup = math.ceil(NUM_TRAIN / per_update) if settings.scaling == Scaling.WARM else 0
        # The steps of all workers take equally long: which one is late does not matter behind a barrier.
        schedule = virtual_run.run(
            "sync",
            num_workers=settings.k,
            compute=["det:mean_ms=1"],
            num_updates=NUM_EXAMPLES // per_update,
            seed=run.seed,
        ).schedule
        course = virtual_training.course_of(
            schedule,
            "sync",
            target=TARGET,
            model="mlp",
            model_options=("hidden=32",),
            learning_rate=settings.lr,
            warmup_steps=warmup,
            batch_size=BATCH_SIZE,
            seed=run.seed,
        )
        reached = None if course.target_step is None else course.target_step * BATCH_SIZE
        return Measured(ScaledFigures(examples=reached, losses=course.losses), course.records())

    cases = staticmethod(case_factory(ScaledTraining, "k", "scaling"))
    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class LinearScaling(Experiment):
    """Linear scaling and warm-up: how the learning rate must grow with the number of synchronous workers."""

    name = "linear_scaling"
    source = "Goyal et al. 2017, sections 2.1, 2.2 and 5; Krizhevsky 2014"
    texts = TEXTS
    parts = (ScaledTrainings(),)
    published = claims.PUBLISHED
    num_seeds = 10
    num_quick_seeds = 3
