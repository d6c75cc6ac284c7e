"""Real clusters of processes on one machine, whose workers sleep instead of computing; shared by all experiments.

A run's delays depend only on its seed, its workers and their step times. With the same values, the simulator takes the
very delays that the cluster's workers slept. What a step costs besides its delay comes from a run with one worker
(`calibration.py`), and is the same in all comparisons.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.base import Part
from ps_trainer.experiments.harness.cases import Case
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Measured, Results, Run, SettingsT
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import calibration, virtual_run
from ps_trainer.experiments.toolkit.calibration import Calibration
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.delayed_training import DelayedTraining as DelayedTraining
from ps_trainer.experiments.toolkit.delayed_training import StepCost
from ps_trainer.experiments.toolkit.delayed_training import expected_secs as expected_secs
from ps_trainer.experiments.toolkit.delayed_training import mean_ms as mean_ms
from ps_trainer.experiments.toolkit.statistics import (
    Interval,
    IntervalEstimate,
    mean_estimate,
    mean_ratio,
    spread,
)
from ps_trainer.simulation.schedule import Schedule, as_steps

LEVEL = Level.PROCESSES
WHY_NONE = "no such run was made, as the quick form has few, or none that left the cores to its workers"

_MIN_PERCENT = 5  # percentile of steps; under a barrier of 8 workers, an eighth of the steps does not wait


def update_secs(training: Training) -> np.ndarray:
    """Returns the time in seconds at which a worker first saw each value of global_step ≥ 1 at the end of a step.

    Updates that are first seen together count as made at the same moment. Float64 [num_updates].
    """
    secs: list[float] = []
    for step in training.steps:
        secs += [step.t_end] * (step.global_step - len(secs))
    return np.array(secs)


def as_schedule(training: Training, num_workers: int) -> Schedule:
    """Returns the steps as the simulator has them, with the earliest time at which each push can have been done.

    A push cannot end before its step's delay is over. This time therefore never overstates the duration of a step.
    """
    steps = sorted(training.steps, key=lambda step: step.t_start + step.injected_delay)
    starts = [step.t_start for step in steps]
    ends = [step.t_start + step.injected_delay for step in steps]
    unknown = [0] * len(steps)
    local_steps = [step.local_step - 1 for step in steps]
    columns: list[Sequence[float]] = [[step.worker for step in steps], local_steps, unknown, starts, starts]
    return Schedule(num_workers, as_steps([*columns, ends, ends, unknown, unknown]), update_secs(training))


def overhead_secs(training: Training) -> float:
    """Returns the time of a step without waiting and delay: the 5th percentile over all steps after warm-up."""
    rest = [step.t_end - step.t_start - step.injected_delay for step in training.warm_steps]
    return float(np.percentile(rest, _MIN_PERCENT))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealFigures(Record):
    """Figures of a real run. A subclass says which figures the cluster and the simulation have in common."""

    measured: Record  # figures of the cluster
    simulated: Record  # the same figures of the simulation
    overhead_secs: float  # time of a step besides its delay with one worker, as the simulation has it


class Pair(NamedTuple):
    """A time or a rate of real runs and of the simulator with the same delays; medians over the seeds."""

    case: str  # name of the case
    measured: float  # value on the cluster
    simulated: float  # value in virtual time, in the same unit
    overhead_ms: float  # time of a step besides its delay in virtual time
    delayed_share: float | None  # share of a step for which tasks waited for cores, 0..1; None = unknown
    num_seeds: int  # number of runs
    ratio: float  # measured over simulated, geometric mean of the seeds; of the medians where a seed's is unknown
    interval: Interval | None = None  # of the ratio, over the seeds
    measured_by_seed: Mapping[int, float] = MappingProxyType({})  # seed -> value on the cluster

    @property
    def measured_mean(self) -> IntervalEstimate:
        """Mean over the seeds of the value on the cluster."""
        return mean_estimate([*self.measured_by_seed.values()])


def pair(case: str, runs: Results, name: str) -> Pair:
    """Returns a figure of real runs that differ only in their seed.

    A figure is None where a run never reached something; it then counts as infinite.
    """

    def median(of: str) -> float:
        return statistics.median(values(of))

    def values(of: str) -> list[float]:
        found = [getattr(one, name) for one in runs.figures(of)]
        return [math.inf if value is None else value for value in found]

    measured, simulated = median("measured"), median("simulated")
    ratio = mean_ratio(values("measured"), values("simulated"))
    if not 0 < ratio.value < math.inf:
        ratio = IntervalEstimate(measured / simulated if simulated else math.nan)
    shares = [cpu.delayed_share for result in runs if (cpu := result.cpu) and cpu.delayed_share is not None]
    return Pair(
        case,
        measured,
        simulated,
        1000 * spread(runs.figures("overhead_secs")).median,
        spread(shares).median if shares else None,
        len(runs),
        *ratio,
        dict(zip((result.run.seed for result in runs), values("measured"), strict=True)),
    )


def difference(runs: Results, name: str) -> IntervalEstimate:
    """Returns the mean over the seeds of the cluster's figure minus the simulator's, with Student's t interval."""
    figures = [result.figures for result in runs]
    return mean_estimate([getattr(one.measured, name) - getattr(one.simulated, name) for one in figures])


class RealCase(Case):
    """Real runs that differ only in their seed; their figures are `RealFigures`."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    def pair(self, figure: str) -> Pair:
        """Returns a figure of the cluster and of the simulator."""
        return pair(self.name, self.runs, figure)


class RealPart(Part[SettingsT, RealFigures]):
    """The runs of an experiment on real clusters, each with a simulation of the same delays."""

    figures_type: ClassVar[type[RealFigures]]
    selects = {"level": LEVEL}

    @abc.abstractmethod
    def training_of(self, settings: SettingsT) -> DelayedTraining:
        """Returns the training of a run with these settings."""

    @abc.abstractmethod
    def measured_figures(self, run: Run[SettingsT], training: Training) -> Record:
        """Returns the figures of the cluster."""

    @abc.abstractmethod
    def simulated_figures(self, run: Run[SettingsT], done: virtual_run.VirtualRun) -> Record:
        """Returns the same figures of the simulation."""

    def figures_of(
        self, run: Run[SettingsT], training: Training, done: virtual_run.VirtualRun, cost: StepCost
    ) -> RealFigures:
        """Returns all figures of a run."""
        return self.figures_type(
            measured=self.measured_figures(run, training),
            simulated=self.simulated_figures(run, done),
            overhead_secs=cost.overhead_secs,
        )

    def train(self, run: Run[SettingsT], folder: pathlib.Path) -> Training:
        """Trains on the cluster."""
        return self.training_of(run.settings).train(run, folder)

    def needed_by(self, run: Run[SettingsT]) -> Run[Any] | None:
        """Returns the calibration run with the same rule and model."""
        return calibration.run_for(self.training_of(run.settings), run.level)

    def execute(self, run: Run[SettingsT], folder: pathlib.Path) -> Measured[RealFigures]:
        """Trains on a cluster, and simulates the same delays with steps that cost nothing else."""
        return self._execute(run, folder, StepCost())

    def execute_with(self, run: Run[SettingsT], folder: pathlib.Path, needed: Calibration) -> Measured[RealFigures]:
        """Trains on a cluster, and simulates the same delays with the calibrated cost of a step."""
        return self._execute(run, folder, needed.cost)

    def _execute(self, run: Run[SettingsT], folder: pathlib.Path, cost: StepCost) -> Measured[RealFigures]:
        delayed, training = self.training_of(run.settings), self.train(run, folder)
        figures = self.figures_of(run, training, delayed.simulate(run, cost), cost)
        return Measured(
            figures, training.steps_as_json() if run.seed == 0 else (), training.window, delayed.num_workers
        )

    def why_none(self, cases: Any) -> str:
        """Returns the reason why nothing was measured: too few runs, or too few cores."""
        del cases
        return WHY_NONE


# Why times differ from the simulator's, in words for both directions; the columns are those of `timing_table`.
REAL_TIMES = (
    "The cause was not measured. “Measured / simulated” shows the direction, and “wait for cores” how long tasks"
    " waited: at most 2 % of a step in runs that count."
)


def timing_table(what: str, unit: str, pairs: Sequence[Pair]) -> Table:
    """Returns a table that compares the simulator's timing with the cluster's."""
    columns = (
        *texts("real clusters"),
        *numbers(".3f", "measured, median", "simulated, median", unit=unit),
        *numbers(".3f", "measured / simulated, geometric mean", "from", "to"),
        *numbers(".1f", "a step besides its delay", unit="ms"),
        *numbers(".2f", "wait for cores", unit="% of a step"),
        *numbers("d", "seeds"),
    )
    rows = [
        [one.case, one.measured, one.simulated, one.ratio, *(one.interval or (None, None)), one.overhead_ms]
        + [None if one.delayed_share is None else 100 * one.delayed_share, one.num_seeds]
        for one in pairs
    ]
    return Table(f"The simulator's timing: {what}", columns, rows, LEVEL)
