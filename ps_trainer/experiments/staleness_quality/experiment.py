"""Experiment: what staleness does to training. What is run, and how."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer.experiments.harness.base import Experiment, Level, Measured, Part, Run
from ps_trainer.experiments.toolkit import quadratic, virtual_training
from ps_trainer.simulation import fixed

from . import claims, plots, tables
from .cases import DEPTHS, FIXED_RATE, OPTIMIZER_TAU, Kind, StaleTraining, stable_rates, trainings_of

OPTIMIZER_RATES = {
    "momentum": (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08),
    "adagrad": (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8),
    "rmsprop": (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032),
    "adam": (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032),
}
RAMPS = ((8, 0.2), (16, 0.05), (16, 0.1))
RAMP_UPDATES = 300

_BATCH_SIZE = 32
_NUM_UPDATES = 600
_QUICK_TAUS = (0, 4, 16)
_TAUS = (0, 1, 2, 4, 8, 16, 32)
_RATES = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_SECS_PER_UPDATE = 0.002


class Quadratic(Part):
    """Largest stable learning rates on a quadratic."""

    selects = {"model": "quadratic"}
    claims = claims.OF_QUADRATIC

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        return [
            _quadratic_run(kind, tau, seed)
            for kind in Kind
            for tau in (_QUICK_TAUS if quick else _TAUS)
            for seed in (seeds[:1] if kind == Kind.CONSTANT else seeds)
        ]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        rate = quadratic.measured_stable_rate(
            lambda num_updates: _schedule(run.settings, num_updates, run.seed).steps.staleness, run.settings["tau"]
        )
        return Measured({"rate": rate})

    cases = staticmethod(stable_rates)
    tables = staticmethod(tables.of_quadratic)
    plots = plots.OF_QUADRATIC


class StaleTrainings(Part):
    """Updates to a training accuracy, by staleness, learning rate, depth, ramp and optimizer."""

    claims = claims.OF_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        taus = _QUICK_TAUS if quick else _TAUS
        rates = (FIXED_RATE, 0.4) if quick else _RATES
        settings = [_settings(Kind.CONSTANT, tau, lr=lr) for tau in taus for lr in rates]
        settings += [_settings(kind, tau) for kind in (Kind.UNIFORM, Kind.GEOMETRIC) for tau in taus if tau]
        depths = (0, 4) if quick else tuple(DEPTHS)
        settings += [
            _settings(Kind.CONSTANT, tau, depth=depth) for depth in depths for tau in ((0, 8) if quick else _TAUS)
        ]
        settings += [
            _settings(Kind.CONSTANT, tau, lr=lr, ramp=ramp)
            for tau, lr in (RAMPS[-1:] if quick else RAMPS)
            for ramp in (0, RAMP_UPDATES)
        ]
        settings += [
            _settings(Kind.CONSTANT, tau, optimizer=optimizer, lr=lr)
            for optimizer, grid in OPTIMIZER_RATES.items()
            if not quick
            for tau in (0, OPTIMIZER_TAU)
            for lr in grid
        ]
        different = {_key(one, seed): (one, seed) for one in settings for seed in seeds}
        return [_training_run(one, seed) for one, seed in different.values()]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        settings = run.settings
        from ps_trainer.simulation.replay.run import Replay  # brings TensorFlow, which lists do not need

        training = virtual_training.digits(
            settings["model"],
            settings["lr"],
            model_options=DEPTHS[settings["depth"]],
            optimizer=settings["optimizer"],
            batch_size=_BATCH_SIZE,
            seed=run.seed,
        )
        target = virtual_training.TARGET_ACCURACY if settings["ramp"] is None else None
        with Replay(training, _schedule(settings, settings["num_updates"], run.seed), "async") as replay:
            course = virtual_training.follow(replay, _BATCH_SIZE, target=target)
        return Measured(course.figures(), course.records() if run.seed == 0 else ())

    cases = staticmethod(trainings_of)

    def notes(self, cases: Sequence[StaleTraining]) -> Sequence[str]:
        return tables.NOTES

    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class StalenessQuality(Experiment):
    """What staleness does to training: a smaller largest learning rate, and more updates to the same accuracy."""

    name = "staleness_quality"
    source = (
        "Chen et al. 2016, section 2; Dai et al. 2019, Toward Understanding the Impact of Staleness; Levin and May 1976"
    )
    scale_down = (
        f"Softmax regression and perceptrons with 1, 2 and 4 hidden layers of 32 units on digits, batch {_BATCH_SIZE},"
        " one stream of batches whose gradients are of parameters some updates old. Updates are counted until the mean"
        f" accuracy of the last {virtual_training.WINDOW_EXAMPLES} training examples is"
        f" {virtual_training.TARGET_ACCURACY:.0%}; after {_NUM_UPDATES} updates a run has failed. The papers' networks"
        " were convolutional and their measure the test error, whose differences are below the noise of 360 digits."
    )
    published = claims.PUBLISHED
    parts = (Quadratic(), StaleTrainings())
    num_seeds = 10
    num_quick_seeds = 1


def _schedule(settings: Mapping[str, Any], num_updates: int, seed: int) -> Any:
    kind, tau, ramp = settings["kind"], settings["tau"], settings.get("ramp") or 0
    seeded = {} if kind == Kind.CONSTANT else {"seed": seed}
    return getattr(fixed, kind)(tau, num_updates, ramp_updates=ramp, **seeded)


def _settings(
    kind: str,
    tau: int,
    *,
    lr: float = FIXED_RATE,
    depth: int = 1,
    optimizer: str = "sgd",
    ramp: int | None = None,
) -> dict[str, Any]:
    return {
        "model": "mlp" if depth else "softmax",
        "kind": kind,
        "tau": tau,
        "depth": depth,
        "optimizer": optimizer,
        "lr": lr,
        "ramp": ramp,
        "num_updates": _NUM_UPDATES,
    }


def _quadratic_run(kind: str, tau: int, seed: int) -> Run:
    settings = {"model": "quadratic", "kind": kind, "tau": tau}
    return Run(key=_key(settings, seed), level=Level.VIRTUAL, settings=settings, seed=seed, expected_secs=0.1)


def _training_run(settings: Mapping[str, Any], seed: int) -> Run:
    expected_secs = 0.3 + _SECS_PER_UPDATE * _NUM_UPDATES / 2
    return Run(key=_key(settings, seed), level=Level.VIRTUAL, settings=settings, seed=seed, expected_secs=expected_secs)


def _key(settings: Mapping[str, Any], seed: int) -> str:
    shown = {name: value for name, value in settings.items() if value is not None and name != "num_updates"}
    return "-".join(["L0", *(f"{name}={value}" for name, value in shown.items()), f"seed={seed}"])
