"""Published numbers about linear scaling, and the claims with their measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ps_trainer.experiments.harness.claims import Claim, ClaimKind, Limit, Measure
from ps_trainer.experiments.harness.published import Published, Tag

from .cases import ScaledTraining, Scaling, find, ratio

PUBLISHED = (
    Published(
        "largest batch that trained ResNet-50 without loss of accuracy",
        8192,
        "images",
        Tag.READ,
        "Goyal et al. 2017, abstract",
    ),
)
SAME = (2, 4)
LARGE = (8, 16)
LARGEST = 32


Measures = Callable[[Sequence[ScaledTraining]], list[Measure]]


def _over_one_worker(scaling: Scaling, *counts: int) -> Measures:
    return lambda cases: [found for k in counts for found in ratio(cases, k, scaling, find(cases, 1, scaling))]


def _over_warm(scaling: Scaling, *counts: int) -> Measures:
    return lambda cases: [found for k in counts for found in ratio(cases, k, scaling, find(cases, k, Scaling.WARM))]


OF_TRAINING = (
    Claim(
        key="same",
        sentence="With k times the learning rate and warm-up, k workers need as many examples as one",
        kind=ClaimKind.LITERATURE,
        quantity="examples to the target over those of one worker",
        limit=Limit(low=0.8, high=1.25),
        measure=_over_one_worker(Scaling.WARM, *SAME),
    ),
    Claim(
        key="unscaled",
        sentence="With the learning rate of one worker, k workers need more examples",
        kind=ClaimKind.LITERATURE,
        quantity="examples to the target over those of one worker",
        limit=Limit(low=1.25),
        amended="2026-11-26, the sentence said k times as many, which the limit does not test",
        measure=_over_one_worker(Scaling.NONE, *SAME, *LARGE),
    ),
    Claim(
        key="breaks",
        sentence="Beyond some batch the rule breaks, and larger batches need more examples",
        kind=ClaimKind.LITERATURE,
        quantity="examples to the target over those of one worker",
        limit=Limit(low=1.25),
        measure=_over_one_worker(Scaling.WARM, LARGEST),
        why_none=lambda cases: "the short form has no 32 workers",
    ),
    Claim(
        key="warmup",
        sentence="Without warm-up large batches need more examples than with it",
        kind=ClaimKind.LITERATURE,
        quantity="examples without over with warm-up",
        limit=Limit(low=1.0),
        measure=_over_warm(Scaling.LINEAR, *LARGE, LARGEST),
    ),
    Claim(
        key="root",
        sentence="With √k times the learning rate, k workers need more examples than with k times and warm-up",
        kind=ClaimKind.EXTENSION,
        quantity="examples with √k over those with k and warm-up",
        limit=Limit(low=1.0),
        measure=_over_warm(Scaling.ROOT, *SAME, *LARGE),
    ),
)
