"""Experiment: effect of staleness on training; its runs."""

from __future__ import annotations

import functools
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.runs import Measured, Run, run_key, runs_of_seeds, unseen_seeds
from ps_trainer.experiments.toolkit import quadratic, virtual_training
from ps_trainer.simulation import given_staleness
from ps_trainer.simulation.schedule import Schedule

from . import claims, plots, records, tables
from .cases import RampTraining, stable_rates, trainings_of
from .records import (
    DEPTHS,
    FASTEST_OVER_RATE,
    FIXED_RATE,
    OPTIMIZER_TAU,
    Kind,
    QuadraticFigures,
    QuadraticSettings,
    RampFigures,
    RampSearchSettings,
    RampSettings,
    RateChoice,
    RateSearchFigures,
    RateSearchSettings,
    StaleTrainingFigures,
    StaleTrainingSettings,
)
from .searches import RampSearches, RateSearches, train, train_with_ramp
from .texts import TEXTS

RATES = {
    "sgd": (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6),
    "momentum": (0.000625, 0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32),
    "adagrad": (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8),
    "rmsprop": (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128),
    "adam": (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128),
}
TAUS = (0, 1, 2, 4, 8, 16, 32)
DEPTH_TAUS = (0, 4, 8, 16)
MAX_SLOWDOWN = {RateChoice.FIXED: 10, RateChoice.FRACTION: 10, RateChoice.FASTEST: 20}
PILOT_SEEDS = (1001, 1002, 1003)  # of trainings that choose rates; no claim is about them

RAMP_UPDATES = 300
RAMP_TAU = 8
RAMP_DEPTH = 4
RAMP_RATES = {"sgd": (0.025, 0.035, 0.05, 0.07), "momentum": (0.00125, 0.0018, 0.0025, 0.0035)}

_SEARCH_CAP = 1500
_NUM_RAMP_RUN_UPDATES = 1500
_NUM_SAMPLES = 20_000  # staleness values whose shares decide the stability in mean square
_QUICK_TAUS = (0, 4, 16)
_QUICK_RATES = (FIXED_RATE, 0.4)
_SECS_PER_UPDATE, _START_SECS = 0.001, 0.6


class Quadratic(Part[QuadraticSettings, QuadraticFigures]):
    """Largest stable learning rates on a quadratic."""

    figures_type = QuadraticFigures
    selects = {"model": "quadratic"}
    claims = claims.OF_QUADRATIC

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[QuadraticSettings]]:
        return [
            run
            for kind, tau in itertools.product(Kind, _QUICK_TAUS if quick else TAUS)
            for settings in [QuadraticSettings(kind=kind, tau=tau)]
            for run in runs_of_seeds(
                seeds[:1] if kind == Kind.CONSTANT else seeds[:3], run_key("L0", settings), settings, 0.5
            )
        ]

    def execute(self, run: Run[QuadraticSettings], folder: pathlib.Path) -> Measured[QuadraticFigures]:
        kind, tau = run.settings.kind, run.settings.tau

        def staleness_of(num_updates: int) -> np.ndarray:
            return _schedule(kind, tau, num_updates, run.seed).steps.staleness

        rate = quadratic.measured_stable_rate(staleness_of, tau)
        if kind != Kind.GEOMETRIC:
            return Measured(QuadraticFigures(rate=rate))
        mean_square_rate = quadratic.measured_mean_square_rate(staleness_of(_NUM_SAMPLES))
        return Measured(QuadraticFigures(rate=rate, mean_square_rate=mean_square_rate))

    cases = staticmethod(stable_rates)
    tables = staticmethod(tables.of_quadratic)
    plots = plots.OF_QUADRATIC


class Ramps(Part[RampSettings, RampFigures]):
    """Training accuracies at the end with and without a ramp, at the rate that most needed it on the pilot seeds."""

    figures_type = RampFigures
    selects = {"goal": records.RAMP}
    claims = claims.OF_RAMPS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RampSettings]]:
        searched = RampSearchSettings(
            depth=RAMP_DEPTH,
            tau=RAMP_TAU,
            rates=RAMP_RATES,
            ramp=RAMP_UPDATES,
            num_updates=_NUM_RAMP_RUN_UPDATES,
            pilot_seeds=PILOT_SEEDS,
        )
        secs = _START_SECS + _SECS_PER_UPDATE * searched.num_updates
        return [
            run
            for ramp in (() if quick else (0, searched.ramp))
            for run in runs_of_seeds(seeds, f"L0-ramp={ramp}", RampSettings(ramp=ramp, searched=searched), secs)
        ]

    def needed_by(self, run: Run[RampSettings]) -> Run[RampSearchSettings]:
        settings = run.settings.searched
        num_runs = 2 * len(settings.pilot_seeds) * sum(map(len, settings.rates.values()))
        return Run("L0-search-ramp", settings, 0, num_runs * run.expected_secs)

    def execute(self, run: Run[RampSettings], folder: pathlib.Path) -> Measured[RampFigures]:
        raise NotImplementedError(f"{run.key} needs the rate of a search")

    def execute_with(self, run: Run[RampSettings], folder: pathlib.Path, needed: Any) -> Measured[RampFigures]:
        chosen = needed.best()
        course = train_with_ramp(run.settings.searched, run.settings.ramp, chosen.optimizer, chosen.lr, run.seed)
        figures = RampFigures(optimizer=chosen.optimizer, lr=chosen.lr, accuracy=course.accuracy)
        return Measured(figures, course.records() if run.seed == 0 else ())

    cases = staticmethod(case_factory(RampTraining, "ramp"))
    tables = staticmethod(tables.of_ramps)


class StaleTrainings(Part[StaleTrainingSettings, StaleTrainingFigures]):
    """Updates to a training accuracy, by staleness, depth and optimizer, with rates that pilot seeds chose."""

    figures_type = StaleTrainingFigures
    claims = claims.OF_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[StaleTrainingSettings]]:
        of = functools.partial(_settings, quick=quick)
        kinds = itertools.product(Kind, _QUICK_TAUS if quick else TAUS)
        settings = [of(kind, tau) for kind, tau in kinds if tau or kind is Kind.CONSTANT]
        depths, taus = ((0, 4), (0, 8)) if quick else (tuple(DEPTHS), DEPTH_TAUS)
        choices = (RateChoice.FIXED,) if quick else (RateChoice.FIXED, RateChoice.FRACTION)
        settings += [
            of(Kind.CONSTANT, tau, depth, choice=choice)
            for choice, depth, tau in itertools.product(choices, depths, taus)
        ]
        settings += [
            of(Kind.CONSTANT, tau, optimizer=optimizer, choice=RateChoice.FASTEST)
            for optimizer, tau in itertools.product(() if quick else RATES, (0, OPTIMIZER_TAU))
        ]
        seeds = seeds if quick else unseen_seeds(seeds)
        secs = _START_SECS + _SECS_PER_UPDATE * 400
        return [run for one in dict.fromkeys(settings) for run in runs_of_seeds(seeds, _key(one), one, secs)]

    def needed_by(self, run: Run[StaleTrainingSettings]) -> Run[RateSearchSettings]:
        one = run.settings.searched
        num_runs = len(one.taus) * len(one.rates) * len(one.pilot_seeds)
        return Run(f"L0-search-depth={one.depth}-optimizer={one.optimizer}", one, 0, num_runs * run.expected_secs)

    def execute(self, run: Run[StaleTrainingSettings], folder: pathlib.Path) -> Measured[StaleTrainingFigures]:
        raise NotImplementedError(f"{run.key} needs the rates of a search")

    def execute_with(
        self, run: Run[StaleTrainingSettings], folder: pathlib.Path, needed: RateSearchFigures
    ) -> Measured[StaleTrainingFigures]:
        settings = run.settings
        rates = settings.searched.rates
        fresh = _place(settings.choice, needed, rates)
        place = needed.fastest(settings.tau) if settings.choice is RateChoice.FASTEST else fresh
        alone = needed.median(0, fresh)
        cap = settings.max_slowdown * int(min(alone, settings.searched.cap))
        schedule = _schedule(settings.kind, settings.tau, cap, run.seed)
        trained = (settings.depth, settings.optimizer, rates[place], run.seed)
        course = train(schedule, *trained, virtual_training.TARGET_ACCURACY)
        figures = StaleTrainingFigures(lr=rates[place], cap=cap, **course._asdict())
        return Measured(figures, course.records() if run.seed == 0 else ())

    cases = staticmethod(trainings_of)
    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class StalenessQuality(Experiment):
    """The effect of staleness on training: largest learning rates, and updates to the same accuracy."""

    name = "staleness_quality"
    source = (
        "Dai et al. 2019, Toward Understanding the Impact of Staleness, in summaries; Chen et al. 2016, abstract;"
        " Levin and May 1976"
    )
    texts = TEXTS
    parts = (Quadratic(), RateSearches(), RampSearches(), Ramps(), StaleTrainings())
    num_seeds = 10
    num_quick_seeds = 1


def _place(choice: RateChoice, searched: RateSearchFigures, rates: Sequence[float]) -> int:
    """Returns the place of the rate that a choice takes without staleness."""
    if choice is RateChoice.FIXED:
        return rates.index(FIXED_RATE)
    fastest = searched.fastest(0)
    if choice is RateChoice.FASTEST:
        return fastest
    return min(range(len(rates)), key=lambda place: abs(rates[place] - rates[fastest] / FASTEST_OVER_RATE))


def _schedule(kind: Kind, tau: int, num_updates: int, seed: int) -> Schedule:
    seeded = {} if kind is Kind.CONSTANT else {"seed": seed}
    schedule: Schedule = getattr(given_staleness, kind)(tau, num_updates, **seeded)
    return schedule


def _search(depth: int, optimizer: str, *, quick: bool) -> RateSearchSettings:
    """Returns the search for the rates of one model and optimizer, with each staleness that needs one."""
    if depth != 1:
        taus: Sequence[int] = (0,)
    elif optimizer != "sgd":
        taus = (0, OPTIMIZER_TAU)
    else:
        taus = _QUICK_TAUS if quick else TAUS
    return RateSearchSettings(
        depth=depth,
        optimizer=optimizer,
        taus=taus,
        rates=_QUICK_RATES if quick else RATES[optimizer],
        pilot_seeds=PILOT_SEEDS[: 1 if quick else None],
        cap=_SEARCH_CAP,
    )


def _settings(
    kind: Kind,
    tau: int,
    depth: int = 1,
    *,
    optimizer: str = "sgd",
    choice: RateChoice = RateChoice.FIXED,
    quick: bool,
) -> StaleTrainingSettings:
    return StaleTrainingSettings(
        model="mlp" if depth else "softmax",
        kind=kind,
        tau=tau,
        depth=depth,
        optimizer=optimizer,
        choice=choice,
        max_slowdown=MAX_SLOWDOWN[choice],
        searched=_search(depth, optimizer, quick=quick),
    )


def _key(settings: StaleTrainingSettings) -> str:
    own = {"kind": settings.kind, "tau": settings.tau, "depth": settings.depth, "optimizer": settings.optimizer}
    return "-".join(["L0", *(f"{name}={value}" for name, value in own.items()), f"rate={settings.choice.name.lower()}"])
