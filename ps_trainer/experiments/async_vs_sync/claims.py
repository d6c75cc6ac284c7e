"""Published numbers on asynchronous against synchronous SGD, and the claims with their measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ps_trainer.experiments.harness.claims import Claim, ClaimKind, Limit, Measure
from ps_trainer.experiments.toolkit import virtual_training
from ps_trainer.experiments.toolkit.statistics import ratio_interval

from .cases import TRAINED_ALPHAS, UNEVEN, Mode, RealTraining, TrainedArm, best_arm, lead, predicted_ratio, ratio_of


def _asynchronous(arms: Sequence[TrainedArm]) -> list[TrainedArm]:
    """Returns the best asynchronous arm for each number of workers and each α."""
    return [best_arm(arms, Mode.ASYNC, n, alpha) for n in sorted({arm.n for arm in arms}) for alpha in TRAINED_ALPHAS]


def _leads(arms: Sequence[TrainedArm], mode: str) -> list[Measure]:
    window = virtual_training.WINDOW_EXAMPLES
    return [
        Measure(f"n={one.n}, α={one.alpha:g}", lead(one, best_arm(arms, mode, one.n), window))
        for one in _asynchronous(arms)
    ]


def _times(arms: Sequence[TrainedArm], alpha: float) -> list[Measure]:
    return [
        Measure(f"n={one.n}", *ratio_interval(one.secs_at(alpha), best_arm(arms, Mode.SYNC_SAME, one.n).secs_at(alpha)))
        for one in _asynchronous(arms)
        if one.alpha == alpha
    ]


def _real_times(cases: Sequence[RealTraining]) -> Iterator[Measure]:
    secs = {case.mode: case.secs for case in cases if case.alpha == UNEVEN}
    one, other = secs.get(Mode.ASYNC), secs.get(Mode.SYNC_SAME)
    if one and other:
        yield Measure(f"L2, n={cases[0].n}, α={UNEVEN:g}", one.measured / other.measured)


OF_THROUGHPUT = (
    Claim(
        key="throughput",
        sentence="Asynchronous workers compute E[max]/E[X] times the gradients that synchronous ones do",
        kind=ClaimKind.THEORY,
        quantity="measured over predicted ratio",
        limit=Limit(low=0.85, high=1.15),
        expected=Limit(low=0.97, high=1.03),
        measure=lambda cases: [
            Measure(f"n={case.n}, α={case.alpha:g}", case.ratio / predicted_ratio(case.n, case.alpha)) for case in cases
        ],
    ),
)

OF_TRAINING = (
    Claim(
        key="examples",
        sentence="With n workers of the same batch asynchronous SGD needs no fewer examples, each at its best rate",
        kind=ClaimKind.EXTENSION,
        quantity="its examples above those of synchronous SGD, in standard errors",
        limit=Limit(low=-2.0),
        measure=lambda arms: _leads(arms, Mode.SYNC_SAME),
    ),
    Claim(
        key="examples_global",
        sentence="With the same batch per update asynchronous SGD needs no fewer examples, each at its best rate",
        kind=ClaimKind.LITERATURE,
        quantity="its examples above those of synchronous SGD, in standard errors",
        limit=Limit(low=-2.0),
        measure=lambda arms: _leads(arms, Mode.SYNC_GLOBAL),
    ),
    Claim(
        key="time_even",
        sentence="With nearly even steps synchronous SGD is at the target as soon as asynchronous SGD",
        kind=ClaimKind.LITERATURE,
        quantity="asynchronous over synchronous time",
        limit=Limit(low=1.0),
        amended="2026-11-24: geometric means over the seeds, with an interval",
        measure=lambda arms: _times(arms, TRAINED_ALPHAS[0]),
    ),
    Claim(
        key="time_uneven",
        sentence="With exponential steps asynchronous SGD is at the target sooner",
        kind=ClaimKind.LITERATURE,
        quantity="asynchronous over synchronous time",
        limit=Limit(high=1.0),
        amended="2026-11-24: geometric means over the seeds, with an interval",
        measure=lambda arms: _times(arms, TRAINED_ALPHAS[-1]),
    ),
)

OF_REAL_THROUGHPUT = (
    Claim(
        key="real_throughput",
        sentence="Asynchronous workers of real clusters compute E[max]/E[X] times the gradients, too",
        kind=ClaimKind.THEORY,
        quantity="measured over predicted ratio",
        limit=Limit(low=0.85, high=1.15),
        measure=lambda rates: [
            Measure(f"L2, n={n}, α={alpha:g}", ratio_of(pairs, "measured") / predicted_ratio(n, alpha))
            for (n, alpha), pairs in rates.items()
            if n > 1 and len(pairs) > 1
        ],
    ),
    Claim(
        key="real_rates",
        sentence="Real clusters of both kinds compute as many gradients as the simulator says of the same delays",
        kind=ClaimKind.SIMULATOR,
        quantity="measured over simulated gradients per second",
        limit=Limit(low=0.9, high=1.1),
        measure=lambda rates: [
            Measure(pair.case, pair.ratio, pair.interval) for pairs in rates.values() for pair in pairs.values()
        ],
    ),
    Claim(
        key="real_control",
        sentence="With one worker asynchronous and synchronous rates are the same",
        kind=ClaimKind.THEORY,
        quantity="asynchronous over synchronous gradients per second",
        limit=Limit(low=0.95, high=1.05),
        measure=lambda rates: [
            Measure("L2, one worker", ratio_of(pairs, "measured"))
            for (n, _), pairs in rates.items()
            if n == 1 and len(pairs) > 1
        ],
    ),
)

OF_REAL_TRAINING = (
    Claim(
        key="real_examples",
        sentence="A real training needs as many examples as the one in virtual time",
        kind=ClaimKind.SIMULATOR,
        quantity="measured over virtual examples to the target, medians over the seeds",
        limit=Limit(low=0.6, high=1.6),
        expected=Limit(low=0.75, high=1.33),
        measure=lambda cases: [
            Measure(case.name, pair.ratio, pair.interval) for case in cases for pair in [case.pair("examples")]
        ],
        amended="2026-11-26: five seeds in place of one, with an interval of their ratios",
    ),
    Claim(
        key="real_time",
        sentence="With exponential steps asynchronous SGD is at the target sooner on a real cluster, too",
        kind=ClaimKind.LITERATURE,
        quantity="asynchronous over synchronous time",
        limit=Limit(high=1.0),
        measure=_real_times,
    ),
)
