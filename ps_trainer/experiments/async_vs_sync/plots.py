"""The plots of the experiment on asynchronous and synchronous SGD, and the words below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ps_trainer.experiments.async_vs_sync.cases import (
    ASYNC,
    SYNC_GLOBAL,
    SYNC_SAME,
    Throughput,
    TrainedArm,
    predicted_ratio,
    ratio_of,
    tuned,
)
from ps_trainer.experiments.harness.base import Level
from ps_trainer.experiments.harness.captions import Caption
from ps_trainer.experiments.harness.plots import Plot
from ps_trainer.experiments.toolkit import real
from ps_trainer.experiments.toolkit.virtual_training import WINDOW_EXAMPLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEVEL = Level.VIRTUAL.value
_EVEN, _UNEVEN = 0.05, 1.0  # α of the arms
_COLOURS = {ASYNC: "tab:blue", SYNC_SAME: "tab:orange", SYNC_GLOBAL: "tab:green"}

CAPTIONS = {
    "throughput": Caption(
        shows=(
            "Circles: measured ratio of gradients per second, against the number of workers; lines: the model 1 −"
            " α + α H_n."
        ),
        expected=(
            "circles on their lines, which are nearly flat for even steps and grow as log n for exponential ones."
        ),
    ),
    "losses": Caption(
        shows=(
            "Median training loss of each arm at its best learning rate: at the left against examples, at the right"
            " against virtual time. A run stops when its accuracy, not its loss, reaches the target. A colour stands"
            " for a kind of updates, a line style for α."
        ),
        expected="staleness and large batches cost examples; waiting for the slowest worker costs time.",
    ),
    "real_throughput": Caption(
        shows=(
            "Circles: ratio of gradients per second of real clusters; crosses: simulations with the same delays;"
            " lines: the model 1 − α + α H_n."
        ),
        expected=("circles on the crosses and on the lines, within the noise of few steps."),
    ),
}


def of_throughput(cases: Sequence[Throughput]) -> list[Plot]:
    """The ratio against the number of workers."""
    title = "Gradients per second, asynchronous over synchronous"
    plot = Plot(key="throughput", title=title, level=_LEVEL, draw=lambda figure: _draw_ratios(figure, cases))
    return [plot] if cases else []


def of_training(arms: Sequence[TrainedArm]) -> list[Plot]:
    """Losses of the best learning rates."""
    plot = Plot(
        key="losses",
        title="Training loss against examples and against virtual time, each arm at its best learning rate",
        level=_LEVEL,
        draw=lambda figure: _draw_losses(figure, arms),
        size=(8.0, 3.8),
    )
    return [plot] if arms else []


def of_real_throughput(rates: Mapping[tuple[int, float], Mapping[str, real.Pair]]) -> list[Plot]:
    """The ratio against the number of workers; none without runs whose times count."""
    both = {key: pairs for key, pairs in rates.items() if len(pairs) > 1}
    plot = Plot(
        key="real_throughput",
        title="Gradients per second of real clusters, asynchronous over synchronous",
        level=real.LEVEL.value,
        draw=lambda figure: _draw_real(figure, both),
    )
    return [plot] if both else []


def _draw_ratios(figure: Figure, cases: Sequence[Throughput]) -> None:
    axis = figure.add_subplot()
    for alpha in dict.fromkeys(case.alpha for case in cases):
        own = sorted((case for case in cases if case.alpha == alpha), key=lambda case: case.n)
        counts = [case.n for case in own]
        (line,) = axis.plot(counts, [predicted_ratio(n, alpha) for n in counts], lw=1)
        ratios = [case.ratio for case in own]
        axis.plot(counts, ratios, "o", mfc="none", color=line.get_color(), label=f"α = {alpha:g}")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("workers n")
    axis.set_ylabel("ratio; lines: E[max]/E[X]")
    axis.legend()


def _draw_real(figure: Figure, rates: Mapping[tuple[int, float], Mapping[str, real.Pair]]) -> None:
    axis = figure.add_subplot()
    for alpha in dict.fromkeys(alpha for _, alpha in rates):
        own = {n: pairs for (n, one), pairs in sorted(rates.items(), key=lambda rate: rate[0]) if one == alpha}
        (line,) = axis.plot(list(own), [predicted_ratio(n, alpha) for n in own], lw=1)
        style = {"color": line.get_color(), "ls": "none"}
        measured = [ratio_of(pairs, "measured") for pairs in own.values()]
        axis.plot(list(own), measured, marker="o", mfc="none", label=f"α = {alpha:g}", **style)
        axis.plot(list(own), [ratio_of(pairs, "simulated") for pairs in own.values()], marker="x", **style)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("workers n")
    axis.set_ylabel("ratio; lines: E[max]/E[X], crosses: simulated")
    axis.legend()


def _draw_losses(figure: Figure, arms: Sequence[TrainedArm]) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    n = max(arm.n for arm in arms)
    for mode, alpha in dict.fromkeys((arm.mode, arm.alpha) for arm in arms):
        arm = tuned(arms, mode, n, alpha)
        label = f"{mode}, α = {alpha:g}" if mode == ASYNC else mode
        _draw_curve(left, arm, 1.0, label, _style(mode, alpha if mode == ASYNC else None))
        if mode == SYNC_GLOBAL:
            continue
        for own in (alpha,) if mode == ASYNC else (_EVEN, _UNEVEN):
            per_example = float(np.mean(np.array(arm.secs_at(own)) / np.array(arm.examples)))
            _draw_curve(right, arm, per_example, f"{mode}, α = {own:g}", _style(mode, own))
    left.set_xlabel(f"examples, n = {n}")
    right.set_xlabel("virtual time in seconds")
    left.set_ylabel("training loss")
    left.legend()
    right.legend()


def _style(mode: str, alpha: float | None) -> dict[str, str]:
    """A colour per mode, a line style per α; solid where α makes no difference."""
    styles = {None: "-", _EVEN: "--", _UNEVEN: ":"}
    return {"color": _COLOURS[mode], "ls": styles.get(alpha, "-.")}


def _draw_curve(axis: Axes, arm: TrainedArm, per_example: float, label: str, style: dict[str, str]) -> None:
    curves = arm.runs.figures("losses")
    length = min(map(len, curves))
    losses = np.median([curve[:length] for curve in curves], axis=0)
    axis.plot((np.arange(length) + 1) * WINDOW_EXAMPLES * per_example, losses, lw=1, label=label, **style)
