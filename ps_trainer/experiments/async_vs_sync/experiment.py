"""Experiment: asynchronous against synchronous SGD. What is run, and how."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Level, Measured, Part, Results, Run
from ps_trainer.experiments.harness.cases import cases_by
from ps_trainer.experiments.toolkit import real, virtual, virtual_training
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.statistics import WARMUP_SHARE

from . import claims, plots, tables
from .cases import (
    ALPHAS,
    NUM_REAL_WORKERS,
    TRAINED_ALPHAS,
    UNEVEN,
    Mode,
    RealTraining,
    Throughput,
    TrainedArm,
    predicted_ratio,
    real_rates,
    to_target,
)

RATES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
QUICK_RATES = {Mode.ASYNC: (0.05, 0.1, 0.2), Mode.SYNC_SAME: (0.4, 0.8), Mode.SYNC_GLOBAL: (0.4, 0.8)}
REAL_RATES, REAL_TRAINING = "rates", "training"  # what a real run is of

_BATCH_SIZE = 32
_NUM_EXAMPLES = 600 * _BATCH_SIZE
_MODEL_OPTIONS = ("hidden=32",)
_NUM_TIMED_UPDATES = 4000
_SECS_PER_STEP = 0.002

_REAL_MODEL_OPTION = "hidden=32"
_COUNTS = (1, 2, 4, 8)
_REAL_MEAN_MS = 100.0
_REAL_ALPHAS = (0.05, UNEVEN)
_STEPS_OF_WORKER = {0.05: 50, UNEVEN: 80}
_NUM_UNEVEN_SEEDS = 3
_NUM_QUICK_STEPS = 60
_QUICK_ALPHA = 0.3  # with which few steps are enough to know a ratio
# The best learning rates of the virtual part at n = 8; an example count that is twice what it takes there.
_REAL_ARMS = (
    (Mode.ASYNC, 0.05, 0.05, 19_200),
    (Mode.ASYNC, UNEVEN, 0.1, 19_200),
    (Mode.SYNC_SAME, 0.05, 0.4, 19_200),
    (Mode.SYNC_SAME, UNEVEN, 0.4, 19_200),
    (Mode.SYNC_GLOBAL, UNEVEN, 0.4, 5_120),
)


class VirtualThroughput(Part):
    """Gradients per second of both kinds."""

    selects = {"level": Level.VIRTUAL, "mode": "rates"}
    claims = claims.OF_THROUGHPUT

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        return [
            _run({"mode": "rates", "n": n, "alpha": alpha}, seed, 0.2)
            for n in (2, 4, 8, 16)
            for alpha in ALPHAS
            for seed in seeds
        ]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        return Measured(_throughput(run.settings["n"], run.settings["alpha"], run.seed))

    def cases(self, results: Results) -> list[Throughput]:
        return cases_by(Throughput, results, "n", "alpha")

    def notes(self, cases: Sequence[Throughput]) -> Sequence[str]:
        return tables.NOTES

    tables = staticmethod(tables.of_throughput)
    plots = plots.OF_THROUGHPUT


class VirtualTraining(Part):
    """Examples and time to a training accuracy, by learning rate."""

    selects = {"level": Level.VIRTUAL}
    claims = claims.OF_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        runs = []
        for n in (8,) if quick else (4, 8):
            kinds = [(Mode.ASYNC, alpha) for alpha in TRAINED_ALPHAS] + [
                (Mode.SYNC_SAME, None),
                (Mode.SYNC_GLOBAL, None),
            ]
            for mode, alpha in kinds:
                batch_size = _BATCH_SIZE // n if mode == Mode.SYNC_GLOBAL else _BATCH_SIZE
                secs = 0.5 + _SECS_PER_STEP * _NUM_EXAMPLES / batch_size / 3
                runs += [
                    _run({"mode": mode, "n": n, "alpha": alpha, "lr": lr, "batch_size": batch_size}, seed, secs)
                    for lr in (QUICK_RATES[mode] if quick else RATES)
                    for seed in seeds
                ]
        return runs

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        from ps_trainer.simulation.replay.run import Replay  # brings TensorFlow, which lists do not need

        settings = run.settings
        n, batch_size = settings["n"], settings["batch_size"]
        update = "async" if settings["mode"] == Mode.ASYNC else "sync"
        per_update = batch_size if update == "async" else n * batch_size
        alphas = ALPHAS if settings["alpha"] is None else (settings["alpha"],)
        schedules = {
            f"{alpha:g}": _schedule(update, n, alpha, _NUM_EXAMPLES // per_update, run.seed) for alpha in alphas
        }
        training = virtual_training.digits(
            "mlp", settings["lr"], model_options=_MODEL_OPTIONS, batch_size=batch_size, seed=run.seed
        )
        # Which of the workers is the slowest changes nothing in a synchronous update: one schedule stands for all.
        with Replay(training, next(iter(schedules.values())), update) as replay:
            course = virtual_training.follow(replay, batch_size)
            version = replay.version
        is_reached = course.target_step is not None
        num_updates = version if is_reached else _NUM_EXAMPLES // per_update
        figures = {
            "examples": course.num_steps * batch_size if is_reached else _NUM_EXAMPLES,
            "secs": {alpha: float(one.update_secs[num_updates - 1]) for alpha, one in schedules.items()},
            "is_reached": is_reached,
            "losses": course.losses,
        }
        return Measured(figures, course.records() if run.seed == 0 else ())

    def cases(self, results: Results) -> list[TrainedArm]:
        return cases_by(TrainedArm, results, "mode", "n", "alpha", "lr")

    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class RealThroughput(real.RealPart):
    """Gradients per second of real clusters."""

    selects = {"level": real.LEVEL, "what": REAL_RATES}
    claims = claims.OF_REAL_THROUGHPUT

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        """Both rules at every number of workers; in the quick form two workers only.

        A run and its simulation take the same delays, so that few seeds tell whether they agree. Exponential steps,
        which also have to agree with a mean, have three.
        """
        if quick:
            return [
                _real_rates_run(2, _QUICK_ALPHA, rule, _NUM_QUICK_STEPS, seeds[0])
                for rule in (Mode.ASYNC, Mode.SYNC_SAME)
            ]
        return [
            _real_rates_run(n, alpha, rule, _STEPS_OF_WORKER[alpha], seed)
            for n in _COUNTS
            for alpha in (_REAL_ALPHAS if n > 1 else _REAL_ALPHAS[:1])
            for rule in (Mode.ASYNC, Mode.SYNC_SAME)
            for seed in seeds[: _NUM_UNEVEN_SEEDS if alpha == UNEVEN else 1]
        ]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        """Trains on a cluster, and simulates the same delays."""
        training, schedule, update = _train_and_simulate(run, folder)
        per_update, mean_secs = 1 if update == "async" else run.settings["n"], run.settings["mean_ms"] / 1000
        measured, simulated = (
            {"rate": _rate(secs, per_update) * mean_secs} for secs in (real.update_secs(training), schedule.update_secs)
        )
        return _measured(run, training, measured, simulated)

    cases = staticmethod(real_rates)
    tables = staticmethod(tables.of_real_throughput)
    plots = plots.OF_REAL_THROUGHPUT


class RealTrainings(real.RealPart):
    """One training of each arm to a loss; none in the quick form."""

    selects = {"level": real.LEVEL, "what": REAL_TRAINING}
    claims = claims.OF_REAL_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        return [] if quick else [_real_training_run(*arm, seeds[0]) for arm in _REAL_ARMS]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        """Trains on a cluster, and with TensorFlow along the schedule of the same delays."""
        training, schedule, update = _train_and_simulate(run, folder, flags=_training_flags(run.settings))
        measured, simulated = (
            to_target(steps, run.settings["batch_size"]) for steps in (training.steps, _replayed(run, schedule, update))
        )
        return _measured(run, training, measured, simulated)

    def cases(self, results: Results) -> list[RealTraining]:
        """Of all runs; only times need the cores."""
        return cases_by(RealTraining, results, "mode", "alpha")

    tables = staticmethod(tables.of_real_training)


class AsyncVsSync(Experiment):
    """Asynchronous against synchronous SGD: throughput, examples and time to the same accuracy."""

    name = "async_vs_sync"
    source = "Dean et al. 2012, section 5, Figs 4 and 5; Chen et al. 2016, sections 4 and 5"
    scale_down = (
        "A perceptron with 32 hidden units on digits; steps last 100 ms on average, of which the share α is"
        " exponential; pulls and pushes take no time. Each arm has its own best learning rate of one grid. Examples"
        f" are counted until the mean accuracy of the last {virtual_training.WINDOW_EXAMPLES} is"
        f" {virtual_training.TARGET_ACCURACY:.0%}. The real clusters are up to {NUM_REAL_WORKERS} processes on one"
        " machine that sleep between pull and push. The sources train networks of millions of parameters on up to"
        " thousands of machines."
    )
    published = claims.PUBLISHED
    parts = (VirtualThroughput(), VirtualTraining(), RealThroughput(), RealTrainings())
    num_seeds = 10
    num_quick_seeds = 1


def _schedule(update: str, n: int, alpha: float, num_updates: int, seed: int) -> Any:
    compute = [f"shifted_exp:alpha={alpha:g},mean_ms=100"]
    return virtual.run(update, num_workers=n, compute=compute, num_updates=num_updates, seed=seed).schedule


def _throughput(n: int, alpha: float, seed: int) -> dict[str, float]:
    slow = _schedule("sync", n, alpha, _NUM_TIMED_UPDATES // n, seed)
    fast = _schedule("async", n, alpha, _NUM_TIMED_UPDATES, seed)
    return {
        "async_rate": fast.num_updates / float(fast.update_secs[-1]),
        "sync_rate": n * slow.num_updates / float(slow.update_secs[-1]),
        "staleness": float(np.mean(fast.steps.staleness[fast.steps.update >= 0])),
    }


def _run(settings: Mapping[str, Any], seed: int, expected_secs: float) -> Run:
    names = {Mode.ASYNC: "async", Mode.SYNC_SAME: "sync", Mode.SYNC_GLOBAL: "sync_global"}
    shown = {**settings, "mode": names.get(settings["mode"], settings["mode"])}
    parts = [f"{name}={value}" for name, value in shown.items() if value is not None]
    return Run(
        key="-".join(["L0", *parts, f"seed={seed}"]),
        level=Level.VIRTUAL,
        settings=settings,
        seed=seed,
        expected_secs=expected_secs,
    )


def _train_and_simulate(run: Run, folder: pathlib.Path, **flags: Any) -> tuple[Training, Any, str]:
    """Trains on a cluster; also the schedule of the same delays, and the update rule."""
    settings = run.settings
    update = "async" if settings["mode"] == Mode.ASYNC else "sync"
    setup: dict[str, Any] = {
        "num_workers": settings["n"],
        "num_updates": settings["num_updates"],
        "compute": [f"shifted_exp:alpha={settings['alpha']:g},mean_ms={settings['mean_ms']:g}"],
    }
    training = real.train(run, folder, update=update, **setup, **flags)
    return training, virtual.run(update, seed=run.seed, **setup).schedule, update


def _measured(run: Run, training: Training, measured: dict[str, Any], simulated: dict[str, Any]) -> Measured:
    figures = real.both(training, measured, simulated)
    return Measured(figures, training.steps if run.seed == 0 else (), training.window)


def _rate(update_secs: np.ndarray, per_update: int) -> float:
    """Gradients per second, after warm-up."""
    warm = update_secs[int(WARMUP_SHARE * len(update_secs)) :]
    return per_update * (len(warm) - 1) / float(warm[-1] - warm[0])


def _replayed(run: Run, schedule: Any, update: str) -> list[dict[str, float]]:
    from ps_trainer.simulation.replay.run import Replay  # brings TensorFlow, which lists do not need

    settings = run.settings
    training = virtual_training.digits(
        "mlp", settings["lr"], model_options=(_REAL_MODEL_OPTION,), batch_size=settings["batch_size"], seed=run.seed
    )
    ends = schedule.steps.t_push_done.tolist()
    with Replay(training, schedule, update) as replay:
        return [{"loss": step.loss, "t_end": ends[step.index]} for step in replay.steps()]


def _training_flags(settings: Mapping[str, Any]) -> list[str]:
    return [
        "--model=mlp",
        f"--model_option={_REAL_MODEL_OPTION}",
        "--optimizer=sgd",
        f"--batch_size={settings['batch_size']}",
        f"--learning_rate={settings['lr']:g}",
    ]


def _real_rates_run(n: int, alpha: float, mode: str, num_steps: int, seed: int) -> Run:
    num_updates = num_steps * n if mode == Mode.ASYNC else num_steps
    return _real_run({"what": REAL_RATES, "mode": mode, "n": n, "alpha": alpha}, num_updates, num_steps, seed)


def _real_training_run(mode: str, alpha: float, rate: float, num_examples: int, seed: int) -> Run:
    batch_size = _BATCH_SIZE // NUM_REAL_WORKERS if mode == Mode.SYNC_GLOBAL else _BATCH_SIZE
    num_steps = num_examples // (NUM_REAL_WORKERS * batch_size)
    settings = {
        "what": REAL_TRAINING,
        "mode": mode,
        "n": NUM_REAL_WORKERS,
        "alpha": alpha,
        "lr": rate,
        "batch_size": batch_size,
    }
    return _real_run(settings, num_steps * NUM_REAL_WORKERS if mode == Mode.ASYNC else num_steps, num_steps, seed)


def _real_run(settings: Mapping[str, Any], num_updates: int, num_steps: int, seed: int) -> Run:
    n, alpha, mode = settings["n"], settings["alpha"], settings["mode"]
    mean_ms = real.mean_ms(n, _REAL_MEAN_MS)
    name = mode.replace(", ", "_").replace(" ", "_")
    secs = num_steps * mean_ms / 1000 * (1.0 if mode == Mode.ASYNC else predicted_ratio(n, alpha))
    return Run(
        key=f"L2-{settings['what']}-{name}-n={n}-alpha={alpha:g}-seed={seed}",
        level=real.LEVEL,
        settings={**settings, "mean_ms": mean_ms, "num_updates": num_updates},
        seed=seed,
        expected_secs=real.expected_secs(n, secs),
    )
