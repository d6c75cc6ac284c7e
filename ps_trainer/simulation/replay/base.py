"""`Arithmetic`: computations of one update rule in the steps of a schedule."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ps_trainer.errors import OptionError
from ps_trainer.simulation.replay.compute_session import ComputeSession
from ps_trainer.simulation.replay.gradients import Gradient, Values
from ps_trainer.simulation.replay.training_setup import WorkerResult
from ps_trainer.simulation.schedule import Schedule, StepColumns


class Entry(NamedTuple):
    """One step of a schedule.

    Attributes:
        worker: Index of the worker.
        local_step: Number of the step among the worker's own steps, from 0.
        version: Value of global_step at the worker's last pull.
        update: Index of the update that has the gradient, or `schedule.LOCAL`, or `schedule.DROPPED`.
        staleness: Number of updates between pull and push; -1 without a push.
        is_last: Whether its push completes the update that it is in.
    """

    worker: int
    local_step: int
    version: int
    update: int
    staleness: int
    is_last: bool


class Arithmetic(abc.ABC):
    """Parameters on the ps tasks during a schedule; a subclass computes how a step changes them.

    Only versions that a later step reads are kept in memory.

    Args:
        session: Session that computes gradients and updates.
        schedule: Schedule to follow.
        options: Options of the rule.

    Attributes:
        holds_tables: Whether the rule can train embedding tables.
        version: Number of updates made so far.
        center: Parameters on the ps tasks at present, with the optimizer's slots.
    """

    holds_tables: ClassVar[bool] = True

    def __init__(self, session: ComputeSession, schedule: Schedule, options: Any):
        if session.tables and not self.holds_tables:
            raise OptionError(
                f"this update rule cannot train the model's embedding tables ({', '.join(session.tables)});"
                " use --update=async or sync, or another model"
            )
        self.session = session
        self.options = options
        self.num_workers = schedule.num_workers
        self.version = 0
        self.center = session.create_state()
        # Index of the last step that reads each version, so that `step` can drop a version as early as possible.
        self._last_reads = np.full(schedule.num_updates + 1, -1, np.int64)
        (reading,) = np.nonzero(self.reads(schedule.steps))
        np.maximum.at(self._last_reads, schedule.steps.version[reading], reading)
        self._kept = {0: self.center.params}
        self._index = 0

    def reads(self, steps: StepColumns) -> np.ndarray:
        """Returns which steps compute with the ps tasks' dense parameters of their `version`, bool [steps]."""
        return np.ones(len(steps.worker), bool)

    def step(self, entry: Entry) -> WorkerResult:
        """Computes the next step of the schedule, and drops the version that no later step reads."""
        computed = self.take(entry)
        if entry.version in self._kept and self._last_reads[entry.version] <= self._index:
            del self._kept[entry.version]
        self._index += 1
        return computed

    @abc.abstractmethod
    def take(self, entry: Entry) -> WorkerResult:
        """Computes the step's gradient and its effects; with `entry.is_last` it makes an update."""

    def pulled_values(self, entry: Entry) -> Values:
        """Returns the parameters that the step's worker read on the ps tasks."""
        return self._kept[entry.version]

    def apply(self, gradient: Gradient, *, rate_factor: float = 1.0) -> None:
        """Makes an update with the run's optimizer."""
        self.session.apply(self.center, gradient, clock=self.version, rate_factor=rate_factor)
        self._count()

    def move_to(self, params: Values) -> None:
        """Makes an update without the optimizer: replaces the parameters."""
        self.center.params = params
        self._count()

    @property
    def num_kept(self) -> int:
        """Number of versions in memory that a later step reads."""
        return len(self._kept)

    def _count(self) -> None:
        self.version += 1
        # A model may be large and a schedule long, so a version that no later step reads is never kept.
        if self._last_reads[self.version] > self._index:
            self._kept[self.version] = self.center.params
