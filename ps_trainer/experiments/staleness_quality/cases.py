"""The cases that the runs of the experiment on staleness and model quality make."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ps_trainer.experiments.harness.cases import Case, cases_by, count, figures, median, setting
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.harness.targets import Samples
from ps_trainer.experiments.toolkit.virtual_training import TARGET_ACCURACY

from .records import OPTIMIZER_TAU, Kind, RateChoice, RateSearchFigures

MEAN_SQUARE = "geometric, in mean square"


class StaleTraining(Case):
    """Trainings of one kind, all their seeds together."""

    kind = setting("kind")  # kind of staleness, one of `Kind`
    tau = setting("tau")  # mean staleness in updates
    depth = setting("depth")  # number of hidden layers
    optimizer = setting("optimizer")
    choice = setting("choice")  # how the learning rate was chosen, one of `RateChoice`
    lr = median("lr")  # equal for all seeds
    cap = median("cap")  # number of updates after which a run gives up
    accuracies = figures("accuracy", missing=0.0)  # training accuracy in the last window of each seed
    num_lost = count("target_version", None)  # number of seeds that did not reach the target

    @property
    def updates(self) -> Samples:
        """Updates to the target; of a run that gave up, more than its cap."""
        versions = self.runs.figures("target_version")
        known = [math.inf if version is None else float(version) for version in versions]
        return Samples(known, [min(one, self.cap) for one in known])

    def slowdowns(self, fresh: StaleTraining) -> Samples:
        """Returns each seed's updates over those of the same seed without staleness, which must reach the target."""
        pairs = zip(zip(*self.updates, strict=True), fresh.updates.values, strict=True)
        both = [(value / alone, bound / alone) for (value, bound), alone in pairs if math.isfinite(alone)]
        return Samples([value for value, _ in both], [bound for _, bound in both])


class RateSearch(Case):
    """The search for the fastest learning rate of one model and optimizer."""

    depth = setting("depth")
    optimizer = setting("optimizer")
    taus = setting("taus")
    rates = setting("rates")

    @property
    def figures(self) -> RateSearchFigures:
        """Updates to the target by staleness and learning rate."""
        found: RateSearchFigures = self.runs[0].figures
        return found


class RampTraining(Case):
    """Trainings with or without a ramp, all seeds together."""

    ramp = setting("ramp")  # updates in which the staleness grows; 0 = none
    searched = setting("searched")
    lr = median("lr")  # equal for all seeds
    accuracies = figures("accuracy", missing=0.0)  # training accuracy in the last window of each seed

    @property
    def optimizer(self) -> str:
        """Optimizer that the search chose."""
        return str(self.runs[0].figures.optimizer)

    @property
    def reached(self) -> list[bool]:
        """Whether each seed ends at the target accuracy."""
        return [accuracy >= TARGET_ACCURACY for accuracy in self.accuracies]


def trainings_of(results: Results) -> list[StaleTraining]:
    """Returns the cases, in the order of the runs."""
    return cases_by(StaleTraining, results, "kind", "tau", "depth", "optimizer", "choice")


def select(cases: Iterable[StaleTraining], **fields: Any) -> list[StaleTraining]:
    """Returns the cases with these values; `depth` is 1 and `optimizer` "sgd" unless they are given."""
    wanted = {"depth": 1, "optimizer": "sgd"} | fields
    return [case for case in cases if all(getattr(case, name) == value for name, value in wanted.items())]


def slowdowns_by_depth(cases: Sequence[StaleTraining], choice: RateChoice) -> dict[int, dict[int, Samples]]:
    """Returns depth -> τ > 0 -> slowdowns of the seeds under constant staleness."""
    found: dict[int, dict[int, Samples]] = {}
    for depth in sorted({case.depth for case in cases}):
        own = {case.tau: case for case in select(cases, kind=Kind.CONSTANT, depth=depth, choice=choice)}
        found[depth] = {tau: case.slowdowns(own[0]) for tau, case in sorted(own.items()) if tau}
    return found


def slowdowns_by_optimizer(cases: Sequence[StaleTraining]) -> dict[str, Samples]:
    """Returns optimizer -> slowdowns of the seeds at `OPTIMIZER_TAU`, at the fastest rates with and without it."""
    own = {(case.optimizer, case.tau): case for case in cases if case.choice == RateChoice.FASTEST}
    return {name: case.slowdowns(own[name, 0]) for (name, tau), case in own.items() if tau == OPTIMIZER_TAU}


def stable_rates(results: Results) -> dict[str, dict[int, float]]:
    """Returns kind of staleness -> τ -> median of the largest stable learning rates on the quadratic."""
    rates: dict[str, dict[int, float]] = {}
    for (kind, tau), group in results.by("kind", "tau").items():
        rates.setdefault(kind, {})[tau] = group.median("rate")
        if kind == Kind.GEOMETRIC:
            rates.setdefault(MEAN_SQUARE, {})[tau] = group.median("mean_square_rate")
    return rates


def rescued(cases: Sequence[RampTraining]) -> tuple[int, int]:
    """Returns how many seeds fail without a ramp, and how many of these reach the target with it."""
    by_ramp = {bool(case.ramp): case.reached for case in cases}
    if len(by_ramp) < 2:
        return 0, 0
    with_ramp = [reached for alone, reached in zip(by_ramp[False], by_ramp[True], strict=True) if not alone]
    return len(with_ramp), sum(with_ramp)
