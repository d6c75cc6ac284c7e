"""Experiment: learning rates that follow the staleness; its runs."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from ps_trainer.errors import RunError
from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Measured, Results, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import real_clusters, virtual_run, virtual_training
from ps_trainer.experiments.toolkit.calibration import Calibrations
from ps_trainer.experiments.toolkit.clusters import LOGDIR_NAME, Training, read_steps
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
    Updates,
)
from .searches import (
    BATCH_SIZE,
    MODEL_OPTIONS,
    NAMES,
    NUM_EXAMPLES,
    NUM_LEARNERS,
    SECS_PER_STEP,
    ArmSearches,
    TunedArms,
    arguments,
    rate_of,
    rule_of,
    train,
)
from .texts import TEXTS

REAL_ARMS = (Rate.FULL, Rate.BY_SPLITS, Rate.BY_RULE)

_NUM_QUICK_LEARNERS, _QUICK_BATCH_SIZE = 8, 15
# Training at a small rate needs more epochs to converge: (full form, short form).
_NUM_EPOCHS, _NUM_SMALL_RATE_EPOCHS = (12, 6), (24, 16)

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
        learners = _NUM_QUICK_LEARNERS if quick else NUM_LEARNERS

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
                batch_size=_QUICK_BATCH_SIZE if quick else BATCH_SIZE,
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
        figures, course = train(run.settings, run.seed)
        return Measured(figures, course.records() if run.seed == 0 else ())

    def cases(self, results: Results) -> RateTrainings:
        return RateTrainings(cases.trainings_of(results))

    notes = staticmethod(tables.notes)
    tables = staticmethod(tables.of_virtual_time)
    plots = plots.PLOTS


class RealArms(real_clusters.RealPart[RealRateSettings]):
    """Trainings of each arm on a real cluster, with the same seeds, and simulations of them in virtual time."""

    figures_type = RealArmFigures
    claims = claims.OF_REAL_CLUSTERS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RealRateSettings]]:
        """Returns the runs of λ-softsync, each gradient an update, at each arm's rate; none in the quick form."""
        num_updates, learners = _NUM_REAL_EPOCHS * NUM_EXAMPLES // _REAL_BATCH_SIZE, cases.NUM_REAL_LEARNERS
        settings = RealRateSettings(
            arm=Rate.FULL,
            learners=learners,
            lr=cases.SMALL_RATE,
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
                f"L2-lr={cases.SMALL_RATE:g}-arm={NAMES[arm]}-learners={learners}",
                dataclasses.replace(settings, arm=arm),
                secs,
                real_clusters.LEVEL,
            )
        ]

    def training_of(self, settings: RealRateSettings) -> real_clusters.DelayedTraining:
        learners, arm = settings.learners, settings.arm
        update, options = rule_of(arm, learners)
        delays = [with_mean(Shape.NEARLY_EVEN.text, settings.mean_ms)]
        model = {"model": "mlp", "model_option": MODEL_OPTIONS, "batch_size": settings.batch_size}
        model |= {"optimizer": "momentum", "optimizer_option": f"momentum={settings.momentum}"}
        model |= {"learning_rate": rate_of(settings.lr, arm, learners)}
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
        update, options = rule_of(arm, learners)
        training = arguments(settings.lr, arm, learners, batch_size, run.seed)
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
    untested = "a convolutional network, as the source has"
    published = claims.PUBLISHED
    parts = (Calibrations(), ArmSearches(), TunedArms(), VirtualArms(), RealArms())
    num_seeds = 10
    num_quick_seeds = 1


def _virtual_runs(seeds: Sequence[int], settings: RateSettings) -> list[Run[RateSettings]]:
    parts = [f"mode={settings.mode}", f"lr={settings.lr:g}"]
    if settings.mode is Updates.SOFTSYNC:
        parts += [f"n={settings.splits}", f"arm={NAMES[settings.arm]}", f"steps={settings.shape.split()[-1]}"]
    num_steps = settings.epochs * NUM_EXAMPLES / settings.batch_size
    if settings.mode is Updates.SINGLE:
        num_steps /= settings.learners
    key = "-".join(["L0", *parts, f"learners={settings.learners}"])
    return runs_of_seeds(seeds, key, settings, 0.5 + SECS_PER_STEP * num_steps)


def _updates_per_sec(update_secs: np.ndarray) -> float:
    """Returns the updates per second after warm-up."""
    warm, _ = without_warmup(update_secs)
    return (len(warm) - 1) / float(warm[-1] - warm[0])
