"""Settings and figures of the runs on staleness and model quality, and how learning rates are chosen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.toolkit.virtual_training import TARGET_ACCURACY

DEPTHS = {0: (), 1: ("hidden=32",), 2: ("hidden=32,32",), 4: ("hidden=32,32,32,32",)}
FIXED_RATE = 0.05
FASTEST_OVER_RATE = 8  # the fastest rate without staleness over the rate with which depths are compared
OPTIMIZER_TAU = 16
OPTIMIZERS = {"sgd": "SGD", "momentum": "momentum", "adagrad": "Adagrad", "rmsprop": "RMSProp", "adam": "Adam"}
RATES = "rates"
RAMP = "ramp"


class Kind(Label):
    """Kinds of staleness."""

    CONSTANT = "constant"
    UNIFORM = "uniform"
    GEOMETRIC = "geometric"


class RateChoice(Label):
    """Ways to choose a learning rate."""

    FIXED = f"{FIXED_RATE:g}"
    FRACTION = f"1/{FASTEST_OVER_RATE} of the fastest"  # of the same model without staleness
    FASTEST = "fastest"  # with the same staleness


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuadraticSettings(Record):
    """Settings of a run on the quadratic."""

    model: str = "quadratic"
    kind: Kind
    tau: int  # mean staleness in updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuadraticFigures(Record):
    """Largest stable learning rates on the quadratic."""

    rate: float  # of the run's own sequence of staleness values
    mean_square_rate: float | None = None  # of random staleness with their shares


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateSearchSettings(Record):
    """Settings of a search for the fastest learning rate, by trainings on pilot seeds."""

    search: str = RATES
    depth: int  # number of hidden layers
    optimizer: str
    taus: Sequence[int]  # constant staleness in updates
    rates: Sequence[float]  # rising
    pilot_seeds: Sequence[int]
    cap: int  # number of updates after which a training gives up


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateSearchFigures(Record):
    """Updates to the target on the pilot seeds."""

    updates: Mapping[str, Sequence[Sequence[int | None]]]  # τ -> rate's place -> seeds; None = gave up

    def median(self, tau: int, place: int) -> float:
        """Returns the median of the updates at one rate, infinite if most seeds gave up there or were not tried."""
        found = self.updates[str(tau)]
        if place >= len(found):
            return math.inf
        return float(np.median([math.inf if one is None else one for one in found[place]]))

    def fastest(self, tau: int) -> int:
        """Returns the place of the fastest rate; of those at which most seeds gave up, the first."""
        return min(range(len(self.updates[str(tau)])), key=lambda place: self.median(tau, place))


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaleTrainingSettings(Record):
    """Settings of a training."""

    model: str
    kind: Kind
    tau: int  # mean staleness in updates
    depth: int  # number of hidden layers
    optimizer: str
    choice: RateChoice  # how the learning rate is chosen
    max_slowdown: int  # updates after which the run gives up, over those on the pilot seeds without staleness
    searched: RateSearchSettings  # search that gives both


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaleTrainingFigures(Record):
    """Figures of a training; fields as in `virtual_training.Course`, besides the first two."""

    lr: float
    cap: int  # number of updates after which the run gives up
    target_step: int | None = None
    target_version: int | None
    num_steps: int
    has_diverged: bool
    losses: Sequence[float]
    accuracy: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RampSearchSettings(Record):
    """Settings of a search for a training that needs a ramp, on pilot seeds."""

    search: str = RAMP
    depth: int
    tau: int
    rates: Mapping[str, Sequence[float]]  # optimizer -> rates
    ramp: int  # updates in which the staleness grows
    num_updates: int
    pilot_seeds: Sequence[int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PilotPair(Record):
    """Training accuracies at the end with one rate, for each pilot seed."""

    optimizer: str
    lr: float
    without: Sequence[float]
    with_ramp: Sequence[float]

    @property
    def num_rescued(self) -> int:
        """Number of seeds that reach the target with the ramp alone, less those that do without it alone."""
        with_ramp, without = (sum(a >= TARGET_ACCURACY for a in one) for one in (self.with_ramp, self.without))
        return with_ramp - without


@dataclasses.dataclass(frozen=True, kw_only=True)
class RampSearchFigures(Record):
    """Accuracies on the pilot seeds."""

    pairs: Mapping[str, PilotPair]  # optimizer and rate -> accuracies

    def best(self) -> PilotPair:
        """Returns the optimizer and rate for which the ramp rescues most pilot seeds; of equal ones the first."""
        return max(self.pairs.values(), key=lambda pair: pair.num_rescued)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RampSettings(Record):
    """Settings of a training with or without a ramp, at the rate that the search chose."""

    goal: str = RAMP
    ramp: int  # updates in which the staleness grows; 0 = none
    searched: RampSearchSettings  # search that gives optimizer and rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class RampFigures(Record):
    """Figures of such a training."""

    optimizer: str
    lr: float
    accuracy: float | None  # training accuracy in the last window; None where it diverged
