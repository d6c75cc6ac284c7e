"""Experiment: learning rates that follow the staleness; its runs."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps_trainer.errors import RunError
from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Measured, Results, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import real_clusters, virtual_run, virtual_training
from ps_trainer.experiments.toolkit.calibration import Calibrations
from ps_trainer.experiments.toolkit.clusters import LOGDIR_NAME, Training, read_steps
from ps_trainer.experiments.toolkit.pilots import Pilots, TunedArm, TunedPart
from ps_trainer.experiments.toolkit.statistics import without_warmup
from ps_trainer.experiments.toolkit.step_times import Shape, with_mean

from . import cases, claims, plots, tables
from .cases import (
    ArmFigures,
    Rate,
    RateSettings,
    RateTrainingFigures,
    RateTrainings,
    RealArm,
    RealArmFigures,
    RealRateSettings,
    TunedFigures,
    TunedSettings,
    TunedTraining,
    Updates,
)
from .texts import TEXTS

_NAMES = {Rate.FULL: "full", Rate.BY_SPLITS: "n", Rate.BY_STALENESS: "tau", Rate.BY_RULE: "rule"}  # for run keys
REAL_ARMS = (Rate.FULL, Rate.BY_SPLITS, Rate.BY_RULE)

_MEAN_MS = 100.0
_NUM_LEARNERS, _BATCH_SIZE = 30, 4
_NUM_QUICK_LEARNERS, _QUICK_BATCH_SIZE = 8, 15
# Training at a small rate needs more epochs to converge: (full form, short form).
_NUM_EPOCHS, _NUM_SMALL_RATE_EPOCHS = (12, 6), (24, 16)
_NUM_EXAMPLES = 1437
_MODEL_OPTIONS = {"mlp": ("hidden=32",), "cnn": ()}
_NUM_TUNED_EPOCHS = {"mlp": 12, "cnn": 48}
_SECS_PER_STEP = {"mlp": 0.002, "cnn": 0.0015}
_GRID = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
# One rate for all gradients is that of α₀/τ divided by a staleness of about λ.
_TUNED_RATES = {Rate.BY_STALENESS: _GRID, Rate.FULL: tuple(rate / 32 for rate in _GRID)}

_REAL_BATCH_SIZE = 15
_NUM_REAL_EPOCHS = 16
_NUM_REAL_SEEDS = 5
_REAL_MEAN_MS = real_clusters.mean_ms(cases.NUM_REAL_LEARNERS)


class VirtualArms(Part[RateSettings, RateTrainingFigures]):
    """Test errors of synchronous updates, of one learner, and of n-softsync with each arm's learning rate."""

    figures_type = RateTrainingFigures
    selects = {"level": Level.VIRTUAL}
    claims = claims.OF_VIRTUAL_TIME

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RateSettings]]:
        learners = _NUM_QUICK_LEARNERS if quick else _NUM_LEARNERS

        def of(
            mode: Updates,
            lr: float,
            *,
            splits: int | None = None,
            arm: Rate = Rate.FULL,
            shape: Shape = Shape.NEARLY_EVEN,
        ) -> RateSettings:
            return RateSettings(
                mode=mode,
                learners=learners,
                batch_size=_QUICK_BATCH_SIZE if quick else _BATCH_SIZE,
                lr=lr,
                shape=shape,
                splits=splits,
                arm=arm,
                epochs=(_NUM_SMALL_RATE_EPOCHS if lr == cases.SMALL_RATE else _NUM_EPOCHS)[quick],
            )

        rates = [
            rate
            for rate in cases.SYNC_RATES
            if not quick or rate in (cases.SMALL_RATE, cases.NEAR_RATE) or rate > 2 * cases.NEAR_RATE
        ]
        settings = [of(Updates.SYNC, rate) for rate in rates]
        settings += [of(Updates.SINGLE, rate) for rate in (cases.SMALL_RATE, cases.NEAR_RATE)]
        arms = (Rate.FULL, Rate.BY_SPLITS, Rate.BY_STALENESS)
        soft = [(cases.NEAR_RATE, n, arm) for n, arm in ((1, arms[2]), (learners, arms[0]), (learners, arms[2]))]
        middle = () if quick else (-(-learners // 4), learners // 2)
        soft.append((cases.SMALL_RATE, 1, Rate.BY_STALENESS))
        soft += [(cases.SMALL_RATE, n, arm) for n in (*middle, learners) for arm in arms]
        if not quick:
            soft += [(cases.SMALL_RATE, 1, Rate.FULL), (cases.SMALL_RATE, learners, Rate.BY_RULE)]
        settings += [of(Updates.SOFTSYNC, rate, splits=n, arm=arm) for rate, n, arm in soft]
        if not quick:
            settings += [
                of(Updates.SOFTSYNC, cases.SMALL_RATE, splits=learners, arm=arm, shape=Shape.EXPONENTIAL)
                for arm in arms[1:]
            ]
        return [run for one in settings for run in _virtual_runs(seeds, one)]

    def execute(self, run: Run[RateSettings], folder: pathlib.Path) -> Measured[RateTrainingFigures]:
        figures, course = _train(run.settings, run.seed)
        return Measured(figures, course.records() if run.seed == 0 else ())

    def cases(self, results: Results) -> RateTrainings:
        return RateTrainings(cases.trainings_of(results))

    notes = staticmethod(tables.notes)
    tables = staticmethod(tables.of_virtual_time)
    plots = plots.PLOTS


class TunedArms(TunedPart[TunedSettings, TunedFigures]):
    """Test errors of synchronous updates and of λ-softsync, each with the rate that a pilot run has chosen.

    All arms of the convolutional network have one α₀, as in the source: the best one for α₀/τ.
    """

    figures_type = TunedFigures
    cost = "training loss at the end"
    selects = {"is_tuned": True}
    claims = claims.OF_TUNED_ARMS

    def arms(self, *, quick: bool) -> list[TunedArm]:
        softsync = itertools.product((Shape.NEARLY_EVEN, Shape.EXPONENTIAL), (Rate.FULL, Rate.BY_STALENESS))
        sync = (Updates.SYNC, Shape.NEARLY_EVEN, Rate.FULL, Rate.FULL)
        kinds = [("mlp", *sync), *(("mlp", Updates.SOFTSYNC, shape, arm, arm) for shape, arm in softsync)]
        alike = ((Updates.SYNC, Rate.FULL), (Updates.SOFTSYNC, Rate.BY_STALENESS), (Updates.SOFTSYNC, Rate.FULL))
        kinds += [("cnn", mode, Shape.NEARLY_EVEN, arm, Rate.BY_STALENESS) for mode, arm in alike]
        return [
            TunedArm(
                f"tuned-model={model}-mode={mode}-arm={_NAMES[arm]}-steps={shape.split()[-1]}",
                TunedSettings(
                    mode=mode,
                    learners=_NUM_LEARNERS,
                    batch_size=_BATCH_SIZE,
                    shape=shape,
                    splits=_NUM_LEARNERS if mode is Updates.SOFTSYNC else None,
                    arm=arm,
                    rate_of=rate_of,
                    epochs=_NUM_TUNED_EPOCHS[model],
                    model=model,
                ),
                _TUNED_RATES[Rate.BY_STALENESS if mode is Updates.SYNC else rate_of],
                0.5 + _SECS_PER_STEP[model] * _NUM_TUNED_EPOCHS[model] * _NUM_EXAMPLES / _BATCH_SIZE,
            )
            for model, mode, shape, arm, rate_of in (() if quick else kinds)
        ]

    def needed_by(self, run: Run[TunedSettings]) -> Run[Any]:
        """Returns the pilot run that chooses the rate."""
        settings = run.settings
        if settings.arm is not settings.rate_of:
            mode, splits = Updates.SOFTSYNC, _NUM_LEARNERS
            settings = dataclasses.replace(settings, mode=mode, splits=splits, arm=settings.rate_of)
        return super().needed_by(dataclasses.replace(run, settings=settings))

    def train(self, settings: TunedSettings, rate: float, seed: int) -> TunedFigures:
        figures, _ = _train(settings.at(rate), seed)
        return TunedFigures(lr=rate, test_error=figures.test_error, loss=figures.loss)

    def cost_of(self, figures: TunedFigures) -> float | None:
        return figures.loss

    def why_none(self, arms: Sequence[TunedTraining]) -> str:
        return "" if arms else "the short form has no tuned arms"

    cases = staticmethod(case_factory(TunedTraining, "model", "mode", "shape", "arm"))
    tables = staticmethod(tables.of_tuned_arms)


class RealArms(real_clusters.RealPart[RealRateSettings]):
    """Trainings of each arm on a real cluster, with the same seeds, and simulations of them in virtual time."""

    figures_type = RealArmFigures
    claims = claims.OF_REAL_CLUSTERS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RealRateSettings]]:
        """Returns the runs of λ-softsync, each gradient an update, at each arm's rate; none in the quick form."""
        num_updates, learners = _NUM_REAL_EPOCHS * _NUM_EXAMPLES // _REAL_BATCH_SIZE, cases.NUM_REAL_LEARNERS
        settings = RealRateSettings(
            arm=Rate.FULL,
            learners=learners,
            lr=cases.REAL_RATE,
            momentum=cases.MOMENTUM,
            batch_size=_REAL_BATCH_SIZE,
            num_updates=num_updates,
            mean_ms=_REAL_MEAN_MS,
        )
        secs = real_clusters.expected_secs(learners, num_updates / learners * _REAL_MEAN_MS / 1000)
        return [
            run
            for arm in (() if quick else REAL_ARMS)
            for run in runs_of_seeds(
                seeds[:_NUM_REAL_SEEDS],
                f"L2-lr={cases.REAL_RATE:g}-arm={_NAMES[arm]}-learners={learners}",
                dataclasses.replace(settings, arm=arm),
                secs,
                real_clusters.LEVEL,
            )
        ]

    def training_of(self, settings: RealRateSettings) -> real_clusters.DelayedTraining:
        learners, arm = settings.learners, settings.arm
        update, options = _rule_of(arm, learners)
        delays = [with_mean(Shape.NEARLY_EVEN.text, settings.mean_ms)]
        model = {"model": "mlp", "model_option": _MODEL_OPTIONS["mlp"], "batch_size": settings.batch_size}
        model |= {"optimizer": "momentum", "optimizer_option": f"momentum={settings.momentum}"}
        model |= {"learning_rate": _rate_of(settings.lr, arm, learners)}
        return real_clusters.DelayedTraining(update, options, learners, settings.num_updates, delays, settings=model)

    def train(self, run: Run[RealRateSettings], folder: pathlib.Path) -> Training:
        """Trains on the cluster. A loss of NaN ends the run, but is an expected result of some arms."""
        try:
            return super().train(run, folder)
        except RunError:
            steps = read_steps(folder.resolve() / LOGDIR_NAME)
            if all(step.loss is not None for step in steps):
                raise
            return Training({}, steps, 0.0)

    def measured_figures(self, run: Run[RealRateSettings], training: Training) -> ArmFigures:
        used = [step.staleness for step in training.warm_steps if step.staleness is not None]
        metrics = training.summary.get("metrics", {})
        return ArmFigures(
            staleness=float(np.mean(used)),
            # A model with NaN parameters always predicts the first class, which is as good as guessing.
            test_error=1.0 - metrics["accuracy"] if metrics else 0.9,
            rate=_updates_per_sec(real_clusters.update_secs(training)),
        )

    def simulated_figures(self, run: Run[RealRateSettings], done: virtual_run.VirtualRun) -> ArmFigures:
        settings = run.settings
        arm, learners, batch_size = settings.arm, settings.learners, settings.batch_size
        update, options = _rule_of(arm, learners)
        training = _training("mlp", settings.lr, arm, learners, batch_size, run.seed)
        training["optimizer_options"] = (f"momentum={settings.momentum}",)
        with virtual_training.open_replay(done.schedule, update, options, **training) as replay:
            virtual_training.follow(replay, batch_size, target=None)
            accuracy = replay.evaluate().metrics["accuracy"]
        return ArmFigures(
            staleness=float(np.mean(done.warm_steps.staleness[done.warm_steps.update >= 0])),
            test_error=1.0 - accuracy,
            rate=_updates_per_sec(done.schedule.update_secs),
        )

    cases = staticmethod(case_factory(RealArm, "arm"))
    tables = staticmethod(tables.of_real_clusters)


class StalenessAwareRate(Experiment):
    """Learning rates that follow the staleness: α₀, α₀/n and α₀/τ against synchronous updates."""

    name = "staleness_aware_rate"
    source = "Zhang, Gupta, Lian and Liu 2016, Staleness-aware Async-SGD, section 4, Figs 3 and 4; Gupta et al. 2016"
    texts = TEXTS
    published = claims.PUBLISHED
    parts = (Calibrations(), Pilots(TunedArms()), TunedArms(), VirtualArms(), RealArms())
    num_seeds = 10
    num_quick_seeds = 1


def _train(settings: RateSettings, seed: int) -> tuple[RateTrainingFigures, virtual_training.Course]:
    """Trains an arm in virtual time to the end of its epochs."""
    from ps_trainer.experiments.toolkit.per_gradient import (
        PerGradient,  # imports TensorFlow, which lists do not need
    )

    learners, batch_size, splits, arm = settings.learners, settings.batch_size, settings.splits, settings.arm
    update, options = _rule_of(arm, splits) if settings.mode is Updates.SOFTSYNC else ("sync", [])
    if settings.mode is Updates.SINGLE:
        learners, batch_size = 1, learners * batch_size
    per_update = -(-learners // splits) if splits else learners
    schedule = virtual_run.run(
        update,
        options,
        num_workers=learners,
        compute=[with_mean(settings.shape.text, _MEAN_MS)],
        num_updates=settings.epochs * _NUM_EXAMPLES // (batch_size * per_update),
        seed=seed,
    ).schedule
    arithmetic = PerGradient if arm is Rate.BY_STALENESS else None
    training = _training(settings.model, settings.lr, arm, splits, batch_size, seed)
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


def _rule_of(arm: Rate, splits: int | None) -> tuple[str, list[str]]:
    """Returns the values of `--update` and `--update_option` for an arm."""
    return ("staleness_aware", []) if arm is Rate.BY_RULE else ("softsync", [f"splits={splits}"])


def _rate_of(lr: float, arm: Rate, splits: int | None) -> float:
    """Returns the learning rate of an arm's optimizer."""
    return lr / splits if arm is Rate.BY_SPLITS and splits else lr


def _training(name: str, lr: float, arm: Rate, splits: int | None, batch_size: int, seed: int) -> dict[str, Any]:
    """Returns arguments of `virtual_training.setup_of` for a model."""
    model = {"model": name, "model_options": _MODEL_OPTIONS[name], "optimizer": "momentum"}
    return {**model, "learning_rate": _rate_of(lr, arm, splits), "batch_size": batch_size, "seed": seed}


def _virtual_runs(seeds: Sequence[int], settings: RateSettings) -> list[Run[RateSettings]]:
    parts = [f"mode={settings.mode}", f"lr={settings.lr:g}"]
    if settings.mode is Updates.SOFTSYNC:
        parts += [f"n={settings.splits}", f"arm={_NAMES[settings.arm]}", f"steps={settings.shape.split()[-1]}"]
    num_steps = settings.epochs * _NUM_EXAMPLES / settings.batch_size
    if settings.mode is Updates.SINGLE:
        num_steps /= settings.learners
    key = "-".join(["L0", *parts, f"learners={settings.learners}"])
    return runs_of_seeds(seeds, key, settings, 0.5 + _SECS_PER_STEP["mlp"] * num_steps)


def _updates_per_sec(update_secs: np.ndarray) -> float:
    """Returns the updates per second after warm-up."""
    warm, _ = without_warmup(update_secs)
    return (len(warm) - 1) / float(warm[-1] - warm[0])
