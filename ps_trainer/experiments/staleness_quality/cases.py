"""The cases that the runs of the experiment on staleness and model quality make."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from ps_trainer.experiments.harness.cases import Case, cases_by, count, figures, setting
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit.statistics import spread

DEPTHS = {0: (), 1: ("hidden=32",), 2: ("hidden=32,32",), 4: ("hidden=32,32,32,32",)}
FIXED_RATE = 0.05
OPTIMIZER_TAU = 16


class Kind(Label):
    """Kinds of staleness."""

    CONSTANT = "constant"
    UNIFORM = "uniform"
    GEOMETRIC = "geometric"


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuadraticSettings(Record):
    """Settings of a run on the quadratic."""

    model: str = "quadratic"
    kind: Kind
    tau: int  # mean staleness in updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuadraticFigures(Record):
    """Largest stable learning rate on the quadratic."""

    rate: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaleTrainingSettings(Record):
    """Settings of a training."""

    model: str
    kind: Kind
    tau: int  # mean staleness in updates
    depth: int  # number of hidden layers
    optimizer: str
    lr: float
    ramp: int | None  # updates in which the staleness grows; None = no ramp, and the run ends at the target
    num_updates: int  # number of updates after which a run gives up


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaleTrainingFigures(Record):
    """Figures of a training; fields as in `virtual_training.Course`."""

    target_step: int | None = None
    target_version: int | None
    num_steps: int
    has_diverged: bool
    losses: Sequence[float]
    accuracy: float | None


class StaleTraining(Case):
    """Trainings of one kind, all their seeds together."""

    kind = setting("kind")  # kind of staleness, one of `Kind`
    tau = setting("tau")  # mean staleness in updates
    depth = setting("depth")  # number of hidden layers
    optimizer = setting("optimizer")
    lr = setting("lr")
    ramp = setting("ramp")  # updates in which the staleness grows; None = no ramp, and the run ends at the target
    num_updates = setting("num_updates")  # number of updates after which a run gave up
    accuracies = figures("accuracy", missing=0.0)  # training accuracy in the last window of each seed
    num_lost = count("target_version", None)  # number of seeds that did not reach the target

    @property
    def updates(self) -> list[float]:
        """Each seed's number of updates to the target; where it missed the target, `num_updates` as a lower bound."""
        versions = self.runs.figures("target_version")
        return [self.num_updates if version is None else version for version in versions]

    @property
    def median(self) -> float:
        """Median number of updates to the target."""
        return spread(self.updates).median

    @property
    def is_lost(self) -> bool:
        """Whether most seeds do not reach the target."""
        return 2 * self.num_lost > len(self.updates)


def trainings_of(results: Results) -> list[StaleTraining]:
    """Returns the cases, in the order of the runs."""
    return cases_by(StaleTraining, results, "kind", "tau", "depth", "optimizer", "lr", "ramp", "num_updates")


def select(cases: Iterable[StaleTraining], **fields: Any) -> list[StaleTraining]:
    """Returns the cases with these values; `depth` is 1, `optimizer` "sgd" and `ramp` None unless they are given."""
    wanted = {"depth": 1, "optimizer": "sgd", "ramp": None} | fields
    return [case for case in cases if all(getattr(case, name) == value for name, value in wanted.items())]


def best(cases: Sequence[StaleTraining]) -> StaleTraining:
    """Returns the case whose learning rate needs the fewest updates."""
    return min(cases, key=lambda case: (case.median, case.num_lost))


def by_depth(cases: Sequence[StaleTraining]) -> list[StaleTraining]:
    """Returns the cases of all depths with constant staleness at the fixed learning rate."""
    return [one for depth in DEPTHS for one in select(cases, kind=Kind.CONSTANT, depth=depth, lr=FIXED_RATE)]


def tuned_pairs(cases: Sequence[StaleTraining]) -> dict[str, tuple[StaleTraining, StaleTraining]]:
    """Returns the best cases of each optimizer without staleness and with `OPTIMIZER_TAU`; empty without Adagrad."""
    found = {}
    for optimizer in dict.fromkeys(case.optimizer for case in cases):
        groups = [select(cases, kind=Kind.CONSTANT, optimizer=optimizer, tau=one) for one in (0, OPTIMIZER_TAU)]
        if all(groups):
            found[optimizer] = (best(groups[0]), best(groups[1]))
    return found if "adagrad" in found else {}


def stable_rates(results: Results) -> dict[str, dict[int, float]]:
    """Returns kind of staleness -> τ -> median of the largest stable learning rates on the quadratic."""
    rates: dict[str, dict[int, float]] = {}
    for (kind, tau), group in results.by("kind", "tau").items():
        rates.setdefault(kind, {})[tau] = group.median("rate")
    return rates
