"""The plots of the experiment on asynchronous and synchronous SGD, and the words below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.cases import find
from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, draw_estimates, finish
from ps_trainer.experiments.harness.targets import draw_course
from ps_trainer.experiments.toolkit import looks, real_clusters
from ps_trainer.experiments.toolkit.virtual_training import WINDOW_EXAMPLES

from .cases import (
    EVEN,
    TRAINED_ALPHAS,
    UNEVEN,
    Mode,
    Throughput,
    TrainedArm,
    measured_ratio,
    predicted_ratio,
    simulated_ratio,
)

_COLOURS: dict[str, str] = {
    Mode.ASYNC: looks.ASYNC,
    Mode.SYNC_SAME: looks.SYNC,
    Mode.SYNC_GLOBAL: looks.SYNC_GLOBAL,
}


def _draw_ratios(figure: Figure, cases: Sequence[Throughput]) -> None:
    axis = figure.add_subplot()
    for alpha, colour in looks.shades(case.alpha for case in cases).items():
        own = sorted((case for case in cases if case.alpha == alpha), key=lambda case: case.n)
        counts = [case.n for case in own]
        axis.plot(counts, [predicted_ratio(n, alpha) for n in counts], lw=1, color=colour)
        draw_estimates(axis, counts, [case.ratio for case in own], marker="o", color=colour, label=f"α = {alpha:g}")
    finish(axis, "workers n", "gradients/s, asynchronous over synchronous", log="x")


def _draw_real(figure: Figure, rates: Mapping[tuple[int, float], Mapping[str, real_clusters.Pair]]) -> None:
    axis = figure.add_subplot()
    for alpha, colour in looks.shades(alpha for _, alpha in rates).items():
        own = {n: pairs for (n, one), pairs in sorted(rates.items(), key=lambda rate: rate[0]) if one == alpha}
        axis.plot(list(own), [predicted_ratio(n, alpha) for n in own], lw=1, color=colour)
        measured = [measured_ratio(pairs) for pairs in own.values()]
        draw_estimates(axis, list(own), measured, marker="o", color=colour, label=f"α = {alpha:g}")
        axis.plot(list(own), [simulated_ratio(pairs) for pairs in own.values()], "x", color=colour)
    finish(axis, "workers n", "gradients/s, asynchronous over synchronous", log="x")


def _draw_losses(figure: Figure, arms: Sequence[TrainedArm]) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    n = max(arm.n for arm in arms)
    for mode, alpha in dict.fromkeys((arm.mode, arm.alpha) for arm in arms):
        arm = find(arms, mode=mode, n=n, alpha=alpha)
        if arm is None:
            continue
        label = f"{mode}, α = {alpha:g}" if mode == Mode.ASYNC else mode
        _draw_curve(left, arm, 1.0, label, _style(mode, alpha if mode == Mode.ASYNC else None))
        if mode == Mode.SYNC_GLOBAL:
            continue
        for own in (alpha,) if mode == Mode.ASYNC else TRAINED_ALPHAS:
            per_example = float(np.mean(np.array(arm.secs_at(own)) / np.array(arm.examples)))
            _draw_curve(right, arm, per_example, f"{mode}, α = {own:g}", _style(mode, own))
    left.set_xlabel(f"examples, n = {n}")
    right.set_xlabel(f"virtual time in seconds, n = {n}")
    left.set_ylabel("training loss")
    left.legend()
    right.legend()


def _style(mode: str, alpha: float | None) -> dict[str, str]:
    """Returns a colour per mode, a line style per α; solid where α makes no difference."""
    styles = {None: "-", EVEN: "--", UNEVEN: ":"}
    return {"color": _COLOURS[mode], "ls": styles.get(alpha, "-.")}


def _draw_curve(axis: Axes, arm: TrainedArm, per_example: float, label: str, style: dict[str, str]) -> None:
    course = arm.course("losses")
    examples = (np.arange(course.shape[1]) + 1) * WINDOW_EXAMPLES
    draw_course(axis, examples * per_example, course, label=label, **style)


OF_THROUGHPUT = (
    Plot(
        key="throughput",
        title="Gradients per second, asynchronous over synchronous",
        shows="Circles: measured ratio of gradients per second, against the number of workers, with 90 % intervals;"
        " lines: the model 1 − α + α H_n.",
        expected="circles on their lines, which are nearly flat for even steps and grow as log n for exponential ones.",
        claims=("throughput",),
        draw=_draw_ratios,
    ),
)

OF_TRAINING = (
    Plot(
        key="losses",
        title="Training loss against examples and against virtual time, each arm at its best learning rate",
        shows="Median training loss of each arm at its best learning rate, with a band from the 10th to the 90th"
        " percentile: at the left against examples, at the right against virtual time. A run stops when its accuracy,"
        " not its loss, reaches the target. A colour stands for a kind of updates, a line style for α.",
        expected="staleness and large batches cost examples; waiting for the slowest worker costs time.",
        claims=("examples", "examples_global", "time_even", "time_uneven"),
        draw=_draw_losses,
        size=(8.0, 3.8),
    ),
)

OF_REAL_THROUGHPUT = (
    Plot(
        key="real_throughput",
        title="Gradients per second of real clusters, asynchronous over synchronous",
        shows="Circles: ratio of gradients per second of real clusters, with 90 % intervals; crosses: simulations with"
        " the same delays; lines: the model 1 − α + α H_n.",
        expected="circles on the crosses and on the lines, within the noise of few steps.",
        claims=("real_rate", "real_throughput"),
        draw=_draw_real,
        data=lambda rates: {key: pairs for key, pairs in rates.items() if len(pairs) > 1},
        level=real_clusters.LEVEL,
    ),
)
