"""Published numbers on training on one machine, and the claims with their measures."""

from __future__ import annotations

from ps_trainer.experiments.harness.claims import Claim, ClaimKind, Limit, Measure
from ps_trainer.experiments.harness.published import Published, Tag
from ps_trainer.experiments.toolkit.local_control import LARGEST_DIFFERENCE

from .cases import MIN_SIZES

PUBLISHED = tuple(
    Published(f"training step of {model} on one GPU, {library}", value, "ms", Tag.SUMMARY, "Abadi et al. 2016, Table 1")
    for model, values in {
        "AlexNet": (81, 324, 87, 81),
        "Overfeat": (279, 823, 211, 268),
        "OxfordNet": (540, 1068, 320, 529),
        "GoogleNet": (445, 1935, 270, 470),
    }.items()
    for library, value in zip(("TensorFlow", "Caffe", "Neon", "Torch"), values, strict=True)
)

CLAIMS = (
    Claim(
        key="equal",
        sentence="One worker with ps tasks has the loss of one process at every step",
        kind=ClaimKind.THEORY,
        quantity="largest |difference| of a step's loss",
        limit=Limit(high=LARGEST_DIFFERENCE),
        measure=lambda overheads: [
            Measure(result.run.key, result.figures.loss_difference) for result in overheads.results
        ],
    ),
    Claim(
        key="slower",
        sentence="A step with a ps task on the same machine is slower than one without",
        kind=ClaimKind.LITERATURE,
        quantity="median step with a ps task over median step without",
        limit=Limit(low=1.0),
        amended="2026-11-21: runs count unless other programs ran beside them",
        measure=lambda overheads: [
            Measure(size.model, size.cluster.median / size.local.median) for size in overheads.timed
        ],
        why_none=lambda overheads: "other programs ran beside every run",
    ),
    Claim(
        key="linear",
        sentence="The overhead is a + b·M for models of M bytes",
        kind=ClaimKind.THEORY,
        quantity="overhead over a + b·M as fitted",
        limit=Limit(low=0.6, high=1.5),
        expected=Limit(low=0.75, high=1.25),
        amended="2026-11-21: the fit weighs errors relative to the line",
        measure=lambda overheads: [
            Measure(size.model, size.overhead_ms / line.at(size.megabytes))
            for line in [overheads.line]
            if line
            for size in overheads.timed
        ],
        why_none=lambda overheads: f"needs {MIN_SIZES} models whose runs nothing disturbed; has {len(overheads.timed)}",
    ),
)
