"""The plots of the experiment on cached reads, and the words below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, finish
from ps_trainer.experiments.harness.targets import Samples, draw_course, draw_samples
from ps_trainer.experiments.toolkit import looks

from .cases import FRESH_BOUND, CacheArm, CacheComparison, Reads

_OTHERS: tuple[tuple[Reads, int | None, dict[str, str]], ...] = (
    (Reads.FRESH, FRESH_BOUND, looks.SSP_POINTS),
    (Reads.BARRIER, None, looks.SYNC_POINTS),
    (Reads.NONE, None, looks.ASYNC_POINTS),
)
_CACHED = looks.SSP_CACHE


def _panels(figure: Figure, comparisons: Sequence[CacheComparison]) -> list[tuple[Axes, CacheComparison]]:
    axes = figure.subplots(1, len(comparisons), squeeze=False)[0]
    for axis, one in zip(axes, comparisons, strict=True):
        axis.set_title(one.problem, fontsize=9)
    return list(zip(axes, comparisons, strict=True))


def _draw_against_bound(axis: Axes, one: CacheComparison, samples: Callable[[CacheArm], Samples]) -> None:
    """Draws cached reads as a line against the bound, and the other rules as points at the right of it."""
    bounds = [arm.bound for arm in one.cached]
    groups = [(Reads.CACHED, one.cached, range(len(bounds)), looks.SSP_CACHE_POINTS)]
    for position, (reads, bound, points) in enumerate(_OTHERS, len(bounds)):
        if arm := one.at(reads, bound):
            groups.append((Reads(reads), [arm], range(position, position + 1), points))
    for reads, arms, positions, points in groups:
        own = dict(zip(positions, map(samples, arms), strict=True))
        draw_samples(axis, own, label=reads, **points)
    names = {Reads.FRESH: f"s = {FRESH_BOUND}", Reads.BARRIER: "barrier", Reads.NONE: "async"}
    shown = [names[reads] for reads, *_ in _OTHERS]
    axis.set_xticks(range(len(bounds) + len(shown)), [*map(str, bounds), *shown], fontsize=7)
    axis.set_ylim(bottom=0)


def _draw_times(figure: Figure, comparisons: Sequence[CacheComparison]) -> None:
    for axis, one in _panels(figure, comparisons):
        _draw_against_bound(axis, one, lambda arm: arm.samples("times"))
        finish(axis, "bound s of cached reads; other rules", "time to the objective / mean step", fontsize=7)


def _draw_parts(figure: Figure, comparisons: Sequence[CacheComparison]) -> None:
    one = comparisons[0]
    left, right = figure.subplots(1, 2)
    _draw_against_bound(left, one, lambda arm: Samples.known(arm.computes))
    finish(left, "bound s of cached reads; other rules", "share of time in which workers compute", fontsize=7)
    for line, own in zip(("-", "--"), comparisons, strict=False):
        bounds, style = range(len(own.cached)), {**looks.SSP_CACHE_POINTS, "ls": line, "label": own.problem}
        draw_samples(right, dict(enumerate(arm.samples("gradients") for arm in own.cached)), **style)
        right.set_xticks(bounds, [str(arm.bound) for arm in own.cached])
    right.set_ylim(bottom=0)
    finish(right, "bound s of cached reads", "gradients to the objective", fontsize=7)


def _draw_curves(figure: Figure, comparisons: Sequence[CacheComparison]) -> None:
    for axis, one in _panels(figure, comparisons):
        shown = [
            (one.at(reads, bound), points["color"], style)
            for (reads, bound, points), style in zip(_OTHERS, ("-.", "--", (0, (1, 1))), strict=True)
        ]
        shown += [(one.at(Reads.CACHED, 0), _CACHED, (0, (1, 3))), (one.best, _CACHED, "-")]
        for arm, colour, style in shown:
            if arm:
                draw_course(axis, arm.course("times")[0], arm.course("losses"), ls=style, color=colour, label=arm.name)
        axis.set_xlim(left=0)
        finish(axis, "time / mean step", "test loss", fontsize=7)


OF_READS = (
    Plot(
        key="times",
        title="Time to the objective, by the bound",
        shows="Median time to the objective, bars from the 10th to the 90th percentile; each arm at its own learning"
        " rate. Line: cached reads, by the bound; at the right of it the other rules.",
        expected="the line is lowest between its ends, and there below all other rules.",
        claims=("sooner_than_barrier", "sooner_than_async", "interior", "cache"),
        draw=_draw_times,
        size=(8.0, 3.8),
    ),
    Plot(
        key="parts",
        title="What a bound gains and what it costs",
        shows="Left: share of the workers' time in which they compute, which is the same for both problems; the rest"
        " are transfers and waiting. Right:"
        " gradients to the objective with cached reads. Medians; bars from the 10th to the 90th percentile.",
        expected="both rise with the bound.",
        claims=("computes", "quality"),
        draw=_draw_parts,
        size=(8.0, 3.8),
    ),
    Plot(
        key="curves",
        title="Test loss against time",
        shows="Median test loss until the first seed reaches the objective, with bands from the 10th to the 90th"
        " percentile: cached reads at s = 0 and at the bound that the pilot runs have chosen, and the other rules. By"
        " SGD, cached reads at s = 0 make the updates of the averaging barrier, so that the two curves are one.",
        expected="cached reads at the chosen bound fall first.",
        claims=("sooner_than_barrier", "sooner_than_async"),
        draw=_draw_curves,
        size=(8.0, 3.8),
    ),
)
