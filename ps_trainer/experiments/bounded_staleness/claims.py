"""The claims of the experiment on bounded staleness, and the numbers of the literature that it prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ps_trainer.experiments.harness.claims import Claim, ClaimKind, Limit, Measure

from .cases import TimedBound, TrainedBound, bound_name, by_cluster
from .records import SAME_RATE, SLOWNESS

FEW = 3  # a small bound that takes most of the waiting away


def _without_slow_worker(cases: Sequence[TimedBound]) -> list[dict[int | None, TimedBound]]:
    return list(by_cluster([case for case in cases if not case.is_slow]).values())


def _more_updates(cases: Sequence[TrainedBound]) -> list[Measure]:
    barrier, free = (next((case for case in cases if case.bound == bound), None) for bound in (0, None))
    if not barrier or not free or not _finite(cases):
        return []
    at_same_rate = free.updates_by_rate[SAME_RATE] / barrier.updates_by_rate[SAME_RATE]
    return [
        Measure(f"learning rate {SAME_RATE}", at_same_rate),
        Measure("best learning rates", free.updates / barrier.updates),
    ]


def _best_bound(cases: Sequence[TrainedBound]) -> Iterator[Measure]:
    if _finite(cases) and {0, None} <= {case.bound for case in cases}:
        best = min(_finite(cases), key=lambda case: case.time)
        (free,) = (case for case in cases if case.bound is None)
        yield Measure(f"softmax, n = 8, {bound_name(best.bound)}", free.time / best.time)


def _finite(cases: Sequence[TrainedBound]) -> list[TrainedBound]:
    return [case for case in cases if case.bound]


OF_TIMING = (
    Claim(
        key="wait",
        sentence="Workers wait as long as the model of clocks (A17) says",
        kind=ClaimKind.THEORY,
        quantity="|measured − predicted share of the workers' time that they wait|",
        limit=Limit(high=0.08),
        expected=Limit(high=0.03),
        measure=lambda cases: [Measure(case.name, abs(case.wait_share - case.predicted_wait_share)) for case in cases],
    ),
    Claim(
        key="falls",
        sentence="The larger the bound, the less they wait",
        kind=ClaimKind.LITERATURE,
        quantity="share of time waited minus that under the next smaller bound, no slow worker",
        limit=Limit(high=0.01),
        measure=lambda cases: [
            Measure(case.name, case.wait_share - before.wait_share)
            for own in _without_slow_worker(cases)
            for before, case in pairwise(own.values())
        ],
    ),
    Claim(
        key="few",
        sentence=f"A bound of {FEW} clocks takes most of the waiting away where delays are transient",
        kind=ClaimKind.LITERATURE,
        quantity=f"share of time waited under s = {FEW} over that under s = 0",
        limit=Limit(high=0.5),
        measure=lambda cases: [
            Measure(own[FEW].name, own[FEW].wait_share / own[0].wait_share)
            for own in _without_slow_worker(cases)
            if FEW in own and 0 in own
        ],
    ),
    Claim(
        key="barrier",
        sentence="A bound of 0 is a barrier: a clock takes as long as the slowest worker's step",
        kind=ClaimKind.THEORY,
        quantity="clock rate under s = 0 times the mean of the slowest step",
        limit=Limit(low=0.95, high=1.05),
        measure=lambda cases: [
            Measure(case.name, case.rate / case.barrier_rate) for case in cases if case.bound == 0 and not case.is_slow
        ],
    ),
    Claim(
        key="free",
        sentence="Without a bound workers make steps as fast as they can",
        kind=ClaimKind.THEORY,
        quantity="clock rate over that of workers that wait for nobody",
        limit=Limit(low=0.95, high=1.05),
        measure=lambda cases: [Measure(case.name, case.rate / case.free_rate) for case in cases if case.bound is None],
    ),
    Claim(
        key="permanent",
        sentence="With one worker that stays slow, all make steps at its rate, whatever the finite bound",
        kind=ClaimKind.THEORY,
        quantity="clock rate over the slow worker's own",
        limit=Limit(low=0.93, high=1.07),
        measure=lambda cases: [
            Measure(case.name, case.rate * SLOWNESS) for case in cases if case.is_slow and case.bound is not None
        ],
    ),
    Claim(
        key="bound",
        sentence="A worker that begins a step has made at most s more steps than the slowest, s + 1 while it waits",
        kind=ClaimKind.THEORY,
        quantity="largest lead minus its bound, at the begin and at the end of a step",
        limit=Limit(high=0),
        measure=lambda cases: [
            Measure(f"{case.name}, at the {when}", lead - bound)
            for case in cases
            if case.bound is not None
            for when, lead, bound in (
                ("begin", case.lead_at_begin, case.bound),
                ("end", case.lead_when_done, case.bound + 1),
            )
        ],
    ),
    Claim(
        key="staleness",
        sentence="Workers that pull afresh in each step are (n − 1)/2 updates behind if s = 0, n − 1 without one",
        kind=ClaimKind.THEORY,
        quantity="|mean staleness − that| / n, no slow worker",
        limit=Limit(high=0.05),
        measure=lambda cases: [
            Measure(case.name, abs(case.mean_staleness - (case.n - 1) / (2 if case.bound == 0 else 1)) / case.n)
            for case in cases
            if case.bound in (0, None) and not case.is_slow
        ],
    ),
)

OF_TRAINING = (
    Claim(
        key="work",
        sentence="The larger the bound, the more updates the objective takes",
        kind=ClaimKind.EXTENSION,
        quantity="updates needed without a bound over those under s = 0",
        limit=Limit(low=1.0),
        amended="2026-11-21: compared at one learning rate and at the best ones",
        measure=_more_updates,
    ),
    Claim(
        key="interior",
        sentence="With transient delays the objective is reached soonest under a finite bound above 0",
        kind=ClaimKind.EXTENSION,
        quantity="time to the objective without a bound over the shortest under one above 0, best learning rates",
        limit=Limit(low=1.0),
        amended="2026-11-21: the limit became 1",
        measure=_best_bound,
    ),
)

OF_REAL_CLUSTERS = (
    Claim(
        key="real_rate",
        sentence="Workers of real clusters make as many steps as the simulator says of the same delays",
        kind=ClaimKind.SIMULATOR,
        quantity="measured over simulated clock rate",
        limit=Limit(low=0.9, high=1.1),
        measure=lambda cases: [Measure(case.name, case.pair("rate").ratio) for case in cases if case.timed()],
    ),
    Claim(
        key="real_wait",
        sentence="Workers of real clusters wait as long as the simulator says",
        kind=ClaimKind.SIMULATOR,
        quantity="|measured − simulated share of the workers' time that they wait|",
        limit=Limit(high=0.08),
        measure=lambda cases: [
            Measure(case.name, abs(waits.measured - waits.simulated))
            for case in cases
            if case.timed() and case.bound is not None
            for waits in [case.pair("waits")]
        ],
    ),
    Claim(
        key="real_bound",
        sentence="No worker of a real cluster begins a step more than s completed steps ahead of the slowest",
        kind=ClaimKind.THEORY,
        quantity="largest lead minus s",
        limit=Limit(high=0),
        measure=lambda cases: [
            Measure(case.name, case.largest_lead - case.bound) for case in cases if case.bound is not None
        ],
    ),
)
