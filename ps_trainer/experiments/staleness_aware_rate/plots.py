"""The plots of the experiment on staleness-aware learning rates, and the words below them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, draw_estimates, finish
from ps_trainer.experiments.harness.targets import draw_course
from ps_trainer.experiments.toolkit import looks
from ps_trainer.experiments.toolkit.statistics import mean_estimate
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.experiments.toolkit.virtual_training import WINDOW_EXAMPLES

from .cases import MARGIN, SMALL_RATE, Rate, RateTraining, RateTrainings, Updates

_NUM_EXAMPLES = 1437
_PANELS = (Rate.FULL, Rate.BY_STALENESS)
_COLOURS: dict[str, str] = {
    Rate.FULL: looks.ONE_RATE,
    Rate.BY_SPLITS: looks.RATE_BY_NUMBER,
    Rate.BY_STALENESS: looks.RATE_THAT_VARIES,
}
_HIGHEST_LOSS = 4.0
_ERROR_TICKS = (2, 5, 10, 20, 50, 100)


def _with_small_rate(trainings: RateTrainings) -> list[RateTraining]:
    """Returns the trainings with nearly even steps and the small learning rate α₀."""
    return [case for case in trainings.cases if case.shape == Shape.NEARLY_EVEN and case.rate == SMALL_RATE]


def _draw_losses(figure: Figure, cases: Sequence[RateTraining]) -> None:
    axes = figure.subplots(1, len(_PANELS), sharey=True)
    soft = sorted((case for case in cases if case.mode == Updates.SOFTSYNC), key=lambda case: case.splits)
    colours = looks.shades(case.splits for case in soft)
    for axis, arm in zip(axes, _PANELS, strict=True):
        for case in (case for case in soft if case.arm == arm):
            _draw_curve(axis, case, f"n = {case.splits}", color=colours[case.splits])
        for case in (case for case in cases if case.mode == Updates.SYNC):
            _draw_curve(axis, case, "synchronous", color=looks.SYNC, ls="--")
        axis.set_title(f"learning rate {arm}", fontsize=9)
        axis.set_ylim(0, _HIGHEST_LOSS)
        finish(axis, "epochs", "training loss" if axis is axes[0] else "")


def _draw_curve(axis: Axes, case: RateTraining, label: str, **style: str) -> None:
    course = case.course("losses")
    epochs = np.arange(1, course.shape[1] + 1) * WINDOW_EXAMPLES / _NUM_EXAMPLES
    draw_course(axis, epochs, course, label=label, **style)


def _draw_errors(figure: Figure, cases: Sequence[RateTraining]) -> None:
    axis = figure.add_subplot()
    for arm, colour in _COLOURS.items():
        arm_cases = sorted(
            (c for c in cases if c.mode == Updates.SOFTSYNC and c.arm == arm), key=lambda case: case.splits
        )
        errors = [mean_estimate([100 * error for error in case.errors]) for case in arm_cases]
        style = {"color": colour, "marker": looks.RATE_MARKERS[colour], "ls": "-", "label": arm}
        draw_estimates(axis, [case.splits for case in arm_cases], errors, **style)
    for case in cases:
        if case.mode == Updates.SYNC:
            axis.axhline(100 * case.error, color=looks.SYNC, ls="--", lw=1, label="synchronous")
            axis.axhspan(100 * (case.error - MARGIN), 100 * (case.error + MARGIN), color="0.9")
    finish(axis, "n of n-softsync", "test error (%)", log="x")
    axis.set_yscale("log")
    axis.set_yticks(_ERROR_TICKS, [str(percent) for percent in _ERROR_TICKS])
    axis.minorticks_off()


PLOTS = (
    Plot(
        key="losses",
        title="Training loss of n-softsync, learning rate α₀ and α₀/τ",
        shows="Median training loss against epochs, a panel for each learning rate, with bands from the 10th to the"
        " 90th percentile; each n has one colour in both; dashed: synchronous updates.",
        expected="with α₀ the curves of large n stay high or leave the picture; with α₀/τ all lie together with the"
        " dashed one.",
        claims=("fails_small", "aware_small"),
        draw=_draw_losses,
        data=_with_small_rate,
        size=(8.0, 3.8),
    ),
    Plot(
        key="errors",
        title="Test error at the end by n",
        shows="Mean test error against n, with 90 % intervals; dashed: synchronous updates, with a grey band of one"
        " percentage point to each side, the margin of the claims.",
        expected="with α₀ the error of guessing; with α₀/n and α₀/τ errors within the grey band.",
        claims=("fails_small", "aware_small", "global"),
        draw=_draw_errors,
        data=_with_small_rate,
    ),
)
