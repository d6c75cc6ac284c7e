"""Experiment: effect of staleness on training; its runs."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.runs import Measured, Run, run_key, runs_of_seeds
from ps_trainer.experiments.toolkit import quadratic, virtual_training
from ps_trainer.simulation import given_staleness

from . import claims, plots, tables
from .cases import (
    DEPTHS,
    FIXED_RATE,
    OPTIMIZER_TAU,
    Kind,
    QuadraticFigures,
    QuadraticSettings,
    StaleTrainingFigures,
    StaleTrainingSettings,
    stable_rates,
    trainings_of,
)
from .texts import TEXTS

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


class Quadratic(Part[QuadraticSettings, QuadraticFigures]):
    """Largest stable learning rates on a quadratic."""

    figures_type = QuadraticFigures
    selects = {"model": "quadratic"}
    claims = claims.OF_QUADRATIC

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[QuadraticSettings]]:
        return [
            run
            for kind, tau in itertools.product(Kind, _QUICK_TAUS if quick else _TAUS)
            for settings in [QuadraticSettings(kind=kind, tau=tau)]
            for run in runs_of_seeds(
                seeds[:1] if kind == Kind.CONSTANT else seeds, run_key("L0", settings), settings, 0.1
            )
        ]

    def execute(self, run: Run[QuadraticSettings], folder: pathlib.Path) -> Measured[QuadraticFigures]:
        kind, tau = run.settings.kind, run.settings.tau

        def staleness_of(num_updates: int) -> np.ndarray:
            return _schedule(kind, tau, num_updates, run.seed).steps.staleness

        return Measured(QuadraticFigures(rate=quadratic.measured_stable_rate(staleness_of, tau)))

    cases = staticmethod(stable_rates)
    tables = staticmethod(tables.of_quadratic)
    plots = plots.OF_QUADRATIC


class StaleTrainings(Part[StaleTrainingSettings, StaleTrainingFigures]):
    """Updates to a training accuracy, by staleness, learning rate, depth, ramp and optimizer."""

    figures_type = StaleTrainingFigures
    claims = claims.OF_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[StaleTrainingSettings]]:
        taus = _QUICK_TAUS if quick else _TAUS
        rates = (FIXED_RATE, 0.4) if quick else _RATES
        settings = [_settings(Kind.CONSTANT, tau, lr=lr) for tau in taus for lr in rates]
        settings += [_settings(kind, tau) for kind in (Kind.UNIFORM, Kind.GEOMETRIC) for tau in taus if tau]
        depths = (0, 4) if quick else tuple(DEPTHS)
        settings += [
            _settings(Kind.CONSTANT, tau, depth=depth) for depth in depths for tau in ((0, 8) if quick else _TAUS)
        ]
        ramps = itertools.product(RAMPS[-1:] if quick else RAMPS, (0, RAMP_UPDATES))
        settings += [_settings(Kind.CONSTANT, tau, lr=lr, ramp=ramp) for (tau, lr), ramp in ramps]
        for optimizer, grid in () if quick else OPTIMIZER_RATES.items():
            tuned = itertools.product((0, OPTIMIZER_TAU), grid)
            settings += [_settings(Kind.CONSTANT, tau, optimizer=optimizer, lr=lr) for tau, lr in tuned]
        different = {run_key("L0", one, without=("num_updates",)): one for one in settings}
        secs = 0.3 + _SECS_PER_UPDATE * _NUM_UPDATES / 2
        return [run for key, one in different.items() for run in runs_of_seeds(seeds, key, one, secs)]

    def execute(self, run: Run[StaleTrainingSettings], folder: pathlib.Path) -> Measured[StaleTrainingFigures]:
        settings = run.settings
        schedule = _schedule(settings.kind, settings.tau, settings.num_updates, run.seed, settings.ramp or 0)
        target = virtual_training.TARGET_ACCURACY if settings.ramp is None else None
        with virtual_training.open_replay(
            schedule,
            "async",
            model=settings.model,
            model_options=DEPTHS[settings.depth],
            optimizer=settings.optimizer,
            learning_rate=settings.lr,
            batch_size=_BATCH_SIZE,
            seed=run.seed,
        ) as replay:
            course = virtual_training.follow(replay, _BATCH_SIZE, target=target)
        return Measured(StaleTrainingFigures(**course._asdict()), course.records() if run.seed == 0 else ())

    cases = staticmethod(trainings_of)

    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class StalenessQuality(Experiment):
    """The effect of staleness on training: largest learning rates, and updates to the same accuracy."""

    name = "staleness_quality"
    source = (
        "Chen et al. 2016, section 2; Dai et al. 2019, Toward Understanding the Impact of Staleness; Levin and May 1976"
    )
    texts = TEXTS
    untested = "Dai et al.'s statement about RMSProp"
    parts = (Quadratic(), StaleTrainings())
    num_seeds = 10
    num_quick_seeds = 1


def _schedule(kind: Kind, tau: int, num_updates: int, seed: int, ramp_updates: int = 0) -> Any:
    seeded = {} if kind is Kind.CONSTANT else {"seed": seed}
    return getattr(given_staleness, kind)(tau, num_updates, ramp_updates=ramp_updates, **seeded)


def _settings(
    kind: Kind, tau: int, *, lr: float = FIXED_RATE, depth: int = 1, optimizer: str = "sgd", ramp: int | None = None
) -> StaleTrainingSettings:
    return StaleTrainingSettings(
        model="mlp" if depth else "softmax",
        kind=kind,
        tau=tau,
        depth=depth,
        optimizer=optimizer,
        lr=lr,
        ramp=ramp,
        num_updates=_NUM_UPDATES,
    )
