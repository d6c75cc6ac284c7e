"""Plots of one or several runs, drawn with matplotlib (extra `plots`)."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from ps_trainer.comparison.recorded_run import X_AXES, RecordedRun, RunCurve
from ps_trainer.comparison.style import PALETTE, STYLE, write_figure
from ps_trainer.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 120  # a curve with more is smoothed: noise of single steps would hide the difference of two runs
MAX_STALENESS = 24  # greater values share the last bar
_TAIL_SHARE = 0.01  # the last bar may stand for several values if no run has a larger share of its gradients in it
_MIN_BARS = 4
_MAX_NAMED_BARS = 12  # with more bars, every fourth has a number
_DASHES = ("-", "--", ":")  # they tell more runs apart than there are colours


class NamedPlot(NamedTuple):
    """A plot with the name of its file and a title."""

    name: str
    title: str
    figure: Figure

    def save(self, file: pathlib.Path | BinaryIO, form: str) -> None:
        """Writes the plot as "png" or "svg"."""
        import matplotlib

        # Matplotlib reads settings such as `svg.fonttype` at this moment, not when it draws.
        with matplotlib.rc_context(STYLE):
            write_figure(self.figure, file, form)


def check_available() -> None:
    """Raises UsageError where matplotlib is not installed; imports nothing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("curves need matplotlib, which is not installed; run `pip install 'ps_trainer[plots]'`")


def draw(runs: Sequence[RecordedRun]) -> Iterator[NamedPlot]:
    """Draws all plots for which the runs have data: loss, test metrics, throughput, staleness, gradients, bytes."""
    yield _draw_curves("loss", "Training loss", runs, [run.loss for run in runs], "loss")
    for name in dict.fromkeys(name for run in runs for name in run.metrics):
        yield _draw_curves(f"test-{name}", f"Test {name}", runs, [run.metrics.get(name) for run in runs], name)
    yield _plot("throughput", "Throughput", (7.0, 3.6), lambda figure: _draw_throughput(figure, runs))
    if any(run.summary.staleness for run in runs):
        yield _plot(
            "staleness", "Staleness of the used gradients", (7.0, 3.6), lambda figure: _draw_staleness(figure, runs)
        )
    for name, title, parts in _BARS:
        rows = [[value(run) for value in parts.values()] for run in runs]
        if any(value is not None for row in rows for value in row):
            names = [_name_of_run(run, is_partial=name == "gradients" and run.has_partial_gradients) for run in runs]
            fill = functools.partial(_draw_bars, names=names, labels=list(parts), rows=rows)
            yield _plot(name, title, (7.0, 1.2 + 0.5 * len(runs)), fill)


_BARS: Sequence[tuple[str, str, dict[str, Callable[[RecordedRun], float | None]]]] = (
    (
        "gradients",
        "Gradients that the workers pushed",
        {
            "used": lambda run: run.gradients_used,
            "dropped": lambda run: run.gradients_dropped,
        },
    ),
    (
        "bytes",
        "Bytes per local step of a worker, measured on its sockets",
        {
            "push": lambda run: run.totals.push_bytes_per_step,
            "pull": lambda run: run.totals.pull_bytes_per_step,
        },
    ),
)


def _plot(name: str, title: str, size: tuple[float, float], fill: Callable[[Figure], None]) -> NamedPlot:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        fill(figure)
    return NamedPlot(name, title, figure)


def _draw_curves(
    name: str, title: str, runs: Sequence[RecordedRun], curves: Sequence[RunCurve | None], label: str
) -> NamedPlot:
    """Draws one panel for each of the `X_AXES`, with the same y axis."""

    def fill(figure: Figure) -> None:
        panels = figure.subplots(1, len(X_AXES), sharey=True)
        for key, axes in zip(X_AXES, panels, strict=True):
            for index, (run, curve) in enumerate(zip(runs, curves, strict=True)):
                if curve is not None and len(curve.y):
                    _draw_line(axes, curve.x[key], curve.y, index, run.name, f"{key}-run{index}")
                _mark_events(axes, run, key, index)
            _scale_x(axes, key, [curve.x[key] for curve in curves if curve is not None and len(curve.y)])
        panels[0].set_ylabel(label)
        _add_legend(figure, panels[0])

    return _plot(name, title, (11.0, 3.8), fill)


def _draw_throughput(figure: Figure, runs: Sequence[RecordedRun]) -> None:
    axes = figure.subplots()
    for index, run in enumerate(runs):
        _draw_line(axes, run.throughput.x["secs"], run.throughput.y, index, run.name, f"secs-run{index}")
        _mark_events(axes, run, "secs", index)
    _scale_x(axes, "secs", [run.throughput.x["secs"] for run in runs])
    axes.set_ylabel("examples per second, all workers")
    axes.set_ylim(bottom=0.0)
    _add_legend(figure, axes)


def _draw_staleness(figure: Figure, runs: Sequence[RecordedRun]) -> None:
    axes = figure.subplots()
    width = 0.8 / len(runs)
    highest = last_bar([run.summary.staleness for run in runs])
    for index, run in enumerate(runs):
        total = sum(run.summary.staleness.values())
        shares = np.zeros(highest + 1)
        for value, count in run.summary.staleness.items():
            shares[min(value, highest)] += count / total
        axes.bar(
            np.arange(highest + 1) + (index - (len(runs) - 1) / 2) * width,
            shares,
            width,
            **_colour(index),
            label=_name_of_run(run, is_partial=run.has_partial_summary),
        )
    has_tail = any(value > highest for run in runs for value in run.summary.staleness)
    num_bars = highest + 1 if has_tail else max(highest + 1, _MIN_BARS)
    ticks = {value: str(value) for value in range(0, num_bars, 1 if num_bars <= _MAX_NAMED_BARS else 4)}
    if has_tail:
        ticks[highest] = f"{highest} and more"
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xlim(-0.6, num_bars - 0.4)
    axes.set(xlabel="updates by other workers between pull and apply", ylabel="share of the used gradients")
    _add_legend(figure, axes)


def last_bar(histograms: Sequence[Mapping[int, int]]) -> int:
    """Returns the staleness of the last bar, which also stands for all greater values.

    Few gradients with a large staleness must not make the axis so long that the other bars cannot be told apart.
    """
    greatest = max((value for histogram in histograms for value in histogram), default=0)
    return min(greatest, MAX_STALENESS, 1 + max((_end_of_body(histogram) for histogram in histograms), default=0))


def _end_of_body(histogram: Mapping[int, int]) -> int:
    """Returns the smallest value such that at most the share of a tail is greater."""
    limit, greater = _TAIL_SHARE * sum(histogram.values()), 0
    for value in sorted(histogram, reverse=True):
        greater += histogram[value]
        if greater > limit:
            return value
    return 0


def _scale_x(axes: Axes, key: str, xs: Sequence[np.ndarray]) -> None:
    """Labels an axis of curves, which begins at 0 unless the curves of a continued run begin far from it."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(X_AXES[key])
    if key != "secs":
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    begin, end = min((x.min() for x in xs), default=0.0), max((x.max() for x in xs), default=0.0)
    # A single point has no width, so only 0 gives the axis a scale.
    if begin <= end / 2 or max(map(len, xs), default=0) < 3:
        axes.set_xlim(0.0, max(axes.get_xlim()[1], 1.05 * end))


def _draw_bars(
    figure: Figure, names: Sequence[str], labels: Sequence[str], rows: Sequence[Sequence[float | None]]
) -> None:
    """Draws a horizontal bar for each run, made of parts with a label each; the parts' values stand beside it."""
    axes = figure.subplots()
    left = np.zeros(len(names))
    for part, label in enumerate(labels):
        values = np.array([row[part] or 0.0 for row in rows], np.float64)
        axes.barh(names, values, left=left, color=PALETTE[part], label=label)
        left += values
    for index, row in enumerate(rows):
        annotation = " + ".join("unknown" if value is None else f"{value:,.0f}" for value in row)
        axes.annotate(annotation, (left[index], index), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_xlim(0.0, 1.35 * max(left.max(), 1.0))
    axes.invert_yaxis()  # the first run on top, as in the legend
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper left", ncols=len(labels))


def _name_of_run(run: RecordedRun, *, is_partial: bool) -> str:
    """Returns the run's name; says so if the plot counts only a part of the steps."""
    return f"{run.name} (since the last join)" if is_partial else run.name


def _draw_line(axes: Axes, x: np.ndarray, y: np.ndarray, index: int, label: str, gid: str) -> None:
    """Draws one curve; `gid` becomes its id in the page."""
    x, y = _smooth(x, y)
    axes.plot(
        x,
        y,
        _DASHES[index // len(PALETTE) % len(_DASHES)],
        marker="o" if len(x) < 3 else "",
        label=label,
        gid=gid,
        **_colour(index),
    )


def _mark_events(axes: Axes, run: RecordedRun, key: str, index: int) -> None:
    """Draws a vertical line for each disturbance; a run's examples at that moment are not recorded."""
    for number, event in enumerate(run.events if key != "examples" else ()):
        x = event.secs if key == "secs" else event.step
        if x is not None:
            axes.axvline(
                x, linestyle=(0, (1, 3)), linewidth=1.0, gid=f"{key}-run{index}-event{number}", **_colour(index)
            )


def _smooth(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the means over neighbouring points, so that at most `MAX_POINTS` are left."""
    if len(x) <= MAX_POINTS:
        return x, y
    edges = np.linspace(0, len(x), MAX_POINTS + 1).astype(int)[:-1]
    sizes = np.diff([*edges, len(x)])
    return np.add.reduceat(x, edges) / sizes, np.add.reduceat(y, edges) / sizes


def _colour(index: int) -> dict[str, str]:
    return {"color": PALETTE[index % len(PALETTE)]}


def _add_legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3)
