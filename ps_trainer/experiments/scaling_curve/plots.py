"""The plots of the scaling curve, and the words below them."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, draw_estimates, finish, finish_grid
from ps_trainer.experiments.toolkit import looks

from .cases import SyncAndAsync, ThroughputCurve, pairs_of
from .claims import SPEEDUPS
from .records import ASYNC, EVEN, FREQUENT, PERCENTILES, RARE, SHAPE_NAMES, SYNC

_PUBLISHED_MARKERS = ("o", "s", "^", "D", "*")


def _draw_throughput(figure: Figure, curves: Sequence[ThroughputCurve]) -> None:
    sizes = sorted({curve.first.setting.num_bytes for curve in curves})
    shades = looks.shades(curve.first.setting.p for curve in curves)
    grid = figure.subplots(2, len(sizes), sharex=True, squeeze=False)
    for row, update in zip(grid, (SYNC, ASYNC), strict=True):
        for axis, size in zip(row, sizes, strict=True):
            for curve in curves:
                setting = curve.first.setting
                if (setting.update, setting.num_bytes) == (update, size):
                    _add_curve(axis, curve, shades[setting.p])
            axis.set_title(f"{update}, {size / 1e6:g} MB", fontsize=9)
            finish(axis, log="xy")
    finish_grid(figure, "workers", "steps per second, all workers")


def _add_curve(axis: Axes, curve: ThroughputCurve, colour: str) -> None:
    one = curve.first.setting
    counts = [point.setting.n for point in curve.points]
    rates = [point.rate for point in curve.points]
    if curve.first.level is Level.VIRTUAL:
        axis.plot(counts, rates, color=colour, lw=1, label=f"p={one.p}")
        axis.axhline(one.ceiling(), color=colour, lw=0.6, ls=":")
    else:
        means = [point.mean_rate for point in curve.points]
        draw_estimates(axis, counts, means, marker="o", color=colour, ms=6, label=f"p={one.p}, real")


def _draw_paper(figure: Figure, curves: Sequence[ThroughputCurve]) -> None:
    axis = figure.add_subplot()
    for curve in curves:
        setting = curve.first.setting
        counts = [point.setting.n for point in curve.points]
        speedups = [point.rate_over(curve.first).over(1 / setting.n) for point in curve.points]
        style = {"ls": {EVEN: "-", RARE: "--", FREQUENT: ":"}[setting.shape], "ms": 4}
        style |= looks.SYNC_POINTS if setting.update == SYNC else looks.ASYNC_POINTS
        draw_estimates(axis, counts, speedups, label=f"{setting.update}, {SHAPE_NAMES[setting.shape]}", **style)
    most = max(point.setting.n for curve in curves for point in curve.points)
    axis.plot([1, most], [1, most], "k:", lw=0.7)
    for published, marker in zip(SPEEDUPS, _PUBLISHED_MARKERS, strict=True):
        if published.num_workers <= most:
            axis.plot(published.num_workers, published.speedup, marker, color="k", mfc="none", label=published.label)
    finish(axis, "workers", "throughput over that of one worker")


def _draw_steps(figure: Figure, pairs: Sequence[SyncAndAsync]) -> None:
    axis = figure.add_subplot()
    boxes, positions, colours = [], [], []
    for position, pair in enumerate(pairs):
        base = pair.other.times.percentiles[PERCENTILES.index(50)]
        for shift, point, colour in ((-0.2, pair.sync, looks.SYNC), (0.2, pair.other, looks.ASYNC)):
            p10, p50, p90, p99 = (secs / base for secs in point.times.percentiles)
            boxes.append({"med": p50, "q1": p10, "q3": p90, "whislo": p10, "whishi": p90, "fliers": [p99]})
            positions.append(position + shift)
            colours.append(colour)
    parts = {"medianprops": {"color": "black"}, "flierprops": {"marker": ".", "ms": 6}}
    drawn = axis.bxp(boxes, positions=positions, widths=0.3, patch_artist=True, **parts)
    for box, colour in zip(drawn["boxes"], colours, strict=True):
        box.set_facecolor(colour)
        box.set_alpha(0.5)
    axis.set_xticks(range(len(pairs)), [_label(pair) for pair in pairs], fontsize=7)
    axis.set_xlim(-0.6, len(pairs) - 0.4)
    axis.set_ylabel("step time over the asynchronous median")
    axis.set_title("left, orange: sync; right, blue: async", fontsize=8)


def _label(pair: SyncAndAsync) -> str:
    one = pair.sync.setting
    head = f"n={one.n}\np={one.p}\n{one.num_bytes / 1e6:.3g} MB"
    return head + {RARE: "\nrare", FREQUENT: "\nfrequent"}.get(one.shape, "")


OF_OURS = (
    Plot(
        key="throughput",
        title="Throughput against the number of workers",
        shows="Steps per second of all workers against their number, both axes logarithmic: lines are virtual time,"
        " circles real clusters, with 90 % intervals; dotted: the ceilings of the ps tasks.",
        expected="circles on their lines, which grow with the number of workers, bend at the knee and end at the"
        " ceiling; more ps tasks move all of that up and to the right; asynchronous lines end twice as high as"
        " synchronous ones.",
        claims=("concave", "concave_virtual", "knee", "simulator"),
        draw=_draw_throughput,
        data=lambda scale: scale.curves,
        level=lambda curves: ", ".join(sorted({curve.first.level.value for curve in curves})),
        size=(8.4, 6.0),
    ),
    Plot(
        key="steps",
        title="Step times on real clusters, sync and async",
        shows="Step times over the asynchronous median. Boxes: 10th to 90th percentile, with the median. Dots: the"
        " 99th percentile.",
        expected="at the median a synchronous step is little longer than an asynchronous one, and far above the median"
        " much longer.",
        claims=("real_median", "real_tail"),
        draw=_draw_steps,
        data=lambda scale: pairs_of(scale.real),
        level=Level.SHAPED,
        size=(8.4, 4.6),
    ),
)

OF_PAPERS = (
    Plot(
        key="paper_speedup",
        title="Speed-up over one worker, 17 ps tasks, Inception-v3",
        shows="Simulated throughput over that of one worker, with 90 % intervals; dotted: perfect speed-up. Black"
        " markers are published speed-ups, each over its own system's single worker.",
        expected="both rules fall behind the dotted line, synchronous updates more.",
        claims=("paper_throughput",),
        draw=_draw_paper,
        data=lambda scale: scale.curves,
        size=(6.4, 4.4),
    ),
    Plot(
        key="paper_steps",
        title="Step times at the source's scale, sync and async",
        shows="Step times over the asynchronous median. Boxes: 10th to 90th percentile, with the median. Dots: the"
        " 99th percentile. Rare: one step in 1,000 is five times as long; frequent: one in 50.",
        expected="at the median a synchronous step is little longer than an asynchronous one; far above the median it"
        " is much longer where long delays are rare.",
        claims=("median", "tail_rare", "tail_frequent"),
        draw=_draw_steps,
        data=lambda scale: scale.pairs,
        size=(8.4, 4.6),
    ),
)
