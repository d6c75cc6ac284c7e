"""Real clusters of processes on one machine, whose workers sleep instead of computing; shared by all experiments.

A run's delays depend only on its seed, its workers and their step times. With the same values, the simulator takes the
very delays that the cluster's workers slept. The two differ only by the cost of a step besides its delay, which also
changes the order of arrivals.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.base import Level, Measured, Part, Results, Run, SettingsT
from ps_trainer.experiments.harness.cases import Case
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import virtual
from ps_trainer.experiments.toolkit.clusters import QUIET, Cluster, Training, flags_of
from ps_trainer.experiments.toolkit.statistics import spread
from ps_trainer.simulation.schedule import Schedule, as_steps

LEVEL = Level.PROCESSES
WHY_NONE = "no such run was made, as the quick form has few, or none that left the cores to its workers"

_SETTINGS = {**QUIET, "dataset": "digits"}
# Nearly no arithmetic, so that the cores idle and a step lasts as long as its delay.
_IDLE = {"model": "softmax", "batch_size": 4, "learning_rate": 0.001}
_START_SECS = 10.0
_START_SECS_PER_WORKER = 2.0
_DEADLINE_FACTOR = 10
_MIN_PERCENT = 5  # percentile of steps; under a barrier of 8 workers, an eighth of the steps does not wait


def mean_ms(num_workers: int, least_ms: float = 80.0) -> float:
    """Mean step time for at most 85 gradients per second, which leave two cores mostly idle."""
    return max(least_ms, 12.0 * num_workers)


def expected_secs(num_workers: int, steps_secs: float) -> float:
    """Expected duration of a run whose steps together take `steps_secs`."""
    return _START_SECS + num_workers * _START_SECS_PER_WORKER + steps_secs


class DelayedTraining(NamedTuple):
    """A training whose workers are delayed, on a cluster with one ps task and in virtual time."""

    update: str  # Name of `--update`
    options: Sequence[str]  # Values of `--update_option`
    num_workers: int  # Number of workers
    num_updates: int  # Value of global_step at the end
    compute: Sequence[str]  # Delays, as for `--straggler`
    simulated_compute: Sequence[str] = ()  # Delays in virtual time, where they have another unit
    settings: Mapping[str, Any] = _IDLE  # Model, batch size, optimizer and learning rate

    def train(self, run: Run[Any], folder: pathlib.Path) -> Training:
        """Trains on a cluster, with the seed of the run.

        Raises:
            RunError: The run failed.
        """
        options = {"update": self.update, "update_option": self.options, "straggler": self.compute}
        settings = {**_SETTINGS, **self.settings, **options, "max_steps": self.num_updates, "seed": run.seed}
        deadline_secs = _DEADLINE_FACTOR * run.expected_secs
        return Cluster(num_workers=self.num_workers, flags=flags_of(settings), deadline_secs=deadline_secs).train(
            folder
        )

    def simulate(self, run: Run[Any]) -> virtual.VirtualRun:
        """Simulates the same delays in virtual time."""
        compute, num_workers = self.simulated_compute or self.compute, self.num_workers
        return virtual.run(
            self.update,
            self.options,
            num_workers=num_workers,
            compute=compute,
            num_updates=self.num_updates,
            seed=run.seed,
        )


def update_secs(training: Training) -> np.ndarray:
    """Time in seconds at which a worker first saw each value of global_step ≥ 1 at the end of a step.

    Updates that are first seen together count as made at the same moment. Float64 [num_updates].
    """
    secs: list[float] = []
    for step in training.steps:
        secs += [step["t_end"]] * (step["global_step"] - len(secs))
    return np.array(secs)


def as_schedule(training: Training, num_workers: int) -> Schedule:
    """The steps as the simulator has them, with the earliest time at which each push can have been done.

    A push cannot end before its step's delay is over. This time therefore never overstates the duration of a step.
    """
    steps = sorted(training.steps, key=lambda step: step["t_start"] + step["injected_delay"])
    starts = [step["t_start"] for step in steps]
    ends = [step["t_start"] + step["injected_delay"] for step in steps]
    numbers_of = {name: [step[name] for step in steps] for name in ("worker", "local_step")}
    unknown = [0] * len(steps)
    columns = [numbers_of["worker"], [number - 1 for number in numbers_of["local_step"]], unknown, starts, starts]
    return Schedule(num_workers, as_steps([*columns, ends, ends, unknown, unknown]), update_secs(training))


def overhead_secs(training: Training) -> float:
    """Time of a step without waiting, besides its delay: the 5th percentile over all steps after warm-up."""
    rest = [step["t_end"] - step["t_start"] - step["injected_delay"] for step in training.warm_steps]
    return float(np.percentile(rest, _MIN_PERCENT))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealFigures(Record):
    """Figures of a real run. A subclass says which figures the cluster and the simulation have in common."""

    measured: Record  # figures of the cluster
    simulated: Record  # the same figures of the simulation
    overhead_secs: float  # time of a step besides its delay


class Pair(NamedTuple):
    """A time or a rate of real runs and of the simulator with the same delays; medians over the seeds."""

    case: str  # name of the case
    measured: float  # value on the cluster
    simulated: float  # value in virtual time, in the same unit
    overhead_ms: float  # time of a step besides its delay
    cpu_share: float | None  # busy share of the machine's cores, 0..1; None = unknown
    num_seeds: int  # number of runs

    @property
    def ratio(self) -> float:
        return self.measured / self.simulated


def pair(case: str, runs: Results, name: str) -> Pair:
    """A figure of real runs that differ only in their seed.

    A figure is None where a run never reached something; it then counts as infinite.
    """

    def median(of: str) -> float:
        values = [getattr(one, name) for one in runs.figures(of)]
        return statistics.median(math.inf if value is None else value for value in values)

    shares = [result.cpu.share for result in runs if result.cpu is not None]
    return Pair(
        case,
        median("measured"),
        median("simulated"),
        1000 * spread(runs.figures("overhead_secs")).median,
        spread(shares).median if shares else None,
        len(runs),
    )


class RealCase(Case):
    """Real runs that differ only in their seed; their figures are `RealFigures`."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    def pair(self, figure: str) -> Pair:
        """A figure of the cluster and of the simulator."""
        return pair(self.name, self.runs, figure)


class RealPart(Part[SettingsT, RealFigures]):
    """The runs of an experiment on real clusters, each with a simulation of the same delays."""

    figures_type: ClassVar[type[RealFigures]]
    selects = {"level": LEVEL}

    @abc.abstractmethod
    def training_of(self, settings: SettingsT) -> DelayedTraining:
        """The training of a run with these settings."""

    @abc.abstractmethod
    def measured(self, run: Run[SettingsT], training: Training) -> Record:
        """Figures of the cluster."""

    @abc.abstractmethod
    def simulated(self, run: Run[SettingsT], done: virtual.VirtualRun) -> Record:
        """The same figures of the simulation."""

    def figures_of(self, run: Run[SettingsT], training: Training, done: virtual.VirtualRun) -> RealFigures:
        """All figures of a run."""
        return self.figures_type(
            measured=self.measured(run, training),
            simulated=self.simulated(run, done),
            overhead_secs=overhead_secs(training),
        )

    def train(self, run: Run[SettingsT], folder: pathlib.Path) -> Training:
        """Trains on the cluster."""
        return self.training_of(run.settings).train(run, folder)

    def execute(self, run: Run[SettingsT], folder: pathlib.Path) -> Measured[RealFigures]:
        """Trains on a cluster, and simulates the same delays."""
        training = self.train(run, folder)
        figures = self.figures_of(run, training, self.training_of(run.settings).simulate(run))
        return Measured(figures, training.steps if run.seed == 0 else (), training.window)

    def why_none(self, cases: Any) -> str:
        """Reason why nothing was measured: too few runs, or too few cores."""
        del cases
        return WHY_NONE


def timing_table(what: str, unit: str, pairs: Sequence[Pair]) -> Table:
    """Table that compares the simulator's timing with the cluster's."""
    columns = (
        *texts("real clusters"),
        *numbers(".3f", "measured", "simulated", unit=unit),
        *numbers(".3f", "measured / simulated"),
        *numbers(".1f", "a step beside its delay", unit="ms"),
        *numbers(".0f", "CPU", unit="%"),
        *numbers("d", "seeds"),
    )
    rows = [
        [one.case, one.measured, one.simulated, one.ratio, one.overhead_ms]
        + [None if one.cpu_share is None else 100 * one.cpu_share, one.num_seeds]
        for one in pairs
    ]
    return Table(f"The simulator's timing: {what}", columns, rows, LEVEL)
