"""Runs of the experiment on asynchronous against synchronous SGD."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Level, Measured, Part, Run, repeated
from ps_trainer.experiments.harness.cases import grouped
from ps_trainer.experiments.toolkit import real, virtual, virtual_training
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.statistics import without_warmup
from ps_trainer.simulation.schedule import Schedule

from . import cases, claims, plots, tables
from .cases import Mode, RealTraining, Throughput, TrainedArm

RATES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
QUICK_RATES = {Mode.ASYNC: (0.05, 0.1, 0.2), Mode.SYNC_SAME: (0.4, 0.8), Mode.SYNC_GLOBAL: (0.4, 0.8)}
REAL_RATES, REAL_TRAINING = "rates", "training"  # purposes of real runs
_NAMES = {Mode.ASYNC: "async", Mode.SYNC_SAME: "sync", Mode.SYNC_GLOBAL: "sync_global"}  # in keys of virtual runs

_BATCH_SIZE = 32
_NUM_EXAMPLES = 600 * _BATCH_SIZE
_NUM_TIMED_UPDATES = 4000
_SECS_PER_STEP = 0.002

_MODEL_OPTION = "hidden=32"
_COUNTS = (1, 2, 4, 8)
_REAL_MEAN_MS = 100.0
_REAL_ALPHAS = (0.05, cases.UNEVEN)
_STEPS_OF_WORKER = {0.05: 50, cases.UNEVEN: 80}
_NUM_UNEVEN_SEEDS = 3
_NUM_QUICK_STEPS = 60
_QUICK_ALPHA = 0.3  # few steps are enough for a ratio with this share
# Learning rates are the best of the virtual part at n = 8. Example counts are twice the virtual ones.
_REAL_ARMS = (
    (Mode.ASYNC, 0.05, 0.05, 19_200),
    (Mode.ASYNC, cases.UNEVEN, 0.1, 19_200),
    (Mode.SYNC_SAME, 0.05, 0.4, 19_200),
    (Mode.SYNC_SAME, cases.UNEVEN, 0.4, 19_200),
    (Mode.SYNC_GLOBAL, cases.UNEVEN, 0.4, 5_120),
)


class VirtualThroughput(Part):
    """Gradients per second of asynchronous and synchronous SGD."""

    selects = {"level": Level.VIRTUAL, "mode": "rates"}
    claims = claims.OF_THROUGHPUT
    notes = tables.NOTES

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        return [
            run
            for n in (2, 4, 8, 16)
            for alpha in cases.ALPHAS
            for run in repeated(seeds, f"L0-mode=rates-n={n}-alpha={alpha}", _settings("rates", n, alpha), 0.2)
        ]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        n, alpha = run.settings["n"], run.settings["alpha"]
        slow = _schedule("sync", n, alpha, _NUM_TIMED_UPDATES // n, run.seed)
        fast = _schedule("async", n, alpha, _NUM_TIMED_UPDATES, run.seed)
        figures = {
            "async_rate": fast.num_updates / float(fast.update_secs[-1]),
            "sync_rate": n * slow.num_updates / float(slow.update_secs[-1]),
            "staleness": float(np.mean(fast.steps.staleness[fast.steps.update >= 0])),
        }
        return Measured(figures)

    cases = staticmethod(grouped(Throughput, "n", "alpha"))
    tables = staticmethod(tables.of_throughput)
    plots = plots.OF_THROUGHPUT


class VirtualTraining(Part):
    """Examples and time to a training accuracy, by learning rate."""

    selects = {"level": Level.VIRTUAL}
    claims = claims.OF_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        runs = []
        for n in (8,) if quick else (4, 8):
            kinds = [(Mode.ASYNC, alpha) for alpha in cases.TRAINED_ALPHAS] + [
                (Mode.SYNC_SAME, None),
                (Mode.SYNC_GLOBAL, None),
            ]
            for mode, alpha in kinds:
                batch_size = _BATCH_SIZE // n if mode == Mode.SYNC_GLOBAL else _BATCH_SIZE
                secs = 0.5 + _SECS_PER_STEP * _NUM_EXAMPLES / batch_size / 3
                of_alpha = "" if alpha is None else f"-alpha={alpha}"
                for lr in QUICK_RATES[mode] if quick else RATES:
                    key = f"L0-mode={_NAMES[mode]}-n={n}{of_alpha}-lr={lr}-batch_size={batch_size}"
                    runs += repeated(seeds, key, _settings(mode, n, alpha, lr=lr, batch_size=batch_size), secs)
        return runs

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        settings = run.settings
        n, batch_size, update = settings["n"], settings["batch_size"], _update_of(settings)
        per_update = batch_size if update == "async" else n * batch_size
        alphas = cases.ALPHAS if settings["alpha"] is None else (settings["alpha"],)
        num_updates = _NUM_EXAMPLES // per_update
        schedules = {f"{alpha:g}": _schedule(update, n, alpha, num_updates, run.seed) for alpha in alphas}
        # A synchronous update does not depend on which worker is slowest, so one schedule serves all alphas.
        with _replayed(run, next(iter(schedules.values()))) as replay:
            course = virtual_training.follow(replay, batch_size)
            version = replay.version
        is_reached = course.target_step is not None
        last_update = (version if is_reached else num_updates) - 1
        figures = {
            "examples": course.num_steps * batch_size if is_reached else _NUM_EXAMPLES,
            "secs": {alpha: float(one.update_secs[last_update]) for alpha, one in schedules.items()},
            "is_reached": is_reached,
            "losses": course.losses,
        }
        return Measured(figures, course.records() if run.seed == 0 else ())

    cases = staticmethod(grouped(TrainedArm, "mode", "n", "alpha", "lr"))
    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class _RealUpdates(real.RealPart):
    """Asynchronous and synchronous updates on real clusters."""

    def training_of(self, settings: Mapping[str, Any]) -> real.DelayedTraining:
        delays = [f"shifted_exp:alpha={settings['alpha']:g},mean_ms={settings['mean_ms']:g}"]
        return real.DelayedTraining(_update_of(settings), (), settings["n"], settings["num_updates"], delays)


class RealThroughput(_RealUpdates):
    """Gradients per second of real clusters."""

    selects = {"level": real.LEVEL, "what": REAL_RATES}
    claims = claims.OF_REAL_THROUGHPUT

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        """Plan both modes at every number of workers; the quick form has two workers only.

        A run and its simulation use the same delays, so few seeds show whether they agree. Exponential steps have three
        seeds, because their rates must also agree with a mean.
        """
        settings = [(n, alpha, _STEPS_OF_WORKER[alpha]) for n in _COUNTS for alpha in _REAL_ALPHAS[: 2 if n > 1 else 1]]
        return [
            run
            for n, alpha, num_steps in ([(2, _QUICK_ALPHA, _NUM_QUICK_STEPS)] if quick else settings)
            for mode in (Mode.ASYNC, Mode.SYNC_SAME)
            for run in _real_runs(
                seeds[: _NUM_UNEVEN_SEEDS if alpha == cases.UNEVEN else 1],
                {"what": REAL_RATES, **_settings(mode, n, alpha)},
                num_steps,
            )
        ]

    def measured(self, run: Run, training: Training) -> dict[str, Any]:
        return {"rate": _rate(real.update_secs(training), run.settings)}

    def simulated(self, run: Run, done: virtual.VirtualRun) -> dict[str, Any]:
        return {"rate": _rate(done.schedule.update_secs, run.settings)}

    cases = staticmethod(cases.real_rates)
    tables = staticmethod(tables.of_real_throughput)
    plots = plots.OF_REAL_THROUGHPUT


class RealTrainings(_RealUpdates):
    """One training of each arm to a target loss; the quick form has none."""

    selects = {"level": real.LEVEL, "what": REAL_TRAINING}
    claims = claims.OF_REAL_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        runs = []
        for mode, alpha, lr, num_examples in () if quick else _REAL_ARMS:
            batch_size = _BATCH_SIZE // cases.NUM_REAL_WORKERS if mode == Mode.SYNC_GLOBAL else _BATCH_SIZE
            settings = _settings(mode, cases.NUM_REAL_WORKERS, alpha, lr=lr, batch_size=batch_size)
            num_steps = num_examples // (cases.NUM_REAL_WORKERS * batch_size)
            runs += _real_runs(seeds[:1], {"what": REAL_TRAINING, **settings}, num_steps)
        return runs

    def training_of(self, settings: Mapping[str, Any]) -> real.DelayedTraining:
        model = {"model": "mlp", "model_option": _MODEL_OPTION, "optimizer": "sgd"}
        rates = {"batch_size": settings["batch_size"], "learning_rate": settings["lr"]}
        return super().training_of(settings)._replace(settings=model | rates)

    def measured(self, run: Run, training: Training) -> dict[str, Any]:
        return cases.to_target(training.steps, run.settings["batch_size"])

    def simulated(self, run: Run, done: virtual.VirtualRun) -> dict[str, Any]:
        """Train with TensorFlow along the schedule of the same delays."""
        ends = done.schedule.steps.t_push_done.tolist()
        with _replayed(run, done.schedule) as replay:
            steps = [{"loss": step.loss, "t_end": ends[step.step_index]} for step in replay.steps()]
        return cases.to_target(steps, run.settings["batch_size"])

    cases = staticmethod(grouped(RealTraining, "mode", "alpha"))  # from all runs: contention affects only times
    tables = staticmethod(tables.of_real_training)


class AsyncVsSync(Experiment):
    """Asynchronous against synchronous SGD: throughput, examples and time to the same accuracy."""

    name = "async_vs_sync"
    source = "Dean et al. 2012, section 5, Figs 4 and 5; Chen et al. 2016, sections 4 and 5"
    scale_down = (
        "A perceptron with 32 hidden units on digits; steps last 100 ms on average, of which the share α is"
        " exponential; pulls and pushes take no time. Each arm has its own best learning rate of one grid. Examples"
        f" are counted until the mean accuracy of the last {virtual_training.WINDOW_EXAMPLES} is"
        f" {virtual_training.TARGET_ACCURACY:.0%}. The real clusters are up to {cases.NUM_REAL_WORKERS} processes on"
        " one machine that sleep between pull and push. The sources train networks of millions of parameters on up to"
        " thousands of machines."
    )
    published = claims.PUBLISHED
    parts = (VirtualThroughput(), VirtualTraining(), RealThroughput(), RealTrainings())
    num_seeds = 10
    num_quick_seeds = 1


def _settings(mode: str, n: int, alpha: float | None, **training: Any) -> dict[str, Any]:
    return {"mode": mode, "n": n, "alpha": alpha, **training}


def _update_of(settings: Mapping[str, Any]) -> str:
    return "async" if settings["mode"] == Mode.ASYNC else "sync"


def _schedule(update: str, n: int, alpha: float, num_updates: int, seed: int) -> Schedule:
    compute = [f"shifted_exp:alpha={alpha:g},mean_ms=100"]
    return virtual.run(update, num_workers=n, compute=compute, num_updates=num_updates, seed=seed).schedule


def _replayed(run: Run, schedule: Schedule) -> AbstractContextManager[Any]:
    """Return a training in virtual time with the settings of a run."""
    training = {"model_options": (_MODEL_OPTION,), "batch_size": run.settings["batch_size"], "seed": run.seed}
    update, lr = _update_of(run.settings), run.settings["lr"]
    return virtual_training.replayed(schedule, update, model="mlp", learning_rate=lr, **training)


def _rate(update_secs: np.ndarray, settings: Mapping[str, Any]) -> float:
    """Return the gradients per mean step after warm-up."""
    warm, _ = without_warmup(update_secs)
    per_update = 1 if settings["mode"] == Mode.ASYNC else settings["n"]
    return per_update * (len(warm) - 1) / float(warm[-1] - warm[0]) * (settings["mean_ms"] / 1000)


def _real_runs(seeds: Sequence[int], settings: Mapping[str, Any], num_steps: int) -> list[Run]:
    """Plan runs in which each worker makes `num_steps` steps."""
    n, alpha, mode = settings["n"], settings["alpha"], settings["mode"]
    mean_ms = real.mean_ms(n, _REAL_MEAN_MS)
    name = mode.replace(", ", "_").replace(" ", "_")
    secs = num_steps * mean_ms / 1000 * (1.0 if mode == Mode.ASYNC else cases.predicted_ratio(n, alpha))
    num_updates = num_steps * n if mode == Mode.ASYNC else num_steps
    return repeated(
        seeds,
        f"L2-{settings['what']}-{name}-n={n}-alpha={alpha:g}",
        {**settings, "mean_ms": mean_ms, "num_updates": num_updates},
        real.expected_secs(n, secs),
        real.LEVEL,
    )
