"""Searches for the best rate of an arm on pilot seeds, arms with these rates, and the trainings of all arms."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.base import Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.runs import Measured, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import virtual_run, virtual_training
from ps_trainer.experiments.toolkit.step_times import Shape, with_mean

from . import cases, claims, tables
from .cases import (
    ArmSearch,
    ArmSearchFigures,
    ArmSearchSettings,
    Rate,
    RateSettings,
    RateTrainingFigures,
    TunedFigures,
    TunedSettings,
    TunedTraining,
    Updates,
)

NAMES = {Rate.FULL: "full", Rate.BY_SPLITS: "n", Rate.BY_STALENESS: "tau", Rate.BY_RULE: "rule"}  # for run keys
NUM_LEARNERS, BATCH_SIZE = 30, 4
NUM_EXAMPLES = 1437
MODEL_OPTIONS = ("hidden=32",)
SECS_PER_STEP = 0.002
_MEAN_MS = 100.0

PILOT_SEEDS = (1001, 1002, 1003)  # of trainings that choose rates; no claim is about them
_GRID = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
# One rate for all gradients is that of α₀/τ divided by a staleness of about λ.
TUNED_RATES = {Rate.BY_STALENESS: _GRID, Rate.FULL: tuple(rate / 32 for rate in _GRID)}
NUM_EPOCHS = 12


class ArmSearches(Part[ArmSearchSettings, ArmSearchFigures]):
    """Searches for the best rate of an arm, which the tuned arms need; it plans none by itself."""

    figures_type = ArmSearchFigures
    selects = {"search": cases.SEARCH}

    def runs(self, seeds: Sequence[int], *, quick: bool) -> Sequence[Run[ArmSearchSettings]]:
        return ()

    def execute(self, run: Run[ArmSearchSettings], folder: pathlib.Path) -> Measured[ArmSearchFigures]:
        settings = run.settings
        losses = [
            [train(dataclasses.replace(settings.arm, lr=lr), seed)[0].loss for seed in settings.pilot_seeds]
            for lr in settings.rates
        ]
        return Measured(ArmSearchFigures(losses=losses))

    cases = staticmethod(case_factory(ArmSearch, "arm"))
    tables = staticmethod(tables.of_searches)


class TunedArms(Part[TunedSettings, TunedFigures]):
    """Test errors of synchronous updates and of λ-softsync, each with the rate that is best on pilot seeds."""

    figures_type = TunedFigures
    selects = {"is_tuned": True}
    claims = claims.OF_TUNED_ARMS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[TunedSettings]]:
        softsync = itertools.product((Shape.NEARLY_EVEN, Shape.EXPONENTIAL), (Rate.FULL, Rate.BY_STALENESS))
        arms = [(Updates.SYNC, Shape.NEARLY_EVEN, Rate.FULL), *((Updates.SOFTSYNC, *one) for one in softsync)]
        return [run for arm in (() if quick else arms) for run in _tuned_runs(seeds, *arm)]

    def needed_by(self, run: Run[TunedSettings]) -> Run[ArmSearchSettings]:
        searched = run.settings.searched
        num_runs = len(searched.rates) * len(searched.pilot_seeds)
        key = f"{run.key.rpartition('-seed=')[0]}-search"
        return Run(key, searched, 0, num_runs * run.expected_secs)

    def execute(self, run: Run[TunedSettings], folder: pathlib.Path) -> Measured[TunedFigures]:
        raise NotImplementedError(f"{run.key} needs the rate of a search")

    def execute_with(self, run: Run[TunedSettings], folder: pathlib.Path, needed: Any) -> Measured[TunedFigures]:
        lr = run.settings.searched.rates[needed.best()]
        figures, course = train(dataclasses.replace(run.settings.searched.arm, lr=lr), run.seed)
        tuned = TunedFigures(lr=lr, test_error=figures.test_error, loss=figures.loss)
        return Measured(tuned, course.records() if run.seed == 0 else ())

    def why_none(self, arms: Sequence[TunedTraining]) -> str:
        return "" if arms else "the short form has no tuned arms"

    cases = staticmethod(case_factory(TunedTraining, "searched"))
    tables = staticmethod(tables.of_tuned_arms)


def _tuned_runs(seeds: Sequence[int], mode: Updates, shape: Shape, rate: Rate) -> list[Run[TunedSettings]]:
    rates = TUNED_RATES[Rate.BY_STALENESS if mode is Updates.SYNC else rate]
    arm = RateSettings(
        mode=mode,
        learners=NUM_LEARNERS,
        batch_size=BATCH_SIZE,
        lr=rates[0],
        shape=shape,
        splits=NUM_LEARNERS if mode is Updates.SOFTSYNC else None,
        arm=rate,
        epochs=NUM_EPOCHS,
    )
    key = f"L0-tuned-mode={mode}-arm={NAMES[rate]}-steps={shape.split()[-1]}"
    secs = 0.5 + SECS_PER_STEP * arm.epochs * NUM_EXAMPLES / arm.batch_size
    searched = ArmSearchSettings(arm=arm, rates=rates, pilot_seeds=PILOT_SEEDS)
    return runs_of_seeds(seeds, key, TunedSettings(searched=searched), secs)


def train(settings: RateSettings, seed: int) -> tuple[RateTrainingFigures, virtual_training.Course]:
    """Trains an arm in virtual time to the end of its epochs."""
    from ps_trainer.experiments.toolkit.per_gradient import (
        PerGradient,  # imports TensorFlow, which lists do not need
    )

    learners, batch_size, splits, arm = settings.learners, settings.batch_size, settings.splits, settings.arm
    update, options = rule_of(arm, splits) if settings.mode is Updates.SOFTSYNC else ("sync", [])
    if settings.mode is Updates.SINGLE:
        learners, batch_size = 1, learners * batch_size
    per_update = -(-learners // splits) if splits else learners
    schedule = virtual_run.run(
        update,
        options,
        num_workers=learners,
        compute=[with_mean(settings.shape.text, _MEAN_MS)],
        num_updates=settings.epochs * NUM_EXAMPLES // (batch_size * per_update),
        seed=seed,
    ).schedule
    arithmetic = PerGradient if arm is Rate.BY_STALENESS else None
    training = arguments(settings.lr, arm, splits, batch_size, seed)
    with virtual_training.open_replay(schedule, update, options, arithmetic=arithmetic, **training) as replay:
        course = virtual_training.follow(replay, batch_size, target=None)
        test_accuracy = replay.evaluate().metrics["accuracy"]
    used = schedule.steps.staleness[schedule.steps.update >= 0]
    figures = RateTrainingFigures(
        test_error=1.0 - test_accuracy,
        loss=None if course.has_diverged else course.losses[-1],
        losses=course.losses,
        staleness=float(np.mean(used)),
    )
    return figures, course


def rule_of(arm: Rate, splits: int | None) -> tuple[str, list[str]]:
    """Returns the values of `--update` and `--update_option` for an arm."""
    return ("staleness_aware", []) if arm is Rate.BY_RULE else ("softsync", [f"splits={splits}"])


def rate_of(lr: float, arm: Rate, splits: int | None) -> float:
    """Returns the learning rate of an arm's optimizer."""
    return lr / splits if arm is Rate.BY_SPLITS and splits else lr


def arguments(lr: float, arm: Rate, splits: int | None, batch_size: int, seed: int) -> dict[str, Any]:
    """Returns arguments of `virtual_training.setup_of`."""
    model = {"model": "mlp", "model_options": MODEL_OPTIONS, "optimizer": "momentum"}
    return {**model, "learning_rate": rate_of(lr, arm, splits), "batch_size": batch_size, "seed": seed}
