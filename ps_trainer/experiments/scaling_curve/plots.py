"""The plots of the scaling curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ps_trainer.experiments.frame.base import Level
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.scaling_curve.cases import ASYNC, EVEN, PERCENTILES, RARE, SHAPE_NAMES, SYNC, Curve, Point
from ps_trainer.experiments.scaling_curve.published import SPEEDUPS
from ps_trainer.experiments.scaling_curve.tables import Pair, pairs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {1: "tab:blue", 2: "tab:orange", 4: "tab:green", 3: "tab:purple"}
_MARKERS = ("o", "s", "^", "D")


def plots(
    curves: Sequence[Curve], paper_curves: Sequence[Curve], points: Sequence[Point], paper_points: Sequence[Point]
) -> list[Plot]:
    """All of them; a plot without points is left out."""
    levels = sorted({curve.first.level.value for curve in curves})
    throughput = [
        Plot(
            key="throughput",
            title="Throughput against the number of workers",
            level=", ".join(levels),
            draw=lambda figure: _draw_throughput(figure, curves),
            size=(8.4, 6.0),
        )
    ]
    speedup = [
        Plot(
            key="paper_speedup",
            title="Speed-up over one worker, 17 ps tasks, Inception-v3",
            level=Level.VIRTUAL.value,
            draw=lambda figure: _draw_paper(figure, paper_curves),
            size=(6.4, 4.4),
        )
    ]
    made = [*(throughput if curves else ()), *(speedup if paper_curves else ())]
    for key, own in (("steps", [p for p in points if p.level is Level.SHAPED]), ("paper_steps", paper_points)):
        if pairs := pairs_of(own):
            made.append(
                Plot(
                    key=key,
                    title="Step times, sync and async",
                    level=pairs[0].sync.level.value,
                    draw=lambda figure, pairs=pairs: _draw_steps(figure, pairs),
                    size=(8.4, 4.6),
                )
            )
    return made


def _draw_throughput(figure: Figure, curves: Sequence[Curve]) -> None:
    sizes = sorted({curve.first.setting.num_bytes for curve in curves})
    grid = figure.subplots(2, len(sizes), sharex=True, squeeze=False)
    for row, update in zip(grid, (SYNC, ASYNC), strict=True):
        for axis, size in zip(row, sizes, strict=True):
            for curve in curves:
                one = curve.first.setting
                if (one.update, one.num_bytes) == (update, size):
                    _add_curve(axis, curve)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_major_formatter("{x:g}")
            axis.set_title(f"{update}, {size / 1e6:g} MB", fontsize=9)
            axis.legend()
    figure.supxlabel("workers", fontsize=9)
    figure.supylabel("steps per second, all workers", fontsize=9)


def _add_curve(axis: Axes, curve: Curve) -> None:
    one = curve.first.setting
    counts = [point.setting.n for point in curve.points]
    rates = [point.rate for point in curve.points]
    if curve.first.level is Level.VIRTUAL:
        axis.plot(counts, rates, color=_COLOURS[one.p], lw=1, label=f"p={one.p}")
        axis.axhline(one.ceiling(), color=_COLOURS[one.p], lw=0.6, ls=":")
    else:
        axis.plot(counts, rates, "o", color=_COLOURS[one.p], mfc="none", ms=6, label=f"p={one.p}, real")


def _draw_paper(figure: Figure, curves: Sequence[Curve]) -> None:
    axis = figure.add_subplot()
    for curve in curves:
        one = curve.first.setting
        counts = np.array([point.setting.n for point in curve.points])
        speedups = counts * np.array([curve.efficiency(point) for point in curve.points])
        style = "-" if one.shape == EVEN else "--"
        colour = "tab:blue" if one.update == SYNC else "tab:orange"
        axis.plot(counts, speedups, style, color=colour, lw=1, label=f"{one.update}, {SHAPE_NAMES[one.shape]}")
    most = max(point.setting.n for curve in curves for point in curve.points)
    axis.plot([1, most], [1, most], "k:", lw=0.7)
    for published, marker in zip(SPEEDUPS, _MARKERS, strict=True):
        if published.num_workers <= most:
            axis.plot(published.num_workers, published.speedup, marker, color="k", mfc="none", label=published.label)
    axis.set_xlabel("workers")
    axis.set_ylabel("throughput over that of one worker")
    axis.legend()


def _draw_steps(figure: Figure, pairs: Sequence[Pair]) -> None:
    axis = figure.add_subplot()
    boxes, places, colours = [], [], []
    for place, pair in enumerate(pairs):
        base = pair.other.times.percentiles[PERCENTILES.index(50)]
        for shift, point, colour in ((-0.2, pair.sync, "tab:blue"), (0.2, pair.other, "tab:orange")):
            p10, p50, p90, p99 = (secs / base for secs in point.times.percentiles)
            boxes.append({"med": p50, "q1": p10, "q3": p90, "whislo": p10, "whishi": p90, "fliers": [p99]})
            places.append(place + shift)
            colours.append(colour)
    drawn = axis.bxp(boxes, positions=places, widths=0.3, patch_artist=True, flierprops={"marker": ".", "ms": 6})
    for box, colour in zip(drawn["boxes"], colours, strict=True):
        box.set_facecolor(colour)
        box.set_alpha(0.5)
    axis.set_xticks(range(len(pairs)), [_label(pair) for pair in pairs], fontsize=7)
    axis.set_xlim(-0.6, len(pairs) - 0.4)
    axis.set_ylabel("step time over the asynchronous median")
    axis.set_title("left, blue: sync; right, orange: async", fontsize=8)


def _label(pair: Pair) -> str:
    one = pair.sync.setting
    head = f"n={one.n}\np={one.p}\n{one.num_bytes / 1e6:.3g} MB"
    return f"{head}\nrare" if one.shape == RARE else head
