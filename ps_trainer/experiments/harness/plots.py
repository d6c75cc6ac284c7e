"""Plots: one style, the words below each, PNG and SVG files. Only drawing needs the extra `plots`.

A caption has two parts. "Expected" is a constant, written before anything is run. "Seen" is made from the checked
claims.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ps_trainer.comparison.style import STYLE, write_figure
from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.toolkit.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    Axes = Figure = Any  # lists of experiments work where matplotlib is not installed

NO_CLAIM = "no claim is about this plot."

_STYLE = {**STYLE, "font.size": 9.0, "legend.fontsize": 8.0, "lines.markersize": 4.0}


class ClaimSummary(NamedTuple):
    """The measured values and the outcome of a claim, as the table of claims shows them."""

    measured: str
    outcome: str


class Caption(NamedTuple):
    """The words below a plot: what it shows, which result was expected, and what the claims about it found."""

    shows: str
    expected: str
    about: Sequence[str] = ()  # sentences of the claims

    def text(self, seen: Mapping[str, ClaimSummary]) -> str:
        """Returns the caption.

        Args:
            seen: What was seen of each claim, by its sentence.
        """
        found = [f"“{one}”: {seen[one].outcome} ({seen[one].measured})." for one in self.about if one in seen]
        return f"{self.shows} Expected: {self.expected} Seen: {' '.join(found) or NO_CLAIM}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot of a part's cases.

    Attributes:
        key: Name of its files. Plots whose keys differ only after the first `-` have the same caption.
        title: Title.
        shows: Axes, lines and markers, in sentences; the words below the plot, whatever its data are.
        expected: Result that the sources or the models predict.
        claims: Keys of the claims that say what was seen.
        draw: Function that draws the data into an empty figure.
        data: Function that selects the data from the cases. A plot without data is left out.
        level: How real its numbers are, or a function of the data; printed in the corner.
        size: Width and height in inches.
    """

    key: str
    title: str
    shows: str
    expected: str
    claims: Sequence[str] = ()
    draw: Callable[[Figure, Any], None]
    data: Callable[[Any], Any] = lambda cases: cases
    level: str | Callable[[Any], str] = Level.VIRTUAL
    size: tuple[float, float] = (6.4, 4.0)

    @property
    def caption_key(self) -> str:
        """The key up to the first `-`: plots that share it share a caption."""
        return self.key.partition("-")[0]


class Drawing(NamedTuple):
    """A plot with its data."""

    plot: Plot
    data: Any  # data that the plot draws

    @property
    def level(self) -> str:
        return self.plot.level(self.data) if callable(self.plot.level) else self.plot.level

    def draw(self, figure: Figure) -> None:
        """Draws the data into an empty figure."""
        self.plot.draw(figure, self.data)


class PlotFiles(NamedTuple):
    """A drawing, its caption and its files."""

    drawing: Drawing
    caption: str
    png: pathlib.Path
    svg: pathlib.Path


def check_available() -> None:
    """Raises UsageError where matplotlib is not installed; imports nothing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "experiments draw plots, and matplotlib is not installed; run `make experiments`, or install it by `pip"
            " install 'ps_trainer[plots]'`"
        )


def save(drawing: Drawing, caption: str, folder: pathlib.Path, name: str = "") -> PlotFiles:
    """Saves a drawing as `<folder>/<name>.png` and `.svg`, and keeps its caption; the name is its key by default."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    name = name or drawing.plot.key
    files = PlotFiles(drawing, caption, folder / f"{name}.png", folder / f"{name}.svg")
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=drawing.plot.size)
        FigureCanvasAgg(figure)
        figure.get_layout_engine().set(rect=(0.0, 0.03, 1.0, 0.97))  # the level stands below
        drawing.draw(figure)
        figure.suptitle(drawing.plot.title, fontsize=10)
        figure.text(0.995, 0.003, drawing.level, ha="right", va="bottom", fontsize=7, color="0.4")
        write_figure(figure, files.png, "png")
        write_figure(figure, files.svg, "svg")
    return files


def draw_estimates(
    axis: Axes, places: Sequence[float], estimates: Sequence[tuple[float, Interval | None]], **style: Any
) -> None:
    """Draws values, with bars over their intervals.

    Args:
        axis: Axis.
        places: Place of each value on the x axis.
        estimates: Values, each with its interval if it has one; its finite ends are drawn.
        **style: Arguments of `Axes.errorbar`, with colour, marker and label; values are not joined unless it says so.
    """

    def bar(value: float, end: float) -> float:
        return abs(end - value) if math.isfinite(end) else 0.0

    bars = [[bar(value, ends[side] if ends else value) for value, ends in estimates] for side in (0, 1)]
    style = {"ls": "none", "mfc": "none", "lw": 1, "capsize": 2} | style
    axis.errorbar(places, [value for value, _ in estimates], bars, **style)


def finish(axis: Axes, x: str = "", y: str = "", *, log: str = "", base: int = 2, **legend: Any) -> None:
    """Labels an axis after its data are drawn, and adds a legend.

    Args:
        axis: Axis.
        x: Label of the x axis.
        y: Label of the y axis.
        log: Axes with a logarithmic scale and plain numbers: "", "x", "y" or "xy".
        base: Base of the scale.
        **legend: Arguments of `Axes.legend`.
    """
    if "x" in log:
        axis.set_xscale("log", base=base)
        axis.xaxis.set_major_formatter("{x:g}")
    if "y" in log:
        axis.set_yscale("log", base=base)
        axis.yaxis.set_major_formatter("{x:g}")
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.legend(**legend)


def finish_grid(figure: Figure, x: str, y: str, **legend: Any) -> None:
    """Labels a grid of axes, and adds a legend to its first one where arguments of `Axes.legend` are given."""
    figure.supxlabel(x, fontsize=9)
    figure.supylabel(y, fontsize=9)
    if legend:
        figure.axes[0].legend(**legend)
