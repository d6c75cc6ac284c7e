"""`Arithmetic`: what one update rule computes in the steps of a schedule."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ps_trainer.errors import OptionError
from ps_trainer.simulation.replay.bench import Bench
from ps_trainer.simulation.replay.gradients import Gradient, Values
from ps_trainer.simulation.replay.training import Computed
from ps_trainer.simulation.schedule import Schedule, Steps


class Entry(NamedTuple):
    """One step of a schedule.

    Attributes:
        worker, local_step, version, update, staleness: see `schedule.Steps`.
        is_last: whether its push makes the update that it is in.
    """

    worker: int
    local_step: int
    version: int
    update: int
    staleness: int
    is_last: bool


class Arithmetic(abc.ABC):
    """The parameters on the ps tasks through a schedule; a subclass says how a step changes them.

    Only versions that a later step reads are kept.

    Args:
        bench: computes.
        schedule: which is followed.
        options: of the rule in `simulation.rules`, which has the same ones as the cluster's.

    Attributes:
        holds_tables: whether the rule trains embedding tables.
        version: updates made so far.
    """

    holds_tables: ClassVar[bool] = True

    def __init__(self, bench: Bench, schedule: Schedule, options: Any):
        if bench.tables and not self.holds_tables:
            raise OptionError(
                f"the model has the embedding tables {', '.join(bench.tables)}, which this update rule cannot train;"
                " use --update=async or sync, or another model"
            )
        self.bench = bench
        self.options = options
        self.num_workers = schedule.num_workers
        self.version = 0
        self.centre = bench.create_state()
        self._last_reads = np.full(schedule.num_updates + 1, -1, np.int64)
        (reading,) = np.nonzero(self.reads(schedule.steps))
        np.maximum.at(self._last_reads, schedule.steps.version[reading], reading)
        self._kept = {0: self.centre.params}
        self._index = 0

    def reads(self, steps: Steps) -> np.ndarray:
        """Which steps compute something from the ps tasks' dense parameters of their `version`; bool."""
        return np.ones(len(steps.worker), bool)

    def step(self, entry: Entry) -> Computed:
        """Takes the next step of the schedule."""
        computed = self.take(entry)
        if entry.version in self._kept and self._last_reads[entry.version] <= self._index:
            del self._kept[entry.version]
        self._index += 1
        return computed

    @abc.abstractmethod
    def take(self, entry: Entry) -> Computed:
        """Computes the step's gradient and what comes of it; with `entry.is_last` it makes an update."""

    def pulled(self, entry: Entry) -> Values:
        """The parameters that the step's worker read on the ps tasks."""
        return self._kept[entry.version]

    def apply(self, gradient: Gradient, *, rate_factor: float = 1.0) -> None:
        """An update by the run's optimizer."""
        self.bench.apply(self.centre, gradient, clock=self.version, rate_factor=rate_factor)
        self._count()

    def move_to(self, params: Values) -> None:
        """An update without the optimizer."""
        self.centre.params = params
        self._count()

    @property
    def num_kept(self) -> int:
        """Versions in memory that a later step reads."""
        return len(self._kept)

    def _count(self) -> None:
        self.version += 1
        if self._last_reads[self.version] > self._index:
            self._kept[self.version] = self.centre.params
