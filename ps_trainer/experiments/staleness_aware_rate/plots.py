"""The plots of the experiment on staleness-aware learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ps_trainer.experiments.frame.base import Level, Results
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.lab.statistics import accuracy_standard_error
from ps_trainer.experiments.lab.virtual_training import WINDOW_EXAMPLES
from ps_trainer.experiments.staleness_aware_rate.cases import (
    BY_SPLITS,
    BY_STALENESS,
    EVEN,
    FULL,
    NUM_TEST_EXAMPLES,
    SOFTSYNC,
    SYNC,
    cases_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUM_EXAMPLES = 1437
_PANELS = (FULL, BY_STALENESS)
_HIGHEST_LOSS = 4.0
_ERROR_TICKS = (2, 5, 10, 20, 50, 100)


def plots(results: Results, rate: float) -> Sequence[Plot]:
    """All plots, of the runs with the learning rate α₀."""
    level = Level.VIRTUAL.value
    own = Results(result for result in results.where(shape=EVEN) if result.run.settings["lr"] == rate)
    return [
        Plot(
            key="losses",
            title="Training loss of n-softsync, learning rate α₀ and α₀/τ",
            level=level,
            draw=lambda figure: _draw_losses(figure, own),
            size=(8.0, 3.8),
        ),
        Plot(
            key="errors",
            title="Test error at the end by n",
            level=level,
            draw=lambda figure: _draw_errors(figure, own),
        ),
    ]


def _draw_losses(figure: Figure, results: Results) -> None:
    axes = figure.subplots(1, len(_PANELS), sharey=True)
    numbers = sorted(splits for (splits,) in results.where(mode=SOFTSYNC).by("splits"))
    colours = {splits: f"C{place}" for place, splits in enumerate(numbers)}
    for axis, arm in zip(axes, _PANELS, strict=True):
        for (splits,), group in sorted(results.where(mode=SOFTSYNC, arm=arm).by("splits").items()):
            _draw_curve(axis, group, f"n = {splits}", color=colours[splits])
        _draw_curve(axis, results.where(mode=SYNC), "synchronous", color="black")
        axis.set_title(f"learning rate {arm}", fontsize=9)
        axis.set_xlabel("epochs")
        axis.set_ylim(0, _HIGHEST_LOSS)
        axis.legend()
    axes[0].set_ylabel("training loss")


def _draw_curve(axis, results: Results, label: str, **style: str) -> None:
    curves = results.figures("losses")
    length = min(map(len, curves), default=0)
    losses = np.median([curve[:length] for curve in curves], axis=0)
    axis.plot((np.arange(length) + 1) * WINDOW_EXAMPLES / _NUM_EXAMPLES, losses, lw=1, label=label, **style)


def _draw_errors(figure: Figure, results: Results) -> None:
    axis = figure.add_subplot()
    cases = cases_of(results)
    for arm, marker in ((FULL, "s"), (BY_SPLITS, "^"), (BY_STALENESS, "o")):
        own = sorted((c for c in cases if c.mode == SOFTSYNC and c.arm == arm), key=lambda case: case.splits)
        style = f"{marker}-"
        axis.plot([c.splits for c in own], [100 * c.error for c in own], style, mfc="none", lw=1, label=arm)
    for case in cases:
        if case.mode == SYNC:
            band = 200 * accuracy_standard_error(case.error, NUM_TEST_EXAMPLES)
            axis.axhline(100 * case.error, color="black", lw=1, label="synchronous")
            axis.axhspan(100 * case.error - band, 100 * case.error + band, color="0.9")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_yticks(_ERROR_TICKS, [str(percent) for percent in _ERROR_TICKS])
    axis.minorticks_off()
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("n of n-softsync")
    axis.set_ylabel("test error (%)")
    axis.legend()
