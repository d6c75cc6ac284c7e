"""The plots of the experiment on the distribution of gradient staleness, and the words below them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.plots import Figure, Plot, draw_estimates, finish, finish_grid
from ps_trainer.experiments.toolkit import looks, real_clusters, theory
from ps_trainer.experiments.toolkit.statistics import of_histogram
from ps_trainer.experiments.toolkit.step_times import Shape

from .cases import SLOW_RATES, Staleness

_SHOWN = (Shape.EVEN, Shape.MODERATE, Shape.EXPONENTIAL)
_HISTOGRAM_WORKERS = (4, 8, 16)
_SHOWN_MEANS = 4  # histograms end at this multiple of n


def _alike(case: Staleness) -> bool:
    return case.per_update == 1 and not case.is_slow


def _draw_histograms(figure: Figure, cases: Sequence[Staleness]) -> None:
    by_place = {(case.shape, case.n): case for case in cases if case.n in _HISTOGRAM_WORKERS}
    shapes = [shape for shape in _SHOWN if any(place[0] == shape for place in by_place)]
    counts = [n for n in _HISTOGRAM_WORKERS if any(place[1] == n for place in by_place)]
    axes = figure.subplots(len(shapes), len(counts), squeeze=False, sharex="col")
    for row, shape in zip(axes, shapes, strict=True):
        for axis, n in zip(row, counts, strict=True):
            case = by_place.get((shape, n))
            if case is None:
                axis.set_axis_off()
                continue
            grid = np.arange(_SHOWN_MEANS * n + 1)
            total = case.counts.total()
            axis.bar(
                grid,
                [case.counts[value] / total for value in grid.tolist()],
                width=1.0,
                color=looks.SHAPE_COLOURS[shape],
            )
            if shape == Shape.EXPONENTIAL:
                axis.plot(grid, theory.geometric_staleness(grid, n), color="black", lw=1, label="geometric")
                axis.legend()
            axis.axvline(n - 1, color="black", lw=0.8, ls=":")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.set_title(f"n = {n}, {shape}", fontsize=8)
    finish_grid(figure, "staleness in updates; dotted: n − 1", "share of gradients")


def _draw_moments(figure: Figure, cases: Sequence[Staleness]) -> None:
    mean_axis, sd_axis = figure.subplots(1, 2)
    counts = sorted({case.n for case in cases})
    mean_axis.plot(counts, [theory.mean_staleness(n) for n in counts], "k-", lw=1, label="n − 1")
    sd_axis.plot(counts, [theory.geometric_sd(n) for n in counts], "k-", lw=1, label="√(n(n − 1)), geometric")
    for shape in _SHOWN:
        look = looks.of_shape(shape) | {"label": shape}
        shape_cases = [case for case in cases if case.shape == shape]
        numbers = [case.n for case in shape_cases]
        draw_estimates(mean_axis, numbers, [c.estimate(lambda one: one.summary.mean) for c in shape_cases], **look)
        draw_estimates(sd_axis, numbers, [c.estimate(lambda one: one.summary.sd) for c in shape_cases], **look)
    for axis, name in ((mean_axis, "mean"), (sd_axis, "standard deviation")):
        axis.xaxis.get_major_locator().set_params(integer=True)
        finish(axis, "workers", f"{name} of the staleness")


def _mean_of(case: Staleness, worker: int) -> float:
    return of_histogram(case.by_worker[worker]).mean


def _draw_by_worker(figure: Figure, cases: Sequence[Staleness]) -> None:
    axis = figure.add_subplot()
    width = 0.8 / max(1, len(cases))
    for number, case in enumerate(cases):
        means = [case.estimate(functools.partial(_mean_of, worker=worker)) for worker in case.by_worker]
        positions = np.arange(len(means)) + (number - (len(cases) - 1) / 2) * width
        colour = looks.SHAPE_COLOURS[case.shape]
        axis.bar(positions, [mean.value for mean in means], width, label=case.shape, color=colour)
        draw_estimates(axis, positions.tolist(), means, color="0.2")
    for worker, predicted in enumerate(theory.worker_staleness(SLOW_RATES)):
        axis.hlines(predicted, worker - 0.45, worker + 0.45, color="black", lw=1, label="" if worker else "predicted")
    axis.set_xticks(range(len(SLOW_RATES)), [f"worker {w}\nrate {r:g}" for w, r in enumerate(SLOW_RATES)])
    axis.set_ylabel("mean staleness in updates")
    axis.legend()


def _draw_grouped(figure: Figure, cases: Sequence[Staleness]) -> None:
    axis = figure.add_subplot()
    sizes = sorted({case.per_update for case in cases})
    grid = np.geomspace(1, max(sizes, default=math.e))
    axis.plot(grid, [theory.mean_staleness(8, c) for c in grid], "k-", lw=1, label="(n − 1)/c")
    means = [case.estimate(lambda one: one.summary.mean) for case in cases]
    numbers = [case.per_update for case in cases]
    draw_estimates(axis, numbers, means, marker="o", color=looks.MEASURED, label="measured")
    finish(axis, "gradients per update, c", "mean staleness in updates", log="xy")


def _plots_of(level: Level) -> tuple[Plot, ...]:
    suffix = level.value[:2]

    def of(is_shown: Callable[[Staleness], bool]) -> Callable[[Sequence[Staleness]], list[Staleness]]:
        return lambda cases: [case for case in cases if case.level is level and is_shown(case)]

    return (
        Plot(
            key=f"histograms-{suffix}",
            title="Staleness of asynchronous workers",
            shows="Shares of gradients by their staleness, a row for each kind of step times, a column for each number"
            " of workers; dotted: n − 1; black line: the geometric distribution (A7).",
            expected="one bar at n − 1 for nearly even steps, a hill around n − 1 for lognormal ones; for exponential"
            " ones bars that fall from 0 on and follow the black line.",
            claims=("spike", "geometric"),
            draw=_draw_histograms,
            data=of(_alike),
            level=level,
            size=(8.0, 6.0),
        ),
        Plot(
            key=f"moments-{suffix}",
            title="Mean and standard deviation against the number of workers",
            shows="Mean and standard deviation of the staleness against the number of workers, with 90 % intervals;"
            " black lines: the models, n − 1 (A6) and √(n(n − 1)) (A7).",
            expected="means of all kinds of step times on the line n − 1; standard deviations near 0 for even steps,"
            " on the line for exponential ones, between them for lognormal ones.",
            claims=("mean", "mean_virtual", "spike"),
            draw=_draw_moments,
            data=of(_alike),
            level=level,
            size=(8.0, 3.6),
        ),
        Plot(
            key=f"by_worker-{suffix}",
            title="Mean staleness by worker, the last one four times slower",
            shows="Mean staleness of each worker's gradients, with 90 % intervals, the last worker four times slower;"
            " black lines: the others' rate over its own (A8).",
            expected="bars that end at their black lines, at 2.25 for three workers and at 12 for the slow one.",
            claims=("per_worker",),
            draw=_draw_by_worker,
            data=of(lambda case: case.per_update == 1 and case.is_slow),
            level=level,
        ),
        Plot(
            key=f"softsync-{suffix}",
            title="Gradients per update and mean staleness, n = 8",
            shows="Circles: mean staleness in updates against the gradients per update, 8 workers, with 90 %"
            " intervals; black line: (n − 1)/c (A6).",
            expected="circles on the line: 7 for c = 1, and half of it for each doubling of c.",
            claims=("softsync", "softsync_virtual"),
            draw=_draw_grouped,
            data=of(lambda case: case.n == 8 and case.shape == Shape.MODERATE and not case.is_slow),
            level=level,
        ),
    )


PLOTS = (*_plots_of(Level.VIRTUAL), *_plots_of(real_clusters.LEVEL))
