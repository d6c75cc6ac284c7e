"""The style of all plots, and how they are written: those of `compare` and `plot`, and those of the experiments."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette by Okabe and Ito, which colour-blind readers can tell apart.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = PALETTE

STYLE = {
    "figure.constrained_layout.use": True,
    "axes.grid": True,
    "axes.prop_cycle": f"cycler('color', {PALETTE})",
    "axes.axisbelow": True,  # the grid is behind bars
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small files, and words that can be searched for
    "svg.hashsalt": "ps_trainer",  # the same plot is the same file
}
"""Settings of matplotlib, which reads some of them when a figure is drawn and some when it is written."""

_PNG_DPI = 110


def write_figure(figure: Figure, file: pathlib.Path | BinaryIO, form: str) -> None:
    """Writes a figure as "png" or "svg". The first call computes its layout, and later ones keep this layout."""
    figure.savefig(file, format=form, dpi=_PNG_DPI, metadata={"Date": None} if form == "svg" else None)
    figure.set_layout_engine("none")  # a second layout would be the same, and takes as long as the drawing
