"""Plots: one style, PNG and SVG files of each. Needs the extra `plots`, which nothing else does."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness.captions import Caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = {
    "figure.constrained_layout.use": True,
    "axes.grid": True,
    "axes.axisbelow": True,  # the grid is behind bars
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "lines.markersize": 4.0,
    "svg.fonttype": "none",  # text stays text: small files, and words that can be searched for
    "svg.hashsalt": "ps_trainer",  # the same plot is the same file
}
_PNG_DPI = 110


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot.

    Attributes:
        key: name of its files; up to the first `-` also the key of its caption.
        title: what it shows.
        level: how real its numbers are: a `Level`'s words; drawn into the corner.
        draw: draws into an empty figure.
        size: width and height in inches.
    """

    key: str
    title: str
    level: str
    draw: Callable[[Figure], None]
    size: tuple[float, float] = (6.4, 4.0)


class PlotFiles(NamedTuple):
    """A plot, the words below it, and its files."""

    plot: Plot
    caption: Caption
    png: pathlib.Path
    svg: pathlib.Path


def check_available() -> None:
    """Raises UsageError where matplotlib is not installed; imports nothing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "experiments draw plots, and matplotlib is not installed; run `make experiments`, or install it by"
            " `pip install 'ps_trainer[plots]'`"
        )


def save(plot: Plot, caption: Caption, folder: pathlib.Path) -> PlotFiles:
    """Draws a plot into `<folder>/<key>.png` and `.svg`."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    files = PlotFiles(plot, caption, folder / f"{plot.key}.png", folder / f"{plot.key}.svg")
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=plot.size)
        FigureCanvasAgg(figure)
        figure.get_layout_engine().set(rect=(0.0, 0.03, 1.0, 0.97))  # the level stands below
        plot.draw(figure)
        figure.suptitle(plot.title, fontsize=10)
        figure.text(0.995, 0.003, plot.level, ha="right", va="bottom", fontsize=7, color="0.4")
        figure.savefig(files.png, dpi=_PNG_DPI)
        figure.savefig(files.svg, metadata={"Date": None})
    return files
