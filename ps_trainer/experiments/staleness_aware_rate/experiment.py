"""Experiment: learning rates that follow the staleness. What is run, and how."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ps_trainer.errors import RunError
from ps_trainer.experiments.harness.base import Experiment, Level, Measured, Part, Results, Run
from ps_trainer.experiments.harness.cases import cases_by
from ps_trainer.experiments.toolkit import real, virtual, virtual_training
from ps_trainer.experiments.toolkit.clusters import LOGDIR_NAME, Training, read_steps
from ps_trainer.experiments.toolkit.statistics import WARMUP_SHARE, without_warmup
from ps_trainer.experiments.toolkit.step_times import Shape, with_mean

from . import claims, plots, tables
from .cases import (
    MOMENTUM,
    NEAR_RATE,
    NUM_REAL_LEARNERS,
    SMALL_RATE,
    SYNC_RATES,
    Rate,
    RateTrainings,
    RealArm,
    Updates,
    trainings_of,
)

REAL_ARMS = {Rate.FULL: "full", Rate.BY_SPLITS: "n", Rate.BY_RULE: "rule"}  # and how keys call them

_MEAN_MS = 100.0
_NUM_LEARNERS, _BATCH_SIZE = 30, 4
_NUM_QUICK_LEARNERS, _QUICK_BATCH_SIZE = 8, 15
# A small rate needs more epochs to come to an end: (full form, short form).
_NUM_EPOCHS, _NUM_SMALL_RATE_EPOCHS = (12, 6), (24, 16)
_NUM_EXAMPLES = 1437
_MODEL_OPTIONS = ("hidden=32",)
_SECS_PER_STEP = 0.002

_REAL_BATCH_SIZE = 15
_NUM_REAL_EPOCHS = 16
_REAL_MEAN_MS = 150.0  # 53 gradients per second, with their arithmetic


class VirtualArms(Part):
    """Test errors of synchronous updates, of one learner, and of n-softsync with each arm's learning rate."""

    selects = {"level": Level.VIRTUAL}
    claims = claims.OF_VIRTUAL_TIME

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        learners = _NUM_QUICK_LEARNERS if quick else _NUM_LEARNERS
        base = {
            "learners": learners,
            "batch_size": _QUICK_BATCH_SIZE if quick else _BATCH_SIZE,
            "lr": SMALL_RATE,
            "shape": Shape.NEARLY_EVEN,
            "splits": None,
            "arm": Rate.FULL,
        }
        rates = [rate for rate in SYNC_RATES if not quick or rate in (SMALL_RATE, NEAR_RATE) or rate > 2 * NEAR_RATE]
        settings = [{**base, "mode": Updates.SYNC, "lr": rate} for rate in rates]
        settings += [{**base, "mode": Updates.SINGLE, "lr": rate} for rate in (SMALL_RATE, NEAR_RATE)]
        arms = (Rate.FULL, Rate.BY_SPLITS, Rate.BY_STALENESS)
        soft = [
            (NEAR_RATE, n, arm)
            for n in (1, learners)
            for arm in (Rate.FULL, Rate.BY_STALENESS)
            if n > 1 or arm != Rate.FULL
        ]
        middle = () if quick else (-(-learners // 4), learners // 2)
        soft += [
            (SMALL_RATE, 1, Rate.BY_STALENESS),
            *((SMALL_RATE, n, arm) for n in (*middle, learners) for arm in arms),
        ]
        if not quick:
            soft += [(SMALL_RATE, 1, Rate.FULL), (SMALL_RATE, learners, Rate.BY_RULE)]
        settings += [{**base, "mode": Updates.SOFTSYNC, "lr": rate, "splits": n, "arm": arm} for rate, n, arm in soft]
        if not quick:
            dispersed = {**base, "mode": Updates.SOFTSYNC, "splits": learners, "shape": Shape.EXPONENTIAL}
            settings += [{**dispersed, "arm": arm} for arm in arms[1:]]
        for one in settings:
            one["epochs"] = (_NUM_SMALL_RATE_EPOCHS if one["lr"] == SMALL_RATE else _NUM_EPOCHS)[quick]
        return [_run(one, seed) for one in settings for seed in seeds]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        from ps_trainer.experiments.toolkit.per_gradient import PerGradient  # these bring TensorFlow
        from ps_trainer.simulation.replay.run import Replay

        settings = run.settings
        learners, batch_size, splits = settings["learners"], settings["batch_size"], settings["splits"]
        update, options = "sync", []
        if settings["mode"] == Updates.SINGLE:
            learners, batch_size = 1, learners * batch_size
        elif settings["mode"] == Updates.SOFTSYNC:
            update, options = (
                ("staleness_aware", []) if settings["arm"] == Rate.BY_RULE else ("softsync", [f"splits={splits}"])
            )
        per_update = -(-learners // splits) if splits else learners
        schedule = virtual.run(
            update,
            options,
            num_workers=learners,
            compute=[with_mean(Shape(settings["shape"]).text, _MEAN_MS)],
            num_updates=settings["epochs"] * _NUM_EXAMPLES // (batch_size * per_update),
            seed=run.seed,
        ).schedule
        training = virtual_training.digits(
            "mlp",
            settings["lr"] / (splits if settings["arm"] == Rate.BY_SPLITS else 1),
            model_options=_MODEL_OPTIONS,
            optimizer="momentum",
            batch_size=batch_size,
            seed=run.seed,
        )
        arithmetic = PerGradient if settings["arm"] == Rate.BY_STALENESS else None
        with Replay(training, schedule, update, options, arithmetic=arithmetic) as replay:
            course = virtual_training.follow(replay, batch_size, target=None)
            test_accuracy = replay.evaluate().metrics["accuracy"]
        used = schedule.steps.staleness[schedule.steps.update >= 0]
        figures = {
            "test_error": 1.0 - test_accuracy,
            "loss": None if course.has_diverged else course.losses[-1],
            "losses": course.losses,
            "staleness": float(np.mean(used)),
        }
        return Measured(figures, course.records() if run.seed == 0 else ())

    def cases(self, results: Results) -> RateTrainings:
        return RateTrainings(trainings_of(results))

    notes = staticmethod(tables.notes)
    tables = staticmethod(tables.of_virtual_time)
    plots = plots.PLOTS


class RealArms(real.RealPart):
    """One training of each arm on a real cluster, beside one in virtual time."""

    claims = claims.OF_REAL_CLUSTERS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        """λ-softsync, where each gradient is an update, with each arm's learning rate; none in the quick form."""
        num_updates = _NUM_REAL_EPOCHS * _NUM_EXAMPLES // _REAL_BATCH_SIZE
        return [
            Run(
                key=f"L2-lr={SMALL_RATE:g}-arm={name}-learners={NUM_REAL_LEARNERS}-seed={seeds[0]}",
                level=real.LEVEL,
                settings={
                    "arm": arm,
                    "learners": NUM_REAL_LEARNERS,
                    "lr": SMALL_RATE,
                    "momentum": MOMENTUM,
                    "batch_size": _REAL_BATCH_SIZE,
                    "num_updates": num_updates,
                    "mean_ms": _REAL_MEAN_MS,
                },
                seed=seeds[0],
                expected_secs=real.expected_secs(
                    NUM_REAL_LEARNERS, num_updates / NUM_REAL_LEARNERS * _REAL_MEAN_MS / 1000
                ),
            )
            for arm, name in ({} if quick else REAL_ARMS).items()
        ]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        """Trains on a cluster, and along the schedule that the simulator makes of the same delays."""
        settings = run.settings
        learners, arm = settings["learners"], settings["arm"]
        rate = settings["lr"] / (learners if arm == Rate.BY_SPLITS else 1)
        update, options = ("staleness_aware", []) if arm == Rate.BY_RULE else ("softsync", [f"splits={learners}"])
        setup: dict[str, Any] = {
            "num_workers": learners,
            "num_updates": settings["num_updates"],
            "compute": [with_mean(Shape.NEARLY_EVEN.text, settings["mean_ms"])],
        }
        flags = [
            "--model=mlp",
            f"--model_option={_MODEL_OPTIONS[0]}",
            "--optimizer=momentum",
            f"--optimizer_option=momentum={settings['momentum']}",
            f"--batch_size={settings['batch_size']}",
            f"--learning_rate={rate!r}",
        ]
        training = _train_real(run, folder, update=update, options=options, flags=flags, **setup)
        done = virtual.run(update, options, seed=run.seed, **setup)
        figures = real.both(training, _measured(training), _simulated(run, done, update, options, rate))
        return Measured(figures, training.steps, training.window)

    def cases(self, results: Results) -> list[RealArm]:
        return cases_by(RealArm, results, "arm")

    tables = staticmethod(tables.of_real_clusters)


class StalenessAwareRate(Experiment):
    """Learning rates that follow the staleness: α₀ fails where α₀/τ trains as synchronous updates do."""

    name = "staleness_aware_rate"
    source = "Zhang, Gupta, Lian and Liu 2016, Staleness-aware Async-SGD, section 4, Figs 3 and 4; Gupta et al. 2016"
    scale_down = (
        f"A perceptron with 32 hidden units on digits, momentum 0.9, λ = {_NUM_LEARNERS} learners with batch"
        f" {_BATCH_SIZE} each, {_NUM_EPOCHS[0]} epochs, {_NUM_SMALL_RATE_EPOCHS[0]} with the small α₀, no decay; in the"
        f" short form λ = {_NUM_QUICK_LEARNERS}, batch {_QUICK_BATCH_SIZE} and fewer epochs. λ and batches are the"
        " paper's; its network was convolutional, on CIFAR-10, for 140 epochs. Each gradient is divided by its own"
        " staleness before the mean over the c gradients of an update and before the momentum. The real clusters are λ"
        f" = {NUM_REAL_LEARNERS} processes on one machine that sleep between pull and push, and divide by τ as the rule"
        " `staleness_aware` does."
    )
    published = claims.PUBLISHED
    parts = (VirtualArms(), RealArms())
    num_seeds = 10
    num_quick_seeds = 1


def _run(settings: Mapping[str, Any], seed: int) -> Run:
    names = {Rate.FULL: "full", Rate.BY_SPLITS: "n", Rate.BY_STALENESS: "tau", Rate.BY_RULE: "rule"}
    parts = [f"mode={settings['mode']}", f"lr={settings['lr']:g}"]
    if settings["mode"] == Updates.SOFTSYNC:
        parts += [f"n={settings['splits']}", f"arm={names[settings['arm']]}", f"steps={settings['shape'].split()[-1]}"]
    num_steps = settings["epochs"] * _NUM_EXAMPLES / settings["batch_size"]
    if settings["mode"] == Updates.SINGLE:
        num_steps /= settings["learners"]
    return Run(
        key="-".join(["L0", *parts, f"learners={settings['learners']}", f"seed={seed}"]),
        level=Level.VIRTUAL,
        settings=settings,
        seed=seed,
        expected_secs=0.5 + _SECS_PER_STEP * num_steps,
    )


def _train_real(run: Run, folder: pathlib.Path, **setup: Any) -> Training:
    """As `real.train`, but a run whose loss is NaN has done what it had to show."""
    try:
        return real.train(run, folder, **setup)
    except RunError:
        steps = read_steps(folder.resolve() / LOGDIR_NAME)
        if all(step["loss"] is not None for step in steps):
            raise
        return Training({}, steps, 0.0)


def _measured(training: Training) -> dict[str, float]:
    used = [step["staleness"] for step in training.warm_steps if step["staleness"] is not None]
    metrics = training.summary.get("metrics", {})
    return {
        "staleness": float(np.mean(used)),
        # With values that are NaN the first class is the answer to everything: that of guessing.
        "test_error": 1.0 - metrics["accuracy"] if metrics else 0.9,
        "rate": _rate(real.update_secs(training)),
    }


def _simulated(
    run: Run, done: virtual.VirtualRun, update: str, options: Sequence[str], rate: float
) -> dict[str, float]:
    from ps_trainer.simulation.replay.run import Replay  # brings TensorFlow, which lists do not need

    batch_size = run.settings["batch_size"]
    training = virtual_training.digits(
        "mlp",
        rate,
        model_options=_MODEL_OPTIONS,
        optimizer="momentum",
        optimizer_options=(f"momentum={run.settings['momentum']}",),
        batch_size=batch_size,
        seed=run.seed,
    )
    with Replay(training, done.schedule, update, options) as replay:
        virtual_training.follow(replay, batch_size, target=None)
        accuracy = replay.evaluate().metrics["accuracy"]
    return {
        "staleness": float(np.mean(done.warm_steps.staleness[done.warm_steps.update >= 0])),
        "test_error": 1.0 - accuracy,
        "rate": _rate(done.schedule.update_secs),
    }


def _rate(update_secs: np.ndarray) -> float:
    """Updates, of one gradient each, per second after warm-up."""
    warm, _ = without_warmup(update_secs, WARMUP_SHARE)
    return (len(warm) - 1) / float(warm[-1] - warm[0])
