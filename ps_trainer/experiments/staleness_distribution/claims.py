"""Published numbers about the staleness, and the claims with their measures."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ps_trainer.experiments.harness.claims import Limit, Measure, literature_claim, simulator_claim, theory_claim
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.published import Published, Tag
from ps_trainer.experiments.toolkit import theory
from ps_trainer.experiments.toolkit.statistics import of_histogram, share_interval
from ps_trainer.experiments.toolkit.step_times import Shape

from .cases import PAPER_LEARNERS, SLOW_RATES, Staleness, by_level

_ZHANG = "Zhang et al. 2016"
_MOST = 1e-4  # gradients staler than 2n
_ENOUGH = 27_100  # gradients of which none is staler: the interval of their share then ends below `_MOST`
_STALER = "largest share of gradients staler than 2n"

PUBLISHED = (
    Published(f"{_STALER}, n-softsync with {PAPER_LEARNERS} learners", _MOST, "", Tag.READ, f"{_ZHANG}, section 2.4"),
    Published("mean staleness of 15-softsync, about", 15, "", Tag.READ, f"{_ZHANG}, section 2.4"),
    Published("mean staleness of 30-softsync, about", 30, "", Tag.READ, f"{_ZHANG}, section 2.4"),
    Published("mean staleness of n asynchronous workers, n − 1, at n = 60", 59, "", Tag.DERIVED, "Hermans 2017"),
)


def _alike(cases: Sequence[Staleness], shape: str) -> list[Staleness]:
    """Returns the cases of asynchronous workers with equal speeds."""
    return [case for case in cases if case.per_update == 1 and case.shape == shape and not case.is_slow]


def _from_mean(cases: Sequence[Staleness], *, level: Level) -> list[Measure]:
    return [
        Measure(c.name, *c.estimate(lambda one: one.summary.mean - one.predicted_mean).absolute().over(c.n))
        for c in cases
        if c.per_update == 1 and c.level is level
    ]


def _over_mean(cases: Sequence[Staleness], *, level: Level) -> list[Measure]:
    return [
        Measure(c.name, *c.estimate(lambda one: one.summary.mean / one.predicted_mean))
        for c in cases
        if c.per_update > 1 and c.level is level
    ]


def _over_others_rate(cases: Sequence[Staleness]) -> list[Measure]:
    return [
        Measure(f"{case.name}, worker {worker}", *case.estimate(functools.partial(_worker_ratio, worker=worker)))
        for case in cases
        if case.per_update == 1 and case.is_slow
        for worker in case.by_worker
    ]


def _worker_ratio(case: Staleness, worker: int) -> float:
    return of_histogram(case.by_worker[worker]).mean / theory.worker_staleness(SLOW_RATES)[worker]


def _heavy_tail(case: Staleness) -> float:
    return case.share_above(2 * case.n) - (1 - 1 / case.n) ** (2 * case.n + 1)


def _tails(cases: Sequence[Staleness]) -> list[Measure]:
    """Returns the share of very stale gradients; cases of a level with too few gradients are counted together."""
    even = [case for case in cases if case.shape == Shape.EVEN and not case.is_slow]
    enough = [case for case in even if case.counts.total() >= _ENOUGH]
    few = by_level([case for case in even if case not in enough])
    return [_tail([case]) for case in enough] + [_tail(group) for group in few]


def _tail(cases: Sequence[Staleness]) -> Measure:
    above = [case.num_above(2 * case.n // case.per_update) for case in cases]
    num_all = sum(case.counts.total() for case in cases)
    outliers = [f"{number} in {case.name}" for case, number in zip(cases, above, strict=True) if number]
    name = cases[0].name if len(cases) == 1 else f"{cases[0].level.value[:2]}, {len(cases)} cases together"
    share = sum(above) / num_all
    return Measure(", ".join([name, *outliers]), share, share_interval(sum(above), num_all))


_AMENDED = (
    "2026-11-27: an interval over the seeds decides, by the jackknife, as chance can put a value of few gradients on"
    " either side of a limit"
)
_REAL_ALONE = "2026-11-28: real clusters alone, as it is a count that must come out in virtual time"
_SPLIT = "2026-11-28: new, the cases in virtual time of a claim of the literature, which must come out"

CLAIMS = (
    literature_claim(
        key="mean",
        sentence="The mean staleness of n asynchronous workers is n − 1, whatever the delays and the mix of speeds",
        quantity="|mean − (n − 1)| / n, real clusters",
        limit=Limit(high=0.05),
        amended=f"{_AMENDED}; {_REAL_ALONE}",
        measure=functools.partial(_from_mean, level=Level.PROCESSES),
    ),
    theory_claim(
        key="mean_virtual",
        sentence="In virtual time, too, the mean staleness of n asynchronous workers is n − 1",
        quantity="|mean − (n − 1)| / n",
        limit=Limit(high=0.05),
        amended=_SPLIT,
        measure=functools.partial(_from_mean, level=Level.VIRTUAL),
    ),
    theory_claim(
        key="spike",
        sentence="With nearly even steps the staleness stays near n − 1",
        quantity="standard deviation of the staleness / n",
        limit=Limit(high=0.1),
        amended=f"{_AMENDED}; 2026-11-28: theory, as no text of a source was found that says so; the sentence said"
        " that almost every gradient has the staleness n − 1, which the limit does not test",
        measure=lambda cases: [
            Measure(c.name, *c.estimate(lambda one: one.summary.sd / one.n)) for c in _alike(cases, Shape.EVEN)
        ],
    ),
    theory_claim(
        key="geometric",
        sentence="With exponential steps the staleness is geometric",
        quantity="Kolmogorov–Smirnov distance to the geometric distribution of mean n − 1",
        limit=Limit(high=0.05),
        amended=_AMENDED,
        measure=lambda cases: [
            Measure(c.name, *c.estimate(Staleness.ks_to_geometric).absolute()) for c in _alike(cases, Shape.EXPONENTIAL)
        ],
    ),
    simulator_claim(
        key="simulated",
        sentence="The staleness on a real cluster has the distribution that the simulator gives the same delays",
        quantity="Kolmogorov–Smirnov distance to the simulation with the calibrated cost of a step",
        limit=Limit(high=0.05),
        amended=_AMENDED,
        measure=lambda cases: [
            Measure(c.name, *c.estimate(Staleness.ks_to_simulated).absolute()) for c in cases if c.simulated is not None
        ],
    ),
    theory_claim(
        key="per_worker",
        sentence="A worker's mean staleness is the others' rate over its own: slow ones carry the stale gradients",
        quantity="a worker's measured over predicted mean staleness",
        limit=Limit(low=0.9, high=1.1),
        amended=_AMENDED,
        measure=_over_others_rate,
    ),
    literature_claim(
        key="softsync",
        sentence="With c gradients to an update the mean staleness is (n − 1)/c updates",
        quantity="measured over predicted mean staleness, real clusters",
        limit=Limit(low=0.9, high=1.1),
        amended=f"{_AMENDED}; {_REAL_ALONE}",
        measure=functools.partial(_over_mean, level=Level.PROCESSES),
    ),
    theory_claim(
        key="softsync_virtual",
        sentence="In virtual time, too, the mean staleness with c gradients to an update is (n − 1)/c updates",
        quantity="measured over predicted mean staleness",
        limit=Limit(low=0.9, high=1.1),
        amended=_SPLIT,
        measure=functools.partial(_over_mean, level=Level.VIRTUAL),
    ),
    literature_claim(
        key="tail",
        sentence="Fewer than 1 in 10,000 gradients are staler than 2n/c updates when steps are nearly even",
        quantity="share of gradients staler than 2n/c",
        limit=Limit(high=_MOST),
        amended="2026-11-27: Wilson's interval decides; cases with too few gradients for it are counted together",
        measure=_tails,
    ),
    theory_claim(
        key="heavy_tail",
        sentence="With exponential steps (1 − 1/n)^(2n+1) of the gradients are staler than 2n: up to about one in"
        " seven",
        quantity="|measured − predicted share| of gradients staler than 2n",
        limit=Limit(high=0.03),
        amended=_AMENDED,
        measure=lambda cases: [
            Measure(c.name, *c.estimate(_heavy_tail).absolute()) for c in _alike(cases, Shape.EXPONENTIAL)
        ],
    ),
)
