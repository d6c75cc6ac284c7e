"""Published numbers about linear scaling, and the claims with their measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ps_trainer.experiments.harness.claims import Limit, Measure, extension_claim, literature_claim
from ps_trainer.experiments.harness.published import Published, Tag
from ps_trainer.experiments.harness.targets import ratio

from .cases import ScaledTraining, Scaling, find

_GOYAL = "Goyal et al. 2017, abstract"
PUBLISHED = (
    Published("largest batch that trained ResNet-50 without loss of accuracy", 8192, "images", Tag.READ, _GOYAL),
)
SAME = (2, 4)
LARGE = (8, 16)
LARGEST = 32


def _over(other: Scaling | None, scaling: Scaling, *counts: int) -> Callable[[Sequence[ScaledTraining]], list[Measure]]:
    """Returns the measure of the examples over those of as many workers with another rate; None = of one worker."""
    return lambda cases: [
        found
        for k in counts
        for base in [find(cases, k if other else 1, other or scaling)]
        for found in ratio(f"k={k}", find(cases, k, scaling), base, "examples")
    ]


OF_TRAINING = (
    literature_claim(
        key="same",
        sentence="With k times the learning rate and warm-up, k workers need as many examples as one",
        quantity="examples to the target over those of one worker",
        limit=Limit(low=0.8, high=1.25),
        measure=_over(None, Scaling.WARM, *SAME),
    ),
    extension_claim(
        key="unscaled",
        sentence="With the learning rate of one worker, k workers need more examples",
        quantity="examples to the target over those of one worker",
        limit=Limit(low=1.25),
        amended="2026-11-26: the sentence said k times as many, which the limit does not test;"
        " 2026-11-27: an extension, as no text of the source that was found has such a number",
        measure=_over(None, Scaling.NONE, *SAME, *LARGE),
    ),
    literature_claim(
        key="breaks",
        sentence="Beyond some batch the rule breaks, and larger batches need more examples",
        quantity="examples to the target over those of one worker",
        limit=Limit(low=1.25),
        measure=_over(None, Scaling.WARM, LARGEST),
        why_none=lambda cases: "the short form has no 32 workers",
    ),
    literature_claim(
        key="warmup",
        sentence="Without warm-up large batches need more examples than with it",
        quantity="examples without over with warm-up",
        limit=Limit(low=1.0),
        measure=_over(Scaling.WARM, Scaling.LINEAR, *LARGE, LARGEST),
    ),
    extension_claim(
        key="root",
        sentence="With √k times the learning rate, k workers need more examples than with k times and warm-up",
        quantity="examples with √k over those with k and warm-up",
        limit=Limit(low=1.0),
        measure=_over(Scaling.WARM, Scaling.ROOT, *SAME, *LARGE),
    ),
)
