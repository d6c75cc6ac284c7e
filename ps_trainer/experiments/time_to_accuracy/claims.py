"""The claims about the time to an accuracy, with their measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ps_trainer.experiments.harness.claims import (
    Limit,
    Measure,
    extension_claim,
    literature_claim,
    simulator_claim,
    theory_claim,
)
from ps_trainer.experiments.harness.targets import ratio
from ps_trainer.experiments.toolkit import real_clusters
from ps_trainer.experiments.toolkit.statistics import mean_ratio, ratio_interval, spread

from .cases import (
    BatchKind,
    PacedTraining,
    TimedAccuracy,
    WorkerRule,
    counts_of,
    find,
    over_one,
    paced_times,
    predicted_update_time,
)

FEW = (2,)
MANY = 16
SAME = Limit(low=0.8, high=1.25)

Measures = Callable[[Sequence[TimedAccuracy]], list[Measure]]


def _over_one(
    batches: BatchKind, rule: WorkerRule, figure: str = "times", counts: Sequence[int] | None = None
) -> Measures:
    def measure(cases: Sequence[TimedAccuracy]) -> list[Measure]:
        return [one for n in counts or counts_of(cases) for one in over_one(cases, batches, rule, n, figure)]

    return measure


def _update_times(cases: Sequence[TimedAccuracy]) -> list[Measure]:
    """Returns the time of an update over the predicted one; the cost of a step comes from one worker."""
    measures = []
    for batches in BatchKind:
        alone = find(cases, batches, WorkerRule.SYNC, 1)
        own = [found for n in counts_of(cases) if (found := find(cases, batches, WorkerRule.SYNC, n))]
        if alone is not None:
            cost = spread(alone.update_times).median - 1.0
            measures += [
                Measure(case.name, *mean_ratio(case.update_times, predicted_update_time(batches, case.n, cost)))
                for case in own
            ]
    return measures


def _async_over_sync(cases: Sequence[TimedAccuracy]) -> list[Measure]:
    return [
        measure
        for batches in BatchKind
        for n in counts_of(cases)
        for one, other in [[find(cases, batches, rule, n) for rule in (WorkerRule.ASYNC, WorkerRule.SYNC)]]
        for measure in ratio(f"{batches}, n={n}", one, other, "times")
    ]


def _paced_over_one(cases: Sequence[PacedTraining]) -> list[Measure]:
    measures = []
    for batches in BatchKind:
        for rule in WorkerRule:
            times = paced_times(cases, batches, rule, "measured")
            measures += [
                Measure(f"L2, {batches}, {rule}, n={n}", *ratio_interval(own, times[1]))
                for n, own in times.items()
                if n > 1 and 1 in times
            ]
    return measures


def _against_simulator(figure: str) -> Callable[[Sequence[PacedTraining]], list[Measure]]:
    def measure(cases: Sequence[PacedTraining]) -> list[Measure]:
        timed = [(case.name, case.runs.uncontended()) for case in cases]
        pairs = [real_clusters.pair(f"L2, {name}", runs, figure) for name, runs in timed if runs]
        return [Measure(pair.case, pair.ratio, pair.interval) for pair in pairs]

    return measure


_NO_CLUSTER = "2026-11-28: an extension, as it does not compare the simulator with a cluster"

OF_TRAINING = (
    extension_claim(
        key="async_sooner",
        sentence="In virtual time, more asynchronous workers of the same batch reach the accuracy sooner than one",
        quantity="time over that of one worker",
        limit=Limit(high=1.0),
        amended=_NO_CLUSTER,
        measure=_over_one(BatchKind.WEAK, WorkerRule.ASYNC),
    ),
    extension_claim(
        key="sync_sooner",
        sentence="In virtual time, more synchronous workers of the same batch reach the accuracy sooner than one",
        quantity="time over that of one worker",
        limit=Limit(high=1.0),
        amended=_NO_CLUSTER,
        measure=_over_one(BatchKind.WEAK, WorkerRule.SYNC),
    ),
    literature_claim(
        key="halves",
        sentence="Two synchronous workers of the same batch need about as many examples as one, so about half of the"
        " updates",
        quantity="examples to the accuracy over those of one worker",
        limit=SAME,
        measure=_over_one(BatchKind.WEAK, WorkerRule.SYNC, "examples", FEW),
    ),
    literature_claim(
        key="wastes",
        sentence="Beyond some batch more synchronous workers need more examples",
        quantity="examples to the accuracy over those of one worker",
        limit=Limit(low=1.25),
        measure=_over_one(BatchKind.WEAK, WorkerRule.SYNC, "examples", (MANY,)),
        why_none=lambda cases: f"the short form has no {MANY} workers",
    ),
    theory_claim(
        key="fixed_batch",
        sentence="Synchronous workers that share the batch of one worker need as many examples as it",
        quantity="examples to the accuracy over those of one worker",
        limit=SAME,
        measure=_over_one(BatchKind.STRONG, WorkerRule.SYNC, "examples"),
    ),
    theory_claim(
        key="update_time",
        sentence="A synchronous update takes the slowest of n steps and a constant cost",
        quantity="simulated over predicted time of an update",
        limit=Limit(low=0.9, high=1.1),
        measure=_update_times,
    ),
    extension_claim(
        key="small_pushes",
        sentence="Asynchronous workers with the n-th part of a batch each need as many examples as one worker",
        quantity="examples to the accuracy over those of one worker",
        limit=SAME,
        measure=_over_one(BatchKind.STRONG, WorkerRule.ASYNC, "examples"),
    ),
    extension_claim(
        key="async_first",
        sentence="Asynchronous workers reach the accuracy before as many synchronous ones",
        quantity="asynchronous over synchronous time",
        limit=Limit(high=1.0),
        by_median=True,
        measure=_async_over_sync,
    ),
)

OF_CLUSTERS = (
    literature_claim(
        key="real_sooner",
        sentence="On a real cluster more workers reach a loss sooner than one",
        quantity="time over that of one worker",
        limit=Limit(high=1.0),
        measure=_paced_over_one,
    ),
    simulator_claim(
        key="real_rates",
        sentence="Real workers compute as many gradients as the calibrated simulator says",
        quantity="measured over simulated gradients per second",
        limit=Limit(low=0.9, high=1.1),
        measure=_against_simulator("gradients"),
    ),
    simulator_claim(
        key="real_times",
        sentence="Real workers reach the loss when the calibrated simulator says",
        quantity="measured over simulated time",
        limit=SAME,
        by_median=True,
        measure=_against_simulator("time"),
    ),
)
