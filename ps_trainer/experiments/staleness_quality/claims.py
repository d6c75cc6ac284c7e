"""Published numbers about staleness and model quality, and the claims with their measures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.claims import Claim, ClaimKind, Limit, Measure
from ps_trainer.experiments.toolkit import quadratic, virtual_training

from .cases import FIXED_RATE, Kind, StaleTraining, by_depth, select, tuned_pairs


def _rising_share(cases: Sequence[StaleTraining]) -> float:
    """Returns the share of pairs of staleness values in which the greater value needs more updates; NaN without a pair.

    A pair is left out where neither value reaches the target, because it is not evidence.
    """
    ordered = sorted(cases, key=lambda case: case.tau)
    pairs = [(one, other) for one, other in itertools.combinations(ordered, 2) if not (one.is_lost and other.is_lost)]
    return float(np.mean([other.median > one.median for one, other in pairs])) if pairs else float("nan")


def _variation(rates: Mapping[int, float]) -> float:
    """Returns the largest over smallest product of rate and 1 + τ; `rates` has a rate for each τ."""
    products = [rate * (1 + tau) for tau, rate in rates.items()]
    return max(products) / min(products)


def _variations(rates: Mapping[str, Mapping[int, float]], *kinds: str) -> list[Measure]:
    return [Measure(kind, _variation(rates[kind])) for kind in kinds if kind in rates]


def _rising_shares(cases: Sequence[StaleTraining]) -> list[Measure]:
    at_fixed = select(cases, lr=FIXED_RATE)
    return [
        Measure(kind, _rising_share([one for one in at_fixed if one.kind == kind or one.tau == 0]))
        for kind in Kind
        if at_fixed
    ]


def _slowdown(stale: StaleTraining, fresh: StaleTraining) -> float:
    """Returns updates with over without staleness; infinite if most seeds fail with it, NaN if they fail without it."""
    if fresh.is_lost:
        return math.nan
    return math.inf if stale.is_lost else stale.median / fresh.median


def depth_measures(cases: Sequence[StaleTraining]) -> list[Measure]:
    """Returns the slowdown with four hidden layers over that with none, for each τ ≥ 4 at which not both fail."""
    at = {(case.depth, case.tau): case for case in cases}
    measures = []
    for tau in sorted({case.tau for case in cases if case.tau >= 4}):
        if (0, tau) in at and (4, tau) in at:
            deep, shallow = (_slowdown(at[depth, tau], at[depth, 0]) for depth in (4, 0))
            if math.isfinite(deep) or math.isfinite(shallow):
                measures.append(Measure(f"τ={tau}", deep / shallow))
    return measures


def _ramp_measures(cases: Sequence[StaleTraining]) -> list[Measure]:
    """Returns the median accuracy with a ramp, of the cases whose accuracy without a ramp is below the target."""
    by_ramp = {
        (case.tau, case.lr, case.ramp): sorted(case.accuracies)[len(case.accuracies) // 2]
        for case in cases
        if case.ramp is not None
    }
    return [
        Measure(f"τ={tau}, lr={lr:g}", accuracy)
        for (tau, lr, ramp), accuracy in by_ramp.items()
        if ramp and by_ramp[tau, lr, 0] < virtual_training.TARGET_ACCURACY
    ]


def _adagrad_measures(cases: Sequence[StaleTraining]) -> list[Measure]:
    """Returns the slowdowns of momentum and Adam over the slowdown of Adagrad, unless both fail."""
    slowdowns = {optimizer: _slowdown(stale, fresh) for optimizer, (fresh, stale) in tuned_pairs(cases).items()}
    return [
        Measure(optimizer, slowdowns[optimizer] / slowdowns["adagrad"])
        for optimizer in ("momentum", "adam")
        if optimizer in slowdowns and (math.isfinite(slowdowns[optimizer]) or math.isfinite(slowdowns["adagrad"]))
    ]


OF_QUADRATIC = (
    Claim(
        key="exact",
        sentence="On a quadratic with constant staleness the largest stable rate is 2 sin(π / (2 (2τ + 1)))",
        kind=ClaimKind.THEORY,
        quantity="measured over exact rate",
        limit=Limit(low=0.98, high=1.02),
        measure=lambda rates: [
            Measure(f"τ={tau}", rate / quadratic.largest_stable_rate(tau))
            for tau, rate in rates.get(Kind.CONSTANT, {}).items()
        ],
    ),
    Claim(
        key="boundary",
        sentence="On a quadratic the largest stable rate falls about as 1 / (1 + τ), τ constant or uniform on 0…2τ",
        kind=ClaimKind.THEORY,
        quantity="largest over smallest product of rate and 1 + τ, of all τ",
        limit=Limit(high=4),
        expected=Limit(high=2),
        measure=lambda rates: _variations(rates, Kind.CONSTANT, Kind.UNIFORM),
    ),
    Claim(
        key="boundary_geometric",
        sentence="With geometric staleness, too, that rate falls about as 1 / (1 + τ)",
        kind=ClaimKind.EXTENSION,
        quantity="largest over smallest product of rate and 1 + τ, of all τ",
        limit=Limit(high=4),
        expected=Limit(high=2),
        measure=lambda rates: _variations(rates, Kind.GEOMETRIC),
    ),
)

OF_TRAINING = (
    Claim(
        key="slower",
        sentence="At one learning rate more staleness takes more updates to the same accuracy",
        kind=ClaimKind.LITERATURE,
        quantity="share of pairs of two staleness values of which the greater takes more updates",
        limit=Limit(low=0.75),
        expected=Limit(low=0.9),
        measure=_rising_shares,
    ),
    Claim(
        key="depth",
        sentence="Deeper models suffer more",
        kind=ClaimKind.LITERATURE,
        quantity="slowdown with 4 hidden layers over that of softmax regression",
        limit=Limit(low=1.0),
        expected=Limit(low=1.2),
        measure=lambda cases: depth_measures(by_depth(cases)),
    ),
    Claim(
        key="ramp",
        sentence="Staleness that grows from 0 lets runs train that otherwise fail",
        kind=ClaimKind.LITERATURE,
        quantity="median training accuracy at the end, with ramp, where it is too low without",
        limit=Limit(low=virtual_training.TARGET_ACCURACY),
        measure=_ramp_measures,
        why_none=lambda cases: "no run failed without a ramp",
    ),
    Claim(
        key="adagrad",
        sentence="Adagrad tolerates more staleness than momentum and Adam, each at its best learning rate",
        kind=ClaimKind.LITERATURE,
        quantity="the other's slowdown over Adagrad's",
        limit=Limit(low=1.0),
        measure=_adagrad_measures,
        why_none=lambda cases: "the short form has no other optimizers",
    ),
)
