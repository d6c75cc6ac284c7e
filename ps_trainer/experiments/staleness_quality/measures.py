"""What the experiment on staleness and model quality measures for its claims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.experiments.frame.claims import Measure
from ps_trainer.experiments.lab import virtual_training
from ps_trainer.experiments.staleness_quality.cases import CONSTANT, Case, best, select


def rising_share(cases: Sequence[Case]) -> float:
    """Pairs of two staleness values of which the greater needs more updates, of all pairs; NaN without a pair.

    Pairs that both do not reach the target are no evidence and left out.
    """
    ordered = sorted(cases, key=lambda case: case.tau)
    pairs = [(one, other) for one, other in itertools.combinations(ordered, 2) if not (one.is_lost and other.is_lost)]
    return float(np.mean([other.median > one.median for one, other in pairs])) if pairs else float("nan")


def tuned_pairs(cases: Sequence[Case], tau: int) -> dict[str, tuple[Case, Case]]:
    """Optimizer -> its best cases without staleness and with `tau`; nothing where Adagrad was not run."""
    found = {}
    for optimizer in dict.fromkeys(case.optimizer for case in cases):
        groups = [select(cases, kind=CONSTANT, optimizer=optimizer, tau=one) for one in (0, tau)]
        if all(groups):
            found[optimizer] = (best(groups[0]), best(groups[1]))
    return found if "adagrad" in found else {}


def variation(rates: Mapping[int, float]) -> float:
    """Largest over smallest product of rate and 1 + τ, of a rate for each τ."""
    products = [rate * (1 + tau) for tau, rate in rates.items()]
    return max(products) / min(products)


def slowdown(stale: Case, fresh: Case) -> float:
    """Updates over those without staleness; infinite where most seeds fail with staleness, NaN where without."""
    if fresh.is_lost:
        return math.nan
    return math.inf if stale.is_lost else stale.median / fresh.median


def depth_measures(cases: Sequence[Case]) -> list[Measure]:
    """Slowdown of four hidden layers over that of none, for each τ of 4 and more at which not both fail."""
    by_depth = {(case.depth, case.tau): case for case in cases}
    measures = []
    for tau in sorted({case.tau for case in cases if case.tau >= 4}):
        if (0, tau) in by_depth and (4, tau) in by_depth:
            deep, shallow = (slowdown(by_depth[depth, tau], by_depth[depth, 0]) for depth in (4, 0))
            if math.isfinite(deep) or math.isfinite(shallow):
                measures.append(Measure(f"τ={tau}", deep / shallow))
    return measures


def ramp_measures(cases: Sequence[Case]) -> list[Measure]:
    """Median accuracy with a ramp, of the cases in which it is below the target without."""
    by_ramp = {(case.tau, case.lr, case.ramp): sorted(case.accuracies)[len(case.accuracies) // 2] for case in cases}
    return [
        Measure(f"τ={tau}, lr={lr:g}", accuracy)
        for (tau, lr, ramp), accuracy in by_ramp.items()
        if ramp and by_ramp[tau, lr, 0] < virtual_training.TARGET_ACCURACY
    ]


def adagrad_measures(tuned: Mapping[str, tuple[Case, Case]]) -> list[Measure]:
    """Slowdown of momentum and Adam over that of Adagrad, unless both fail."""
    slowdowns = {optimizer: slowdown(stale, fresh) for optimizer, (fresh, stale) in tuned.items()}
    return [
        Measure(optimizer, slowdowns[optimizer] / slowdowns["adagrad"])
        for optimizer in ("momentum", "adam")
        if optimizer in slowdowns and (math.isfinite(slowdowns[optimizer]) or math.isfinite(slowdowns["adagrad"]))
    ]
