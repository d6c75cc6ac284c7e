"""Runs of the experiment on the time to an accuracy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Run, runs_of_seeds
from ps_trainer.experiments.toolkit import real_clusters, virtual_run, virtual_training
from ps_trainer.experiments.toolkit.calibration import Calibrations
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.delayed_training import StepCost
from ps_trainer.experiments.toolkit.pilots import Pilots, TunedArm, TunedPart
from ps_trainer.experiments.toolkit.statistics import without_warmup

from . import cases, claims, plots, tables
from .cases import (
    ALPHA,
    AccuracyFigures,
    AccuracySettings,
    BatchKind,
    PacedFigures,
    PacedSettings,
    PacedTraining,
    RealPacedFigures,
    TimedAccuracy,
    WorkerRule,
    batch_size,
)
from .texts import TEXTS

TARGET = 0.93  # test accuracy
RATES = (0.1, 0.2, 0.4, 0.8, 1.6)  # of one worker and of synchronous workers
_QUICK_RATES = (0.2, 0.4)
_COUNTS = (1, 2, 4, 8, 16)
_QUICK_COUNTS = (1, 2, 4)
_NUM_TRAIN = 1437  # training examples of digits
_NUM_EPOCHS = 12
_QUICK_EPOCHS = 6
_TESTS_PER_EPOCH = 8
_SECS_PER_GRADIENT = 0.001
_MODEL: dict[str, Any] = {"model": "mlp", "model_options": ("hidden=32",)}
_RULES = {WorkerRule.ASYNC: "async", WorkerRule.SYNC: "sync"}

# In virtual time: the step of one worker, and the cost of a step besides computing, as calibration runs with one worker
# of a real cluster measured it (page `backup_workers`).
_ALONE_MS = 400.0
_COST = StepCost(overhead_secs=0.0024, service_secs=0.001)

# Of real runs. The learning rates are fast ones of the pilot seeds in virtual time.
_NUM_REAL_SEEDS = 5
# Examples are half as many again as a simulation needed.
_REAL_ARMS = (
    (BatchKind.WEAK, WorkerRule.SYNC, 1, 0.4, 1300),
    (BatchKind.WEAK, WorkerRule.SYNC, 2, 0.4, 1600),
    (BatchKind.WEAK, WorkerRule.SYNC, 4, 0.4, 2600),
    (BatchKind.WEAK, WorkerRule.SYNC, 8, 0.4, 4200),
    (BatchKind.WEAK, WorkerRule.ASYNC, 2, 0.2, 1600),
    (BatchKind.WEAK, WorkerRule.ASYNC, 4, 0.1, 2200),
    (BatchKind.WEAK, WorkerRule.ASYNC, 8, 0.1, 3600),
    (BatchKind.STRONG, WorkerRule.SYNC, 1, 0.4, 1900),
    (BatchKind.STRONG, WorkerRule.SYNC, 2, 0.4, 2000),
    (BatchKind.STRONG, WorkerRule.SYNC, 4, 0.4, 2600),
    (BatchKind.STRONG, WorkerRule.SYNC, 8, 0.4, 2600),
    (BatchKind.STRONG, WorkerRule.ASYNC, 2, 0.2, 2000),
    (BatchKind.STRONG, WorkerRule.ASYNC, 4, 0.1, 2200),
    (BatchKind.STRONG, WorkerRule.ASYNC, 8, 0.1, 2200),
)


class AccuracyTrainings(TunedPart[AccuracySettings, AccuracyFigures]):
    """Time to a test accuracy in virtual time, by the number of workers, each arm at its own learning rate."""

    figures_type = AccuracyFigures
    cost = "time (mean steps of one worker)"
    selects = {"level": Level.VIRTUAL}
    claims = claims.OF_TRAINING

    def arms(self, *, quick: bool) -> list[TunedArm]:
        arms = []
        counts, num_epochs = (_QUICK_COUNTS, _QUICK_EPOCHS) if quick else (_COUNTS, _NUM_EPOCHS)
        for batches, n, rule in itertools.product(BatchKind, counts, WorkerRule):
            if n == 1 and rule == WorkerRule.ASYNC:
                continue  # the same as synchronous
            settings = AccuracySettings(batches=batches, rule=rule, n=n, num_epochs=num_epochs)
            rates = tuple(rate * _scale(settings) for rate in (_QUICK_RATES if quick else RATES))
            secs = 0.5 + _SECS_PER_GRADIENT * num_epochs * _NUM_TRAIN / settings.batch_size / 3
            arms.append(TunedArm(_name(batches, rule, n), settings, rates, secs))
        return arms

    def train(self, settings: AccuracySettings, rate: float, seed: int) -> AccuracyFigures:
        """Trains a perceptron on digits until it is at the target. Imports TensorFlow."""
        from ps_trainer.simulation.replay.train import train

        update = _RULES[settings.rule]
        step_ms = _ALONE_MS / (settings.n if settings.batches == BatchKind.STRONG else 1)
        schedule = virtual_run.run(
            update,
            num_workers=settings.n,
            compute=[f"shifted_exp:alpha={ALPHA:g},mean_ms={step_ms:g}"],
            num_updates=settings.num_epochs * _NUM_TRAIN // settings.per_update,
            seed=seed,
            latency_secs=_COST.latency_secs,
            ps_secs=_COST.service_secs,
        ).schedule
        trained = train(
            virtual_training.setup_of(learning_rate=rate, batch_size=settings.batch_size, seed=seed, **_MODEL),
            schedule,
            update,
            evaluate_every=max(1, round(_NUM_TRAIN / _TESTS_PER_EPOCH / settings.per_update)),
            stop_when=lambda evaluation: evaluation.metrics["accuracy"] >= TARGET,
        )
        times = [one.secs * 1000 / _ALONE_MS for one in trained.evaluations]
        examples = [float(one.version * settings.per_update) for one in trained.evaluations]
        errors = [1 - one.metrics["accuracy"] for one in trained.evaluations]
        is_reached = not trained.has_diverged and errors[-1] <= 1 - TARGET

        def until(values: Sequence[float]) -> float:
            return virtual_training.crossing(values, errors, 1 - TARGET) if is_reached else values[-1]

        return AccuracyFigures(
            rate=rate,
            is_reached=is_reached,
            time=until(times),
            examples=until(examples),
            update_time=float(np.mean(np.diff(without_warmup(schedule.update_secs)[0]))) * 1000 / _ALONE_MS,
            times=times,
            accuracies=[1 - error for error in errors],
        )

    def cost_of(self, figures: AccuracyFigures) -> float | None:
        return figures.time if figures.is_reached else None

    cases = staticmethod(case_factory(TimedAccuracy, "batches", "rule", "n"))
    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class PacedTrainings(real_clusters.RealPart[PacedSettings]):
    """Time to a training loss on real clusters."""

    figures_type = RealPacedFigures
    selects = {"level": real_clusters.LEVEL, "what": cases.CLUSTER}
    claims = claims.OF_CLUSTERS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[PacedSettings]]:
        """Plans all arms with the same seeds; the quick form has none."""
        runs = []
        for batches, rule, n, lr, num_examples in () if quick else _REAL_ARMS:
            steps_of_worker = num_examples // (n * batch_size(batches, n))
            num_updates = steps_of_worker * (n if rule == WorkerRule.ASYNC else 1)
            mean_ms = real_clusters.mean_ms(n, in_bursts=True)
            settings = PacedSettings(batches=batches, rule=rule, n=n, mean_ms=mean_ms, lr=lr, num_updates=num_updates)
            secs = real_clusters.expected_secs(n, 1.3 * steps_of_worker * mean_ms / 1000)
            key = f"L2-{_name(batches, rule, n)}"
            runs += runs_of_seeds(seeds[:_NUM_REAL_SEEDS], key, settings, secs, real_clusters.LEVEL)
        return runs

    def training_of(self, settings: PacedSettings) -> real_clusters.DelayedTraining:
        delays = [f"shifted_exp:alpha={ALPHA:g},mean_ms={settings.mean_ms:g}"]
        training: dict[str, Any] = {"model": "mlp", "model_option": "hidden=32", "optimizer": "sgd"}
        rates = {"batch_size": batch_size(settings.batches, settings.n), "learning_rate": settings.lr}
        update = _RULES[settings.rule]
        return real_clusters.DelayedTraining(update, (), settings.n, settings.num_updates, delays, training | rates)

    def measured_figures(self, run: Run[PacedSettings], training: Training) -> PacedFigures:
        losses, ends = [step.loss for step in training.steps], [step.t_end for step in training.steps]
        return _paced_figures(run.settings, losses, ends, real_clusters.update_secs(training))

    def simulated_figures(self, run: Run[PacedSettings], done: virtual_run.VirtualRun) -> PacedFigures:
        """Trains with TensorFlow along the schedule of the same delays."""
        settings, schedule = run.settings, done.schedule
        ends = schedule.steps.t_push_done.tolist()
        size = batch_size(settings.batches, settings.n)
        training: dict[str, Any] = {**_MODEL, "learning_rate": settings.lr, "batch_size": size, "seed": run.seed}
        with virtual_training.open_replay(schedule, _RULES[settings.rule], **training) as replay:
            steps = [(step.loss, ends[step.step_index]) for step in replay.steps()]
        return _paced_figures(settings, [loss for loss, _ in steps], [end for _, end in steps], schedule.update_secs)

    cases = staticmethod(case_factory(PacedTraining, "batches", "rule", "n"))
    tables = staticmethod(tables.of_clusters)
    plots = plots.OF_CLUSTERS


class TimeToAccuracy(Experiment):
    """Time to an accuracy: how much sooner n workers are there than one, with a fixed and with a growing batch."""

    name = "time_to_accuracy"
    source = "Shallue et al. 2019, Fig. 1; Dean et al. 2012, section 5, Figs 4 and 5; Goyal et al. 2017, section 1"
    texts = TEXTS
    parts = (Pilots(AccuracyTrainings()), AccuracyTrainings(), Calibrations(), PacedTrainings())
    num_seeds = 10
    num_quick_seeds = 2


def _name(batches: BatchKind, rule: WorkerRule, n: int) -> str:
    return f"{batches.name}-{rule.name}-n={n}".lower()


def _scale(settings: AccuracySettings) -> float:
    """Returns the factor of an arm's grid of learning rates: small where pushes are stale or of few examples."""
    if settings.rule == WorkerRule.SYNC:
        return 1.0
    return 1 / settings.n if settings.batches == BatchKind.STRONG else 0.25


def _paced_figures(
    settings: PacedSettings, losses: Sequence[float | None], ends: Sequence[float], update_secs: np.ndarray
) -> PacedFigures:
    """Returns the figures of a cluster or of its simulation.

    The first step counts with its mean, since a cluster also builds its graph in it.
    """
    step_secs = settings.mean_ms / 1000
    secs = cases.to_loss(losses, ends, batch_size(settings.batches, settings.n))
    warm, _ = without_warmup(update_secs)
    per_update = settings.n if settings.rule == WorkerRule.SYNC else 1
    return PacedFigures(
        time=None if secs is None else (secs + step_secs) * 1000 / settings.alone_ms,
        gradients=per_update * (len(warm) - 1) / float(warm[-1] - warm[0]) * step_secs,
    )
