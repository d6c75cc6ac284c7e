"""Searches for learning rates on pilot seeds, and the trainings that they and the judged runs make."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from ps_trainer.experiments.harness.base import Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.runs import Measured, Run
from ps_trainer.experiments.toolkit import virtual_training
from ps_trainer.simulation import given_staleness
from ps_trainer.simulation.schedule import Schedule

from . import plots, records, tables
from .cases import RateSearch
from .records import (
    DEPTHS,
    PilotPair,
    RampSearchFigures,
    RampSearchSettings,
    RateSearchFigures,
    RateSearchSettings,
)

BATCH_SIZE = 32


class RateSearches(Part[RateSearchSettings, RateSearchFigures]):
    """Searches for the fastest learning rate, which the trainings need; it plans none by itself."""

    figures_type = RateSearchFigures
    selects = {"search": records.RATES}

    def runs(self, seeds: Sequence[int], *, quick: bool) -> Sequence[Run[RateSearchSettings]]:
        return ()

    def execute(self, run: Run[RateSearchSettings], folder: pathlib.Path) -> Measured[RateSearchFigures]:
        settings = run.settings

        def updates(tau: int, lr: float) -> list[int | None]:
            schedule = given_staleness.constant(tau, settings.cap)
            target = virtual_training.TARGET_ACCURACY
            trained = (settings.depth, settings.optimizer, lr)
            return [train(schedule, *trained, seed, target).target_version for seed in settings.pilot_seeds]

        found: dict[str, list[list[int | None]]] = {}
        for tau in settings.taus:
            found[str(tau)] = []
            for lr in settings.rates:
                found[str(tau)].append(updates(tau, lr))
                if is_tried_out(found[str(tau)]):
                    break
        return Measured(RateSearchFigures(updates=found))

    cases = staticmethod(case_factory(RateSearch, "depth", "optimizer"))
    tables = staticmethod(tables.of_searches)
    plots = plots.OF_SEARCHES


class RampSearches(Part[RampSearchSettings, RampSearchFigures]):
    """The search for a rate at which training fails without a ramp and not with it; it plans none by itself."""

    figures_type = RampSearchFigures
    selects = {"search": records.RAMP}

    def runs(self, seeds: Sequence[int], *, quick: bool) -> Sequence[Run[RampSearchSettings]]:
        return ()

    def execute(self, run: Run[RampSearchSettings], folder: pathlib.Path) -> Measured[RampSearchFigures]:
        settings = run.settings
        pairs = {}
        for optimizer, lr in [(name, lr) for name, rates in settings.rates.items() for lr in rates]:
            without, with_ramp = (
                [train_with_ramp(settings, ramp, optimizer, lr, seed).accuracy for seed in settings.pilot_seeds]
                for ramp in (0, settings.ramp)
            )
            pairs[f"{optimizer} {lr:g}"] = PilotPair(optimizer=optimizer, lr=lr, without=without, with_ramp=with_ramp)
        return Measured(RampSearchFigures(pairs=pairs))

    cases = staticmethod(lambda results: [pair for one in results for pair in one.figures.pairs.values()])
    tables = staticmethod(tables.of_ramp_search)


def train(
    schedule: Schedule, depth: int, optimizer: str, lr: float, seed: int, target: float | None
) -> virtual_training.Course:
    """Trains along a schedule, until the training accuracy is the target or, without one, to the end."""
    return virtual_training.course_of(
        schedule,
        "async",
        target=target,
        model="mlp" if depth else "softmax",
        model_options=DEPTHS[depth],
        optimizer=optimizer,
        learning_rate=lr,
        batch_size=BATCH_SIZE,
        seed=seed,
    )


def train_with_ramp(
    settings: RampSearchSettings, ramp: int, optimizer: str, lr: float, seed: int
) -> virtual_training.Course:
    """Trains to the end of a run whose constant staleness grows from 0 in `ramp` updates."""
    schedule = given_staleness.constant(settings.tau, settings.num_updates, ramp_updates=ramp)
    return train(schedule, settings.depth, optimizer, lr, seed, None)


def is_tried_out(found: Sequence[Sequence[int | None]]) -> bool:
    """Returns whether larger rates are not tried: at the last one every seed gave up, and at a smaller one did not."""
    gave_up = [all(one is None for one in seeds) for seeds in found]
    return gave_up[-1] and not all(gave_up)
