"""Pilot runs: choose the learning rate of each arm of a comparison, on seeds that no claim is judged on.

A rate that is the best for the seeds of a comparison is too good for them. So a pilot run trains an arm at each rate
of a grid on `PILOT_SEEDS`, and the runs of the arm need its figures.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.base import Part
from ps_trainer.experiments.harness.cases import Case, setting
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import FiguresT, Measured, Results, Run, SettingsT, runs_of_seeds
from ps_trainer.experiments.harness.tables import Table, numbers, texts

PILOT = "pilot"
PILOT_SEEDS = (1000, 1001)


class TunedArm(NamedTuple):
    """An arm of a comparison."""

    name: str  # unique name in the experiment; a file name
    settings: Any  # `Record` of its runs
    rates: Sequence[float]  # grid of learning rates
    secs: float  # expected duration of a training


@dataclasses.dataclass(frozen=True, kw_only=True)
class PilotSettings(Record):
    """Settings of a pilot run."""

    what: str = PILOT
    arm: str
    training: Record  # settings of the arm's runs
    rates: Sequence[float]
    pilot_seeds: Sequence[int] = PILOT_SEEDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class PilotFigures(Record):
    """Costs of an arm at each learning rate, and the rate with the smallest."""

    rate: float
    cost: float | None  # mean over the pilot seeds at this rate; None = a training failed at every rate
    costs: Mapping[str, Sequence[float | None]]  # rate, as text -> cost of each seed; None = the training failed


class PilotCase(Case):
    """The pilot run of an arm."""

    training = setting("training")
    rates = setting("rates")

    @property
    def figures(self) -> PilotFigures:
        """The chosen rate and the costs."""
        figures: PilotFigures = self.runs[0].figures
        return figures


class TunedPart(Part[SettingsT, FiguresT]):
    """Runs of several arms, each at the learning rate that its pilot run has chosen.

    Attributes:
        cost: What a pilot run minimises, with its unit: "time (mean steps)".
    """

    cost: str

    @abc.abstractmethod
    def arms(self, *, quick: bool) -> Sequence[TunedArm]:
        """Returns the arms of a comparison."""

    @abc.abstractmethod
    def train(self, settings: SettingsT, rate: float, seed: int) -> FiguresT:
        """Trains an arm."""

    @abc.abstractmethod
    def cost_of(self, figures: FiguresT) -> float | None:
        """Returns the cost of a training; None for one that failed."""

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[SettingsT]]:
        return [
            run
            for arm in self.arms(quick=quick)
            for own in [seeds if quick else self.seeds_of(arm, seeds)]
            for run in runs_of_seeds(own, f"L0-{arm.name}", arm.settings, arm.secs)
        ]

    def seeds_of(self, arm: TunedArm, seeds: Sequence[int]) -> Sequence[int]:
        """Returns the seeds of the full runs of an arm; those of the experiment by default."""
        del arm
        return seeds

    def needed_by(self, run: Run[SettingsT]) -> Run[Any]:
        """Returns the pilot run of the arm."""
        arm = next(arm for quick in (False, True) for arm in self.arms(quick=quick) if arm.settings == run.settings)
        settings = PilotSettings(arm=arm.name, training=arm.settings, rates=arm.rates)
        return Run(f"L0-{PILOT}-{arm.name}", settings, 0, arm.secs * len(arm.rates) * len(PILOT_SEEDS))

    def execute(self, run: Run[SettingsT], folder: pathlib.Path) -> Measured[FiguresT]:
        raise NotImplementedError(f"{run.key} needs the learning rate of a pilot run")

    def execute_with(self, run: Run[SettingsT], folder: pathlib.Path, needed: PilotFigures) -> Measured[FiguresT]:
        """Trains at the rate of the pilot run."""
        return Measured(self.train(run.settings, needed.rate, run.seed))


class Pilots(Part[PilotSettings, PilotFigures]):
    """The pilot runs that a tuned part needs; it plans none by itself."""

    figures_type = PilotFigures
    selects = {"what": PILOT}

    def __init__(self, of: TunedPart[Any, Any]):
        self._of = of

    def runs(self, seeds: Sequence[int], *, quick: bool) -> Sequence[Run[PilotSettings]]:
        return ()

    def execute(self, run: Run[PilotSettings], folder: pathlib.Path) -> Measured[PilotFigures]:
        settings = run.settings
        costs = {
            rate: [self._of.cost_of(self._of.train(settings.training, rate, seed)) for seed in settings.pilot_seeds]
            for rate in settings.rates
        }
        return Measured(choose(costs))

    cases = staticmethod(lambda results: [PilotCase(Results([result])) for result in results])

    def tables(self, cases: Sequence[PilotCase]) -> list[Table]:
        """Returns a row per arm: what it differs in, its rate, the ends of its grid, and what the rate cost."""
        settings = [vars(case.training) for case in cases]
        differing = [name for name in (settings[0] if cases else ()) if len({str(one[name]) for one in settings}) > 1]
        columns = (
            *texts(*(name.replace("_", " ") for name in differing)),
            *numbers("g", "learning rate", "smallest of the grid", "largest"),
            *numbers(".4g", f"{self._of.cost}, mean of these seeds"),
        )
        rows = [
            [own[name] for name in differing] + [case.figures.rate, min(case.rates), max(case.rates), case.figures.cost]
            for case, own in zip(cases, settings, strict=True)
        ]
        return [Table("Learning rates, chosen on seeds of their own", columns, rows)]


def choose(costs: Mapping[float, Sequence[float | None]]) -> PilotFigures:
    """Returns the figures of a pilot run; a rate at which a training failed comes after all others."""
    means = {
        rate: math.inf if None in own else float(np.mean([cost for cost in own if cost is not None]))
        for rate, own in costs.items()
    }
    best = min(means, key=lambda rate: (costs[rate].count(None), means[rate]))
    return PilotFigures(
        rate=best,
        cost=means[best] if math.isfinite(means[best]) else None,
        costs={f"{rate:g}": list(own) for rate, own in costs.items()},
    )
