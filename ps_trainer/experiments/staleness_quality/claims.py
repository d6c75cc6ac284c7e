"""The claims about staleness and model quality, with their measures."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.claims import (
    BY_UNSEEN_SEEDS,
    Limit,
    Measure,
    amend,
    extension_claim,
    literature_claim,
    theory_claim,
)
from ps_trainer.experiments.harness.targets import Samples
from ps_trainer.experiments.toolkit import quadratic
from ps_trainer.experiments.toolkit.statistics import Interval, bootstrap_interval, resampled_medians, share_interval

from .cases import (
    MEAN_SQUARE,
    RampTraining,
    StaleTraining,
    rescued,
    select,
    slowdowns_by_depth,
    slowdowns_by_optimizer,
)
from .records import OPTIMIZERS, Kind, RateChoice

_DEEP = 4
_AMENDED = (
    "2026-11-26: an interval decides, rates come from other seeds, and runs give up later, so that neither chance nor"
    " tuning nor an early end does"
)


def _variations(rates: Mapping[str, Mapping[int, float]], *kinds: str) -> list[Measure]:
    """Returns, for each kind of staleness, the largest over the smallest product of rate and 1 + τ."""
    products = {kind: [rate * (1 + tau) for tau, rate in rates[kind].items()] for kind in kinds if kind in rates}
    return [Measure(kind, max(own) / min(own)) for kind, own in products.items()]


def _over_exact(rates: Mapping[str, Mapping[int, float]], kind: str, exact: Callable[[int], float]) -> list[Measure]:
    return [Measure(f"τ={tau}", rate / exact(tau)) for tau, rate in rates.get(kind, {}).items()]


def rising_share(name: str, ordered: Sequence[Samples]) -> list[Measure]:
    """Returns the share of pairs in which the later sample has the greater median, with its bootstrap interval.

    A pair is left out where neither median is known, because it is not evidence. Resamples of few seeds have ties and
    more noise than the seeds, so fewer of their pairs may rise. The interval reaches to the share of the seeds, too.
    """
    first, later = np.triu_indices(len(ordered), 1)

    def shares(medians: np.ndarray) -> np.ndarray:
        known = np.isfinite(medians[first]) | np.isfinite(medians[later])
        rising = known & (medians[later] > medians[first])
        return np.asarray(rising.sum(axis=0) / np.maximum(known.sum(axis=0), 1))

    values = [one.values for one in ordered]
    medians = np.median(values, axis=1)
    if np.isfinite(medians).sum() == 0 or len(ordered) < 2:
        return []
    share, resampled = float(shares(medians)), shares(resampled_medians(values))
    ends = bootstrap_interval(resampled, resampled)
    return [Measure(name, share, Interval(min(share, ends.low), max(share, ends.high)))]


def _rising_shares(cases: Sequence[StaleTraining]) -> list[Measure]:
    at_fixed = select(cases, choice=RateChoice.FIXED)
    found = []
    for kind in Kind:
        own = sorted((one for one in at_fixed if one.kind == kind or one.tau == 0), key=lambda case: case.tau)
        found += rising_share(kind, [one.updates for one in own])
    return found


def _deep_over_shallow(choice: RateChoice, num_layers: int = 0) -> Callable[[Sequence[StaleTraining]], list[Measure]]:
    """Returns a function for the slowdown with four hidden layers over that with none or few, for each τ."""

    def measure(cases: Sequence[StaleTraining]) -> list[Measure]:
        by_depth = slowdowns_by_depth(cases, choice)
        shallow, deep = by_depth.get(num_layers, {}), by_depth.get(_DEEP, {})
        return [one for tau in shallow if tau in deep for one in deep[tau].over(shallow[tau], f"τ={tau}")]

    return measure


def _fragile_over_robust(
    fragile: Sequence[str], robust: Sequence[str]
) -> Callable[[Sequence[StaleTraining]], list[Measure]]:
    """Returns a function for the slowdowns of some optimizers over those of others."""

    def measure(cases: Sequence[StaleTraining]) -> list[Measure]:
        found = slowdowns_by_optimizer(cases)
        pairs = [(one, other) for one in fragile for other in robust if one in found and other in found]
        return [
            measure
            for one, other in pairs
            for measure in found[one].over(found[other], f"{OPTIMIZERS[one]} over {OPTIMIZERS[other]}")
        ]

    return measure


def _rescued_shares(cases: Sequence[RampTraining]) -> list[Measure]:
    failed, num_rescued = rescued(cases)
    if not failed or 2 * failed < len(cases[0].accuracies):
        return []
    chosen = cases[0]
    name = f"{OPTIMIZERS[chosen.optimizer]}, lr={chosen.lr:g}, {failed} failed"
    return [Measure(name, num_rescued / failed, share_interval(num_rescued, failed))]


def _why_no_ramp(cases: Sequence[RampTraining]) -> str:
    if not cases:
        return "the short form has no ramps"
    ends = {bool(case.ramp): f"{sum(case.reached)} of {len(case.reached)} seeds" for case in cases}
    chosen = f"{OPTIMIZERS[cases[0].optimizer]}, lr={cases[0].lr:g}"
    return (
        f"where pilot seeds needed it most ({chosen}), {ends.get(False)} train without a ramp, {ends.get(True)} with it"
    )


_of_depth = functools.partial(
    literature_claim,
    quantity=f"slowdown with {_DEEP} hidden layers over that of softmax regression",
    limit=Limit(low=1.0),
    expected=Limit(low=1.2),
)

_of_optimizers = functools.partial(
    literature_claim,
    quantity="slowdown of the one that tolerates less over that of the other",
    limit=Limit(low=1.0),
    why_none=lambda cases: "the short form has no other optimizers",
)

OF_QUADRATIC = (
    theory_claim(
        key="exact",
        sentence="On a quadratic with constant staleness the largest stable rate is 2 sin(π / (2 (2τ + 1)))",
        quantity="measured over exact rate",
        limit=Limit(low=0.98, high=1.02),
        measure=lambda rates: _over_exact(rates, Kind.CONSTANT, quadratic.largest_stable_rate),
    ),
    theory_claim(
        key="exact_geometric",
        sentence="With geometric staleness the largest rate that is stable in mean square is that of the recursion",
        quantity="measured over exact rate",
        limit=Limit(low=0.98, high=1.02),
        amended="2026-11-26: new, as the recursion gives the limit in mean square",
        measure=lambda rates: _over_exact(rates, MEAN_SQUARE, quadratic.largest_stable_geometric_rate),
    ),
    theory_claim(
        key="boundary",
        sentence="On a quadratic the largest stable rate falls about as 1 / (1 + τ), τ constant or uniform on 0…2τ",
        quantity="largest over smallest product of rate and 1 + τ, of all τ",
        limit=Limit(high=4),
        expected=Limit(high=2),
        measure=lambda rates: _variations(rates, Kind.CONSTANT, Kind.UNIFORM),
    ),
    theory_claim(
        key="boundary_geometric",
        sentence="On a quadratic with geometric staleness the largest stable rate is about √2 / √(1 + τ) in mean"
        " square, for τ of 2 or more",
        quantity="measured rate over √2 / √(1 + τ)",
        limit=Limit(low=0.9, high=1.1),
        amended="2026-11-26: 1/(1 + τ) before, of single sequences, which was refuted and which no source claims",
        measure=lambda rates: [
            Measure(f"τ={tau}", rate * math.sqrt((1 + tau) / 2))
            for tau, rate in rates.get(MEAN_SQUARE, {}).items()
            if tau >= 2
        ],
    ),
)

OF_RAMPS = (
    extension_claim(
        key="ramp",
        sentence="Staleness that grows from 0 lets runs train that otherwise fail",
        quantity="share of the seeds that fail without a ramp and end at the target with it",
        limit=Limit(low=0.5),
        amended="2026-11-26: the share of failing seeds, half at least, at a rate that pilot seeds choose; before, a"
        " median accuracy of 0.9 at least, and no rate was below the limit of the full staleness;"
        " 2026-11-27: an extension, as no text of a source was found that says so",
        measure=_rescued_shares,
        why_none=_why_no_ramp,
    ),
)

_JUDGED_AGAIN = (
    literature_claim(
        key="slower",
        sentence="At one learning rate more staleness takes more updates to the same accuracy",
        quantity="share of pairs of two staleness values of which the greater takes more updates",
        limit=Limit(low=0.75),
        expected=Limit(low=0.9),
        amended=_AMENDED,
        measure=_rising_shares,
    ),
    _of_depth(
        key="depth",
        sentence="Deeper models suffer more, each at the same share of its fastest learning rate",
        amended=f"{_AMENDED}; before, at one learning rate",
        measure=_deep_over_shallow(RateChoice.FRACTION),
        why_none=lambda cases: "the short form has one learning rate",
    ),
    _of_depth(
        key="depth_at_one_rate",
        sentence="At one learning rate deeper models suffer more",
        amended=_AMENDED,
        measure=_deep_over_shallow(RateChoice.FIXED),
    ),
    extension_claim(
        key="depth_of_perceptrons",
        sentence="Of perceptrons, too, those with four hidden layers suffer more than those with one, each at the same"
        " share of its fastest learning rate",
        quantity=f"slowdown with {_DEEP} hidden layers over that with one",
        limit=Limit(low=1.0),
        amended="2026-11-28: new, after the first run, as softmax regression is about as fast over a wide range of"
        " rates, so that a share of its fastest one says little",
        measure=_deep_over_shallow(RateChoice.FRACTION, 1),
        why_none=lambda cases: "the short form has one learning rate",
    ),
    _of_optimizers(
        key="adagrad",
        sentence="Adagrad tolerates more staleness than momentum and Adam, each at its best learning rate",
        amended=_AMENDED,
        measure=_fragile_over_robust(("momentum", "adam"), ("adagrad",)),
    ),
    _of_optimizers(
        key="sgd",
        sentence="SGD tolerates more staleness than momentum and Adam, each at its best learning rate",
        amended="2026-11-26: new, as SGD is among the other optimizers of a summary of the source",
        measure=_fragile_over_robust(("momentum", "adam"), ("sgd",)),
    ),
    _of_optimizers(
        key="rmsprop",
        sentence="Adagrad and SGD tolerate more staleness than RMSProp, each at its best learning rate",
        amended="2026-11-26: new, as a summary of the source names RMSProp with momentum and Adam",
        measure=_fragile_over_robust(("rmsprop",), ("adagrad", "sgd")),
    ),
)
OF_TRAINING = amend(_JUDGED_AGAIN, BY_UNSEEN_SEEDS)
