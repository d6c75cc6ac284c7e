"""The cases that the runs of the experiment on staleness-aware learning rates make."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.experiments.harness.cases import Case, cases_by, figures, mean, median, setting, text_property
from ps_trainer.experiments.harness.claims import Measure
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit import real_clusters
from ps_trainer.experiments.toolkit.statistics import mean_interval
from ps_trainer.experiments.toolkit.step_times import Shape

NUM_TEST_EXAMPLES = 360
FAILED_ERROR = 0.5  # test error above which a run has failed
MARGIN = 0.01  # difference of test errors within which two arms end alike
NEAR_RATE = 0.64  # α₀ within a factor 2 of the largest stable synchronous rate
SMALL_RATE = 0.02  # α₀ that is stable at staleness 1 with this momentum: below (1 − μ) / (2 (1 + μ)) of that rate
SYNC_RATES = (SMALL_RATE, 0.16, 0.32, NEAR_RATE, 1.28, 2.56)
MOMENTUM = 0.9
NUM_REAL_LEARNERS = 8
REAL_RATE = 0.04  # α₀ of real clusters, at which no seed recovers from the instability of the full rate


class Updates(Label):
    """Kinds of updates."""

    SINGLE = "single"  # one worker with the whole batch
    SYNC = "sync"
    SOFTSYNC = "softsync"


class Rate(Label):
    """The formula by which the learning rate follows the staleness."""

    FULL = "α₀"
    BY_SPLITS = "α₀/n"
    BY_STALENESS = "α₀/τ"
    BY_RULE = "α₀/τ of the rule"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateSettings(Record):
    """Settings of a training in virtual time."""

    mode: Updates
    learners: int  # number of workers
    batch_size: int  # of each worker
    lr: float  # α₀
    shape: Shape  # shape of the step times
    splits: int | None  # n of n-softsync; None otherwise
    arm: Rate  # how the learning rate follows the staleness
    epochs: int
    model: str = "mlp"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealRateSettings(Record):
    """Settings of a training of a real cluster by λ-softsync."""

    arm: Rate
    learners: int
    lr: float
    momentum: float
    batch_size: int
    num_updates: int
    mean_ms: float  # mean step


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateTrainingFigures(Record):
    """Figures of a training in virtual time."""

    test_error: float  # 0..1; with the last parameters where the training diverged
    loss: float | None  # training loss in the last window; None where it diverged
    losses: Sequence[float]  # training loss of each window
    staleness: float  # mean over the used gradients, in updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedSettings(Record):
    """Settings of a training in virtual time whose rate a pilot run has chosen; fields as in `RateSettings`."""

    is_tuned: bool = True
    mode: Updates
    learners: int
    batch_size: int
    shape: Shape
    splits: int | None
    arm: Rate
    rate_of: Rate  # the arm for which the pilot run has chosen the rate
    epochs: int
    model: str

    def at(self, lr: float) -> RateSettings:
        """Returns the settings of a training with a learning rate."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del values["is_tuned"], values["rate_of"]
        return RateSettings(lr=lr, **values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedFigures(Record):
    """Figures of such a training."""

    lr: float
    test_error: float  # 0..1
    loss: float | None  # training loss in the last window; None where it diverged


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmFigures(Record):
    """Figures of a cluster or of its simulation."""

    staleness: float
    test_error: float
    rate: float  # updates per second


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealArmFigures(real_clusters.RealFigures):
    """Figures of a cluster and of its simulation."""

    measured: ArmFigures
    simulated: ArmFigures


class RateTraining(Case):
    """Trainings of one kind in virtual time, all seeds together."""

    mode = setting("mode")  # `Updates.SINGLE` worker with the whole batch, `Updates.SYNC`, or `Updates.SOFTSYNC`
    splits = setting("splits")  # n of n-softsync; None otherwise
    arm = setting("arm")  # how the learning rate follows the staleness
    rate = setting("lr")  # α₀
    shape = setting("shape")  # shape of the step times
    staleness = mean("staleness")
    errors = figures("test_error")  # each seed's test error, 0..1; with the last parameters where it diverged
    error = mean("test_error")
    losses = figures("loss", missing=math.nan)  # training loss in the last window of each seed that did not diverge

    @property
    def name(self) -> str:
        mode = f"n={self.splits}, {self.arm}, α₀={self.rate:g}" if self.mode == Updates.SOFTSYNC else self.mode
        return mode if self.shape == Shape.NEARLY_EVEN else f"{mode}, {self.shape} steps"

    @property
    def num_failed(self) -> int:
        """Number of seeds with more than half of the test examples wrong."""
        return sum(error > FAILED_ERROR for error in self.errors)


class TunedTraining(Case):
    """Trainings of one arm with the rate that a pilot run has chosen, all seeds together."""

    model = setting("model")
    mode = setting("mode")
    shape = setting("shape")
    splits = setting("splits")
    arm = setting("arm")
    rate = median("lr")  # equal for all seeds
    errors = figures("test_error")
    error = mean("test_error")
    losses = figures("loss", missing=math.nan)


class RateTrainings(NamedTuple):
    """All trainings in virtual time, in the order of the runs."""

    cases: Sequence[RateTraining]

    @property
    def sync(self) -> dict[float, RateTraining]:
        """Synchronous trainings by learning rate."""
        return {case.rate: case for case in self.cases if case.mode == Updates.SYNC}

    @property
    def soft(self) -> list[RateTraining]:
        """Trainings by n-softsync."""
        return [case for case in self.cases if case.mode == Updates.SOFTSYNC]

    @property
    def even(self) -> list[RateTraining]:
        """Trainings by n-softsync with nearly even steps."""
        return [case for case in self.soft if case.shape == Shape.NEARLY_EVEN]

    @property
    def largest_stable_rate(self) -> float:
        """Largest rate of the grid below the first rate at which a synchronous seed fails; 0 without one."""
        stable = 0.0
        for rate, case in sorted(self.sync.items()):
            if case.num_failed:
                return stable
            stable = rate
        return stable


class RealArm(real_clusters.RealCase):
    """Trainings of all seeds on a real cluster, and the same ones in virtual time."""

    arm = setting("arm")

    name = text_property("L2, {0.arm}")

    def pairs(self, name: str) -> list[tuple[float, float]]:
        """Returns a figure of the cluster and of the simulator, for each seed."""
        of_both = zip(self.runs.figures("measured"), self.runs.figures("simulated"), strict=True)
        return [(getattr(measured, name), getattr(simulated, name)) for measured, simulated in of_both]


def trainings_of(results: Results) -> list[RateTraining]:
    """Returns the cases, in the order of the runs."""
    return cases_by(RateTraining, results, "mode", "splits", "arm", "lr", "shape")


def difference(name: str, errors: Sequence[float], of: Sequence[float]) -> Measure:
    """Returns the mean difference of two test errors of the same seeds, with its t interval.

    Both are of the same test examples, so the sampling error of the test set is in neither of them alone.
    """
    differences = [one - other for one, other in zip(errors, of, strict=True)]
    return Measure(name, float(np.mean(differences)), mean_interval(differences))
