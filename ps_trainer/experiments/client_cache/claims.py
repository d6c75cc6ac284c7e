"""Published numbers about cached reads, and the claims with their measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ps_trainer.experiments.harness.claims import Limit, Measure, extension_claim, literature_claim, theory_claim
from ps_trainer.experiments.harness.targets import ratio
from ps_trainer.experiments.toolkit.statistics import ratio_interval

from .cases import BOUNDS, FRESH_BOUND, CacheArm, CacheComparison, Reads

LARGE = BOUNDS[-1]
MARGIN = 1.05  # sooner by less than a twentieth does not count
MORE = 1.1  # a significant increase: by a tenth at least

Find = Callable[[CacheComparison], CacheArm | None]


def _at(reads: Reads, bound: int | None = None) -> Find:
    return lambda comparison: comparison.at(reads, bound)


def _best(comparison: CacheComparison) -> CacheArm | None:
    return comparison.best


def _ratios(name: str, of: Find, over: Find) -> Callable[[Sequence[CacheComparison]], list[Measure]]:
    """Returns the measure of the ratio of what two arms need to the objective, one for each problem."""

    def measure(comparisons: Sequence[CacheComparison]) -> list[Measure]:
        pairs = [(one, of(one), over(one)) for one in comparisons]
        return [
            found
            for one, arm, other in pairs
            if arm and other and arm is not other
            for found in ratio(f"{one.problem}, {arm.name} over {other.name}", arm, other, name)
        ]

    return measure


def _computing_ratios(comparisons: Sequence[CacheComparison]) -> list[Measure]:
    """Returns a ratio for each chosen bound; the step times do not depend on the problem."""
    pairs = [(one.best, one.at(Reads.BARRIER)) for one in comparisons]
    ratios = {
        f"{arm.name} over {other.name}": ratio_interval(arm.computes, other.computes)
        for arm, other in pairs
        if arm and other
    }
    return [Measure(name, *ratio) for name, ratio in ratios.items()]


OF_READS = (
    literature_claim(
        key="computes",
        sentence="Stale synchronous parallel raises the share of time in which workers compute",
        quantity="share of computing with cached reads at the chosen bound over that behind the averaging barrier",
        limit=Limit(low=MORE),
        measure=_computing_ratios,
    ),
    literature_claim(
        key="sooner_than_barrier",
        sentence="Stale synchronous parallel reaches the objective sooner than fully synchronous training",
        quantity="time behind the averaging barrier over that with cached reads at the chosen bound",
        limit=Limit(low=MARGIN),
        measure=_ratios("times", _at(Reads.BARRIER), _best),
    ),
    literature_claim(
        key="sooner_than_async",
        sentence="Stale synchronous parallel reaches the objective sooner than asynchronous training",
        quantity="time of asynchronous workers over that with cached reads at the chosen bound",
        limit=Limit(low=MARGIN),
        measure=_ratios("times", _at(Reads.NONE), _best),
    ),
    theory_claim(
        key="bound",
        sentence="A read lacks no update that is more than s of the reader's own steps old",
        quantity="largest number of missing steps of another worker minus s",
        limit=Limit(high=0),
        measure=lambda comparisons: [
            Measure(f"{one.problem}, {arm.name}", arm.age - arm.bound) for one in comparisons for arm in one.cached
        ],
    ),
    extension_claim(
        key="quality",
        sentence="With older copies each gradient is worth less",
        quantity=f"gradients to the objective with cached reads at s = {LARGE} over those at s = 0",
        limit=Limit(low=1.0),
        measure=_ratios("gradients", _at(Reads.CACHED, LARGE), _at(Reads.CACHED, 0)),
    ),
    extension_claim(
        key="interior",
        sentence="The best bound is smaller than the largest",
        quantity=f"time with cached reads at s = {LARGE} over that at the chosen bound",
        limit=Limit(low=1.0),
        measure=_ratios("times", _at(Reads.CACHED, LARGE), _best),
        why_none=lambda comparisons: f"s = {LARGE} is the chosen bound, or was not run",
    ),
    extension_claim(
        key="cache",
        sentence="At the same bound cached reads are sooner than fresh ones, as part of their pulls are left out",
        quantity=f"time with fresh reads over that with cached reads, s = {FRESH_BOUND}",
        limit=Limit(low=1.0),
        measure=_ratios("times", _at(Reads.FRESH, FRESH_BOUND), _at(Reads.CACHED, FRESH_BOUND)),
    ),
)
