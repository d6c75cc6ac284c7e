"""The plots of the experiment on linear scaling, and the words below them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.plots import Figure, Plot, finish
from ps_trainer.experiments.harness.targets import draw_spreads
from ps_trainer.experiments.toolkit import looks
from ps_trainer.experiments.toolkit.virtual_training import WINDOW_EXAMPLES

from .cases import ScaledTraining, Scaling, find

_MARKERS: dict[str, str] = {Scaling.NONE: "s", Scaling.ROOT: "^", Scaling.LINEAR: "o", Scaling.WARM: "D"}


def _draw_examples(figure: Figure, cases: Sequence[ScaledTraining]) -> None:
    axis = figure.add_subplot()
    for scaling in Scaling:
        shown = [case for k in sorted({case.k for case in cases}) if (case := find(cases, k, scaling))]
        samples, lost = [case.examples for case in shown], [case.is_lost for case in shown]
        draw_spreads(axis, [case.k for case in shown], samples, lost, fmt=f"{_MARKERS[scaling]}-", label=scaling)
    finish(axis, "k, workers", "examples to the target", log="xy")


def _draw_losses(figure: Figure, cases: Sequence[ScaledTraining]) -> None:
    axes = figure.subplots(1, 2, sharey=True)
    shades = looks.shades(case.k for case in cases)
    for axis, scaling in zip(axes, (Scaling.NONE, Scaling.WARM), strict=True):
        for k, colour in shades.items():
            if case := find(cases, k, scaling):
                (losses,) = case.curve("losses")
                examples = WINDOW_EXAMPLES * np.arange(1, len(losses) + 1)
                axis.plot(examples, losses, lw=1, color=colour, label=f"k = {k}")
        axis.set_title(f"learning rate {scaling}", fontsize=9)
        axis.set_yscale("log")
        finish(axis, "examples", "training loss" if axis is axes[0] else "")


OF_TRAINING = (
    Plot(
        key="examples",
        title="Examples to the target, by the number of workers",
        shows="Median of the examples to the target against the number of workers k, both axes logarithmic, bars from"
        " the 10th to the 90th percentile. Large triangles: most runs gave up there, so their examples are that many"
        " or more.",
        expected="η rises in proportion to k; k η with warm-up stays level up to some k, and rises beyond.",
        claims=("same", "unscaled", "breaks", "warmup", "root"),
        draw=_draw_examples,
    ),
    Plot(
        key="losses",
        title="Training loss by examples",
        shows="Median training loss of windows of 640 examples, until the first seed reaches the target.",
        expected="at the left the curves separate, at the right those of small k coincide.",
        claims=("same", "unscaled"),
        draw=_draw_losses,
        size=(6.4, 3.4),
    ),
)
