"""The plots of the experiment on the time to an accuracy, and the words below them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, draw_estimates, finish
from ps_trainer.experiments.harness.targets import draw_cases, draw_course
from ps_trainer.experiments.toolkit import looks, real_clusters
from ps_trainer.experiments.toolkit.statistics import Interval, ratio_interval, spread

from .cases import (
    BatchKind,
    PacedTraining,
    TimedAccuracy,
    WorkerRule,
    counts_of,
    find,
    over_one,
    paced_times,
    predicted_update_time,
)

_LOOKS: dict[str, dict[str, Any]] = {
    WorkerRule.ASYNC: looks.ASYNC_POINTS,
    WorkerRule.SYNC: looks.SYNC_POINTS,
}


def _panels(figure: Figure, cases: Sequence[TimedAccuracy] | Sequence[PacedTraining]) -> list[tuple[Axes, BatchKind]]:
    """Returns a panel for each kind of batches that occurs."""
    kinds = [kind for kind in BatchKind if any(case.batches == kind for case in cases)]
    axes = figure.subplots(1, len(kinds), squeeze=False)[0]
    for axis, kind in zip(axes, kinds, strict=True):
        axis.set_title(kind, fontsize=9)
    return list(zip(axes, kinds, strict=True))


def _draw_points(axis: Axes, points: dict[int, tuple[float, Interval | None]], rule: WorkerRule) -> None:
    """Draws values with their intervals against the number of workers."""
    draw_estimates(axis, list(points), list(points.values()), ls="-", label=rule, **_LOOKS[rule])


def _inverse(value: float, ends: Interval | None) -> tuple[float, Interval | None]:
    return 1 / value, Interval(1 / ends.high, 1 / ends.low) if ends else None


def _draw_speedups(figure: Figure, cases: Sequence[TimedAccuracy]) -> None:
    counts = [1, *counts_of(cases)]
    for axis, batches in _panels(figure, cases):
        alone = find(cases, batches, WorkerRule.SYNC, 1)
        axis.plot(counts, counts, ":", color="0.4", lw=1, label="n")
        if alone is not None:
            cost = spread(alone.update_times).median - 1.0
            per_example = {n: n if batches == BatchKind.WEAK else 1 for n in counts}
            model = [per_example[n] * (1 + cost) / predicted_update_time(batches, n, cost) for n in counts]
            axis.plot(counts, model, "k-", lw=1, label="synchronous, if examples stay the same")
        for rule in WorkerRule:
            ratios = {n: measure for n in counts[1:] for measure in over_one(cases, batches, rule, n)}
            points = {n: _inverse(one.value, one.interval) for n, one in ratios.items() if not one.sign}
            _draw_points(axis, {1: (1.0, None), **points}, rule)
        finish(axis, "workers n", "time of one worker / time", log="xy", fontsize=7)


def _draw_examples(figure: Figure, cases: Sequence[TimedAccuracy]) -> None:
    for axis, batches in _panels(figure, cases):
        for rule in WorkerRule:
            own = [found for n in [1, *counts_of(cases)] if (found := find(cases, batches, rule, n))]
            draw_cases(axis, own, "n", "examples", label=rule, **_LOOKS[rule])
        finish(axis, "workers n", "examples to the accuracy", log="x")


def _draw_curves(figure: Figure, cases: Sequence[TimedAccuracy]) -> None:
    axes = figure.subplots(2, 2, sharex="row", sharey=True)
    counts = [1, *counts_of(cases)]
    shades = looks.shades(counts)
    for axis, (batches, rule) in zip(axes.flat, itertools.product(BatchKind, WorkerRule), strict=True):
        for n in counts:
            case = find(cases, batches, rule, n)
            if case is not None:
                times, accuracies = case.course("times")[0], 100 * case.course("accuracies")
                draw_course(axis, times, accuracies, color=shades[n], label=f"n = {n}")
        axis.set_title(f"{batches}, {rule}", fontsize=9)
        axis.set_ylim(bottom=50)
        finish(axis, "time / step of one worker", "test accuracy (%)", log="x", fontsize=7)


def _draw_real(figure: Figure, cases: Sequence[PacedTraining]) -> None:
    for axis, batches in _panels(figure, cases):
        counts = [1, *counts_of(cases)]
        axis.plot(counts, counts, ":", color="0.4", lw=1, label="n")
        for rule in WorkerRule:
            measured, simulated = (paced_times(cases, batches, rule, of) for of in ("measured", "simulated"))
            points = {
                n: _inverse(*ratio_interval(own, measured[1])) for n, own in measured.items() if n > 1 and 1 in measured
            }
            _draw_points(axis, {1: (1.0, None), **points}, rule)
            ratios = {n: _inverse(*ratio_interval(own, simulated[1]))[0] for n, own in simulated.items()}
            axis.plot(list(ratios), list(ratios.values()), "x", color=_LOOKS[rule]["color"], ms=6)
        finish(axis, "workers n", "time of one worker / time", log="xy", fontsize=7)


OF_TRAINING = (
    Plot(
        key="speedups",
        title="Speed-up of the time to an accuracy, by the number of workers",
        shows="Time of one worker over that of n workers, with 90 % intervals, both axes logarithmic. Left: the workers"
        " share the batch of one worker. Right: each has that batch. Dotted: n. Black: synchronous workers that need"
        " the examples of one worker.",
        expected="synchronous points on the black line at the left; at the right below it where the batch is large;"
        " asynchronous points between it and the dotted line while staleness does no harm.",
        claims=("async_sooner", "sync_sooner", "update_time", "async_first"),
        draw=_draw_speedups,
        size=(8.0, 3.8),
    ),
    Plot(
        key="examples",
        title="Examples to the accuracy, by the number of workers",
        shows="Median of the examples to the test accuracy against the number of workers (logarithmic axis); bars"
        " from the 10th to the 90th percentile.",
        expected="level at the left; at the right level for few workers, and rising beyond.",
        claims=("halves", "wastes", "fixed_batch", "small_pushes"),
        draw=_draw_examples,
        size=(8.0, 3.8),
    ),
    Plot(
        key="curves",
        title="Test accuracy against time",
        shows="Median test accuracy above 50 % against time in steps of one worker (logarithmic axis) until the"
        " first seed is at the target; bands from the 10th to the 90th percentile. Above: the workers share the batch"
        " of one worker. Below: each has that batch.",
        expected="curves of more workers further to the left.",
        claims=("async_sooner", "sync_sooner"),
        draw=_draw_curves,
        size=(8.0, 6.0),
    ),
)

OF_CLUSTERS = (
    Plot(
        key="real_speedups",
        title="Speed-up of the time to a loss, real clusters",
        shows="Time of one worker over that of n workers to a training loss, with 90 % intervals, both axes"
        " logarithmic. Crosses: simulations of the same delays. Dotted: n.",
        expected="points on the crosses.",
        claims=("real_sooner", "real_times"),
        draw=_draw_real,
        data=lambda cases: [case for case in cases if case.runs.uncontended()],
        level=real_clusters.LEVEL,
        size=(8.0, 3.8),
    ),
)
