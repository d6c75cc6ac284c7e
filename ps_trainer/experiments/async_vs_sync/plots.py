"""The plots of the experiment on asynchronous and synchronous SGD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ps_trainer.experiments.async_vs_sync.cases import (
    ASYNC,
    SYNC_GLOBAL,
    SYNC_SAME,
    Arm,
    arms_of,
    predicted_ratio,
    tuned,
)
from ps_trainer.experiments.frame.base import Level, Results
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.lab.virtual_training import WINDOW_EXAMPLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_EVEN, _UNEVEN = 0.05, 1.0  # α of the arms
_COLOURS = {ASYNC: "tab:blue", SYNC_SAME: "tab:orange", SYNC_GLOBAL: "tab:green"}


def plots(results: Results) -> Sequence[Plot]:
    """All plots."""
    level = Level.VIRTUAL.value
    return [
        Plot(
            key="throughput",
            title="Gradients per second, asynchronous over synchronous",
            level=level,
            draw=lambda figure: _draw_ratios(figure, results.where(mode="rates")),
        ),
        Plot(
            key="losses",
            title="Training loss against examples and against virtual time, each arm at its best learning rate",
            level=level,
            draw=lambda figure: _draw_losses(figure, results),
            size=(8.0, 3.8),
        ),
    ]


def _draw_ratios(figure: Figure, results: Results) -> None:
    axis = figure.add_subplot()
    for (alpha,), group in results.by("alpha").items():
        counts, ratios = [], []
        for (n,), own in sorted(group.by("n").items()):
            counts.append(n)
            ratios.append(np.mean(own.figures("async_rate")) / np.mean(own.figures("sync_rate")))
        (line,) = axis.plot(counts, [predicted_ratio(n, alpha) for n in counts], lw=1)
        axis.plot(counts, ratios, "o", mfc="none", color=line.get_color(), label=f"α = {alpha:g}")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("workers n")
    axis.set_ylabel("ratio; lines: E[max]/E[X]")
    axis.legend()


def _draw_losses(figure: Figure, results: Results) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    arms = arms_of(results)
    n = max(arm.n for arm in arms)
    for mode, alpha in dict.fromkeys((arm.mode, arm.alpha) for arm in arms):
        arm = tuned(arms, mode, n, alpha)
        label = f"{mode}, α = {alpha:g}" if mode == ASYNC else mode
        _draw_curve(left, results, arm, 1.0, label, _style(mode, alpha if mode == ASYNC else None))
        if mode == SYNC_GLOBAL:
            continue
        for own in (alpha,) if mode == ASYNC else (_EVEN, _UNEVEN):
            per_example = float(np.mean(np.array(arm.secs_at(own)) / np.array(arm.examples)))
            _draw_curve(right, results, arm, per_example, f"{mode}, α = {own:g}", _style(mode, own))
    left.set_xlabel(f"examples, n = {n}")
    right.set_xlabel("virtual time in seconds")
    left.set_ylabel("training loss")
    left.legend()
    right.legend()


def _style(mode: str, alpha: float | None) -> dict[str, str]:
    """A colour per mode, a line style per α; solid where α makes no difference."""
    styles = {None: "-", _EVEN: "--", _UNEVEN: ":"}
    return {"color": _COLOURS[mode], "ls": styles.get(alpha, "-.")}


def _draw_curve(axis: Axes, results: Results, arm: Arm, per_example: float, label: str, style: dict[str, str]) -> None:
    curves = results.where(mode=arm.mode, n=arm.n, alpha=arm.alpha, lr=arm.rate).figures("losses")
    length = min(map(len, curves))
    losses = np.median([curve[:length] for curve in curves], axis=0)
    axis.plot((np.arange(length) + 1) * WINDOW_EXAMPLES * per_example, losses, lw=1, label=label, **style)
