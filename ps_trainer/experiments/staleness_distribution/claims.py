"""Published numbers about the staleness, and the claims with their measures."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.claims import Claim, ClaimKind, Limit, Measure
from ps_trainer.experiments.harness.published import Published, Tag
from ps_trainer.experiments.toolkit import theory
from ps_trainer.experiments.toolkit.statistics import of_histogram
from ps_trainer.experiments.toolkit.step_times import Shape

from .cases import PAPER_LEARNERS, SLOW_RATES, Staleness

_ZHANG = "Zhang et al. 2016"
_STALER = "largest share of gradients staler than 2n"

PUBLISHED = (
    Published(f"{_STALER}, n-softsync with {PAPER_LEARNERS} learners", 1e-4, "", Tag.READ, f"{_ZHANG}, section 2.4"),
    Published("mean staleness of 15-softsync, about", 15, "", Tag.READ, f"{_ZHANG}, section 2.4"),
    Published("mean staleness of 30-softsync, about", 30, "", Tag.READ, f"{_ZHANG}, section 2.4"),
    Published("mean staleness of n asynchronous workers, n − 1, at n = 60", 59, "", Tag.DERIVED, "Hermans 2017"),
)


def _alike(cases: Sequence[Staleness], shape: str) -> list[Staleness]:
    """Returns the cases of asynchronous workers with equal speeds."""
    return [case for case in cases if case.per_update == 1 and case.shape == shape and not case.is_slow]


def _over_others_rate(cases: Sequence[Staleness]) -> list[Measure]:
    predicted = theory.worker_staleness(SLOW_RATES)
    return [
        Measure(f"{case.name}, worker {worker}", of_histogram(counts).mean / predicted[worker])
        for case in cases
        if case.per_update == 1 and case.is_slow
        for worker, counts in case.by_worker.items()
    ]


CLAIMS = (
    Claim(
        key="mean",
        sentence="The mean staleness of n asynchronous workers is n − 1, whatever the delays and the mix of speeds",
        kind=ClaimKind.LITERATURE,
        quantity="|mean − (n − 1)| / n",
        limit=Limit(high=0.05),
        measure=lambda cases: [
            Measure(c.name, abs(c.summary.mean - c.predicted_mean) / c.n) for c in cases if c.per_update == 1
        ],
    ),
    Claim(
        key="spike",
        sentence="With nearly even steps almost every gradient has the staleness n − 1",
        kind=ClaimKind.LITERATURE,
        quantity="standard deviation of the staleness / n",
        limit=Limit(high=0.1),
        measure=lambda cases: [Measure(c.name, c.summary.sd / c.n) for c in _alike(cases, Shape.EVEN)],
    ),
    Claim(
        key="geometric",
        sentence="With exponential steps the staleness is geometric",
        kind=ClaimKind.THEORY,
        quantity="Kolmogorov–Smirnov distance to the geometric distribution of mean n − 1",
        limit=Limit(high=0.05),
        measure=lambda cases: [Measure(c.name, c.ks_to_geometric()) for c in _alike(cases, Shape.EXPONENTIAL)],
    ),
    Claim(
        key="simulated",
        sentence="The staleness on a real cluster has the distribution that the simulator gives the same delays",
        kind=ClaimKind.SIMULATOR,
        quantity="Kolmogorov–Smirnov distance to the simulation with the calibrated cost of a step",
        limit=Limit(high=0.05),
        measure=lambda cases: [
            Measure(c.name, distance) for c in cases if (distance := c.ks_to_simulated()) is not None
        ],
    ),
    Claim(
        key="per_worker",
        sentence="A worker's mean staleness is the others' rate over its own: slow ones carry the stale gradients",
        kind=ClaimKind.THEORY,
        quantity="a worker's measured over predicted mean staleness",
        limit=Limit(low=0.9, high=1.1),
        measure=_over_others_rate,
    ),
    Claim(
        key="softsync",
        sentence="With c gradients to an update the mean staleness is (n − 1)/c updates",
        kind=ClaimKind.LITERATURE,
        quantity="measured over predicted mean staleness",
        limit=Limit(low=0.9, high=1.1),
        measure=lambda cases: [Measure(c.name, c.summary.mean / c.predicted_mean) for c in cases if c.per_update > 1],
    ),
    Claim(
        key="tail",
        sentence="Fewer than 1 in 10,000 gradients are staler than 2n/c updates when steps are nearly even",
        kind=ClaimKind.LITERATURE,
        quantity="share of gradients staler than 2n/c",
        limit=Limit(high=1e-4),
        measure=lambda cases: [
            Measure(c.name, c.share_above(2 * c.n // c.per_update))
            for c in cases
            if c.shape == Shape.EVEN and not c.is_slow
        ],
    ),
    Claim(
        key="heavy_tail",
        sentence="With exponential steps (1 − 1/n)^(2n+1) of the gradients are staler than 2n: up to one in eight",
        kind=ClaimKind.THEORY,
        quantity="|measured − predicted share| of gradients staler than 2n",
        limit=Limit(high=0.03),
        measure=lambda cases: [
            Measure(c.name, abs(c.share_above(2 * c.n) - (1 - 1 / c.n) ** (2 * c.n + 1)))
            for c in _alike(cases, Shape.EXPONENTIAL)
        ],
    ),
)
