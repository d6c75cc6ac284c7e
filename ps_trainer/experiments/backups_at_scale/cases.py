"""The cases that the runs of the experiment on backup workers among many workers make."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.cases import Case, figures, setting
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.targets import TargetCase
from ps_trainer.experiments.toolkit.statistics import Interval, mean_interval, spread

TRAFFIC = "traffic"  # purpose of the runs that only time updates
NUM_NEEDED = 50  # N of these runs
TARGET = 0.93  # test accuracy of the trainings
# Examples of a worker's batch. 64 batches of 4 are more than an update can use (page `linear_scaling`).
SMALL_BATCH, LARGE_BATCH = 1, 4


class UpdateKind(Label):
    """Kinds of updates of n workers."""

    ASYNC = "asynchronous"
    SYNC = "synchronous"
    BACKUP = "synchronous, backup workers"


class Delays(Label):
    """Step times of the runs that only time updates."""

    STRAGGLERS = "few stragglers"
    VARIED = "every step varies"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtScaleSettings(Record):
    """Settings of a training."""

    updates: UpdateKind
    n: int  # number of workers, backup workers included
    b: int  # number of backup workers
    batch_size: int  # examples of a worker's batch
    num_epochs: int  # of used gradients


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtScaleFigures(Record):
    """Figures of a training."""

    rate: float
    accuracy: float  # test accuracy at the end, 0..1: mean over the tests of the last quarter
    is_reached: bool  # whether the test accuracy reached the target
    time: float  # until then, or until the end, in mean steps
    times: Sequence[float]  # of the tests, in mean steps
    accuracies: Sequence[float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrafficSettings(Record):
    """Settings of a run that times the updates of 50 workers and some backup workers."""

    what: str = TRAFFIC
    delays: Delays
    has_transfers: bool  # whether pulls and pushes take time
    b: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrafficFigures(Record):
    """Time per update in seconds, after warm-up."""

    p50: float
    step: float  # mean


class AtScale(TargetCase):
    """Trainings of n workers in one mode, all their seeds together."""

    updates = setting("updates")
    n = setting("n")
    b = setting("b")
    batch_size = setting("batch_size")
    rates = figures("rate")
    accuracies = figures("accuracy")
    times = figures("time")
    is_reached = figures("is_reached")

    @property
    def name(self) -> str:
        return f"{self.updates}, n = {self.n}, batches of {self.batch_size}"


class TimedTraffic(Case):
    """UpdateKind with a number of backup workers, all their seeds together."""

    delays = setting("delays")
    has_transfers = setting("has_transfers")
    b = setting("b")
    medians = figures("p50")
    means = figures("step")

    @property
    def cluster(self) -> str:
        return f"{self.delays}, {'with' if self.has_transfers else 'without'} transfers"

    @property
    def median(self) -> float:
        """Median time per update in seconds, the median over the seeds."""
        return spread(self.medians).median


def gain(case: AtScale, other: AtScale) -> tuple[float, Interval | None]:
    """Returns how much larger the accuracy of a case is than that of another, with Student's t interval of the mean.

    Seeds are paired: with the same seed both begin with the same parameters, and all see the same test examples.
    """
    gains = [one - two for one, two in zip(case.accuracies, other.accuracies, strict=True)]
    return float(np.mean(gains)), mean_interval(gains)
