"""Runs of the experiment on asynchronous against synchronous SGD."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.claims import Elsewhere
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Measured, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import real_clusters, virtual_run, virtual_training
from ps_trainer.experiments.toolkit.calibration import Calibrations
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.pilots import Pilots, TunedArm, TunedPart
from ps_trainer.experiments.toolkit.statistics import without_warmup
from ps_trainer.simulation.schedule import Schedule

from . import cases, claims, plots, tables
from .cases import (
    REAL_RATES,
    REAL_TRAINING,
    GradientRateFigures,
    Mode,
    RealRateFigures,
    RealSettings,
    RealTargetFigures,
    RealTraining,
    RealTrainingSettings,
    TargetFigures,
    Throughput,
    ThroughputFigures,
    ThroughputSettings,
    TrainedArm,
    TrainingFigures,
    VirtualTrainingSettings,
)
from .texts import TEXTS

RealSettingsT = TypeVar("RealSettingsT", bound=RealSettings)

RATES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # of the pilot runs
QUICK_RATES = {Mode.ASYNC: (0.05, 0.1, 0.2), Mode.SYNC_SAME: (0.4, 0.8), Mode.SYNC_GLOBAL: (0.4, 0.8)}
_NAMES = {Mode.ASYNC: "async", Mode.SYNC_SAME: "sync", Mode.SYNC_GLOBAL: "sync_global"}  # in keys of virtual runs

_BATCH_SIZE = 32
_NUM_EXAMPLES, _QUICK_EXAMPLES = 600 * _BATCH_SIZE, 400 * _BATCH_SIZE
_NUM_TIMED_UPDATES = 4000
_SECS_PER_STEP = 0.002

_MODEL_OPTION = "hidden=32"
_COUNTS = (1, 2, 4, 8)
_REAL_ALPHAS = (0.05, cases.UNEVEN)
_STEPS_OF_WORKER = {0.05: 50, cases.UNEVEN: 80}
_NUM_REAL_SEEDS = 5
_NUM_QUICK_STEPS = 60
_QUICK_ALPHA = 0.3  # few steps are enough for a ratio with this share
# Learning rates are those that the pilot runs chose for 8 workers. Example counts are twice the virtual ones.
_REAL_ARMS = (
    (Mode.ASYNC, 0.05, 0.05, 19_200),
    (Mode.ASYNC, cases.UNEVEN, 0.1, 19_200),
    (Mode.SYNC_SAME, 0.05, 0.8, 19_200),
    (Mode.SYNC_SAME, cases.UNEVEN, 0.8, 19_200),
    (Mode.SYNC_GLOBAL, cases.UNEVEN, 0.4, 5_120),
)


class VirtualThroughput(Part[ThroughputSettings, ThroughputFigures]):
    """Gradients per second of asynchronous and synchronous SGD."""

    figures_type = ThroughputFigures
    selects = {"level": Level.VIRTUAL, "mode": cases.RATES_MODE}
    claims = claims.OF_THROUGHPUT

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[ThroughputSettings]]:
        return [
            run
            for n in (2, 4, 8, 16)
            for alpha in cases.ALPHAS
            for settings in [ThroughputSettings(n=n, alpha=alpha)]
            for run in runs_of_seeds(seeds, f"L0-mode=rates-n={n}-alpha={alpha}", settings, 0.2)
        ]

    def execute(self, run: Run[ThroughputSettings], folder: pathlib.Path) -> Measured[ThroughputFigures]:
        n, alpha = run.settings.n, run.settings.alpha
        slow = _schedule("sync", n, alpha, _NUM_TIMED_UPDATES // n, run.seed)
        fast = _schedule("async", n, alpha, _NUM_TIMED_UPDATES, run.seed)
        figures = ThroughputFigures(
            async_rate=fast.num_updates / float(fast.update_secs[-1]),
            sync_rate=n * slow.num_updates / float(slow.update_secs[-1]),
            staleness=float(np.mean(fast.steps.staleness[fast.steps.update >= 0])),
        )
        return Measured(figures)

    cases = staticmethod(case_factory(Throughput, "n", "alpha"))
    tables = staticmethod(tables.of_throughput)
    plots = plots.OF_THROUGHPUT


class VirtualTraining(TunedPart[VirtualTrainingSettings, TrainingFigures]):
    """Examples and time to a training accuracy, each arm at the learning rate of its pilot run."""

    figures_type = TrainingFigures
    cost = "examples"
    selects = {"level": Level.VIRTUAL}
    claims = claims.OF_TRAINING

    def arms(self, *, quick: bool) -> list[TunedArm]:
        arms, max_examples = [], _QUICK_EXAMPLES if quick else _NUM_EXAMPLES
        for n in (8,) if quick else (4, 8):
            kinds: list[tuple[Mode, float | None]] = [(Mode.ASYNC, alpha) for alpha in cases.TRAINED_ALPHAS]
            kinds += [(Mode.SYNC_SAME, None), (Mode.SYNC_GLOBAL, None)]
            for mode, alpha in kinds:
                batch_size = _BATCH_SIZE // n if mode == Mode.SYNC_GLOBAL else _BATCH_SIZE
                secs = 0.5 + _SECS_PER_STEP * max_examples / batch_size / 3
                of_alpha = "" if alpha is None else f"-alpha={alpha}"
                settings = VirtualTrainingSettings(
                    mode=mode, n=n, alpha=alpha, batch_size=batch_size, max_examples=max_examples
                )
                rates = QUICK_RATES[mode] if quick else RATES
                arms.append(TunedArm(f"mode={_NAMES[mode]}-n={n}{of_alpha}", settings, rates, secs))
        return arms

    def train(self, settings: VirtualTrainingSettings, rate: float, seed: int) -> TrainingFigures:
        """Trains a perceptron on digits until it is at the target. Imports TensorFlow."""
        n, batch_size, update = settings.n, settings.batch_size, _update_of(settings.mode)
        per_update = batch_size if update == "async" else n * batch_size
        alphas = cases.ALPHAS if settings.alpha is None else (settings.alpha,)
        num_updates = settings.max_examples // per_update
        schedules = {f"{alpha:g}": _schedule(update, n, alpha, num_updates, seed) for alpha in alphas}
        # A synchronous update does not depend on which worker is slowest, so one schedule serves all alphas.
        with _open_replay(settings, rate, seed, next(iter(schedules.values()))) as replay:
            course = virtual_training.follow(replay, batch_size)
            version = replay.version
        is_reached = course.target_step is not None
        last_update = (version if is_reached else num_updates) - 1
        return TrainingFigures(
            rate=rate,
            examples=course.num_steps * batch_size if is_reached else settings.max_examples,
            secs={alpha: float(one.update_secs[last_update]) for alpha, one in schedules.items()},
            is_reached=is_reached,
            losses=course.losses,
        )

    def cost_of(self, figures: TrainingFigures) -> float | None:
        return figures.examples if figures.is_reached else None

    cases = staticmethod(case_factory(TrainedArm, "mode", "n", "alpha"))
    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


def _delayed_training(settings: RealSettings) -> real_clusters.DelayedTraining:
    """Returns the training of a real cluster with the model that idles."""
    delays = [f"shifted_exp:alpha={settings.alpha:g},mean_ms={settings.mean_ms:g}"]
    return real_clusters.DelayedTraining(_update_of(settings.mode), (), settings.n, settings.num_updates, delays)


class RealThroughput(real_clusters.RealPart[RealSettings]):
    """Gradients per second of real clusters."""

    figures_type = RealRateFigures
    selects = {"level": real_clusters.LEVEL, "what": REAL_RATES}
    claims = claims.OF_REAL_THROUGHPUT

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RealSettings]]:
        """Plans both modes at every number of workers, with the same seeds; the quick form has two workers only."""
        settings = [(n, alpha, _STEPS_OF_WORKER[alpha]) for n in _COUNTS for alpha in _REAL_ALPHAS[: 2 if n > 1 else 1]]
        return [
            run
            for n, alpha, num_steps in ([(2, _QUICK_ALPHA, _NUM_QUICK_STEPS)] if quick else settings)
            for mode in (Mode.ASYNC, Mode.SYNC_SAME)
            for run in _real_runs(
                seeds[:_NUM_REAL_SEEDS],
                RealSettings(what=REAL_RATES, **_duration(mode, n, alpha, num_steps)),
                num_steps,
            )
        ]

    def training_of(self, settings: RealSettings) -> real_clusters.DelayedTraining:
        return _delayed_training(settings)

    def measured_figures(self, run: Run[RealSettings], training: Training) -> GradientRateFigures:
        return GradientRateFigures(rate=_rate(real_clusters.update_secs(training), run.settings))

    def simulated_figures(self, run: Run[RealSettings], done: virtual_run.VirtualRun) -> GradientRateFigures:
        return GradientRateFigures(rate=_rate(done.schedule.update_secs, run.settings))

    cases = staticmethod(cases.real_rates)
    tables = staticmethod(tables.of_real_throughput)
    plots = plots.OF_REAL_THROUGHPUT


class RealTrainings(real_clusters.RealPart[RealTrainingSettings]):
    """Trainings of each arm to a target loss, with the same seeds; the quick form has none."""

    figures_type = RealTargetFigures
    selects = {"level": real_clusters.LEVEL, "what": REAL_TRAINING}
    claims = claims.OF_REAL_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RealTrainingSettings]]:
        runs = []
        for mode, alpha, lr, num_examples in () if quick else _REAL_ARMS:
            batch_size = _BATCH_SIZE // cases.NUM_REAL_WORKERS if mode == Mode.SYNC_GLOBAL else _BATCH_SIZE
            num_steps = num_examples // (cases.NUM_REAL_WORKERS * batch_size)
            duration = _duration(mode, cases.NUM_REAL_WORKERS, alpha, num_steps)
            settings = RealTrainingSettings(what=REAL_TRAINING, lr=lr, batch_size=batch_size, **duration)
            runs += _real_runs(seeds[:_NUM_REAL_SEEDS], settings, num_steps)
        return runs

    def training_of(self, settings: RealTrainingSettings) -> real_clusters.DelayedTraining:
        model = {"model": "mlp", "model_option": _MODEL_OPTION, "optimizer": "sgd"}
        rates = {"batch_size": settings.batch_size, "learning_rate": settings.lr}
        return _delayed_training(settings)._replace(settings=model | rates)

    def measured_figures(self, run: Run[RealTrainingSettings], training: Training) -> TargetFigures:
        losses, ends = [step.loss for step in training.steps], [step.t_end for step in training.steps]
        return cases.to_target(losses, ends, run.settings.batch_size)

    def simulated_figures(self, run: Run[RealTrainingSettings], done: virtual_run.VirtualRun) -> TargetFigures:
        """Trains with TensorFlow along the schedule of the same delays."""
        ends = done.schedule.steps.t_push_done.tolist()
        with _open_replay(run.settings, run.settings.lr, run.seed, done.schedule) as replay:
            steps = [(step.loss, ends[step.step_index]) for step in replay.steps()]
        return cases.to_target([loss for loss, _ in steps], [end for _, end in steps], run.settings.batch_size)

    cases = staticmethod(case_factory(RealTraining, "mode", "alpha"))  # from all runs: contention affects only times
    tables = staticmethod(tables.of_real_training)


class AsyncVsSync(Experiment):
    """Asynchronous against synchronous SGD: throughput, examples and time to the same accuracy."""

    name = "async_vs_sync"
    source = "Dean et al. 2012, section 5, Figs 4 and 5; Chen et al. 2016, abstract"
    texts = TEXTS
    tested_elsewhere = (
        Elsewhere("Chen et al.'s better final accuracy with backup workers", "backups_at_scale", "accuracy"),
        Elsewhere("their shorter time to an accuracy", "backups_at_scale", "sooner_than_async"),
    )
    parts: Sequence[Part[Any, Any]] = (
        Calibrations(),
        VirtualThroughput(),
        Pilots(VirtualTraining()),
        VirtualTraining(),
        RealThroughput(),
        RealTrainings(),
    )
    num_seeds = 10
    num_quick_seeds = 1


def _update_of(mode: Mode) -> str:
    return "async" if mode is Mode.ASYNC else "sync"


def _schedule(update: str, n: int, alpha: float, num_updates: int, seed: int) -> Schedule:
    compute = [f"shifted_exp:alpha={alpha:g},mean_ms=100"]
    return virtual_run.run(update, num_workers=n, compute=compute, num_updates=num_updates, seed=seed).schedule


def _open_replay(
    settings: VirtualTrainingSettings | RealTrainingSettings, rate: float, seed: int, schedule: Schedule
) -> AbstractContextManager[Any]:
    """Returns a training in virtual time with the settings of a run."""
    training: dict[str, Any] = {"model": "mlp", "model_options": (_MODEL_OPTION,), "learning_rate": rate}
    training |= {"batch_size": settings.batch_size, "seed": seed}
    return virtual_training.open_replay(schedule, _update_of(settings.mode), **training)


def _rate(update_secs: np.ndarray, settings: RealSettings) -> float:
    """Returns the gradients per mean step after warm-up."""
    warm, _ = without_warmup(update_secs)
    per_update = 1 if settings.mode is Mode.ASYNC else settings.n
    return per_update * (len(warm) - 1) / float(warm[-1] - warm[0]) * (settings.mean_ms / 1000)


def _duration(mode: Mode, n: int, alpha: float, num_steps: int) -> dict[str, Any]:
    """Returns the fields of `RealSettings` with which each worker makes `num_steps` steps."""
    num_updates = num_steps * n if mode is Mode.ASYNC else num_steps
    return {
        "mode": mode,
        "n": n,
        "alpha": alpha,
        "mean_ms": real_clusters.mean_ms(n, behind_barrier=True, in_bursts=alpha < cases.UNEVEN),
        "num_updates": num_updates,
    }


def _real_runs(seeds: Sequence[int], settings: RealSettingsT, num_steps: int) -> list[Run[RealSettingsT]]:
    """Plans runs in which each worker makes `num_steps` steps."""
    n, alpha, mode = settings.n, settings.alpha, settings.mode
    name = mode.replace(", ", "_").replace(" ", "_")
    slowness = 1.0 if mode is Mode.ASYNC else cases.predicted_ratio(n, alpha)
    secs = num_steps * settings.mean_ms / 1000 * slowness
    return runs_of_seeds(
        seeds,
        f"L2-{settings.what}-{name}-n={n}-alpha={alpha:g}",
        settings,
        real_clusters.expected_secs(n, secs),
        real_clusters.LEVEL,
    )
