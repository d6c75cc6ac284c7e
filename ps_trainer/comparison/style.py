"""The style of all plots, as settings of matplotlib: those of `compare` and `plot`, and those of the experiments."""

from __future__ import annotations

STYLE = {
    "figure.constrained_layout.use": True,
    "axes.grid": True,
    "axes.axisbelow": True,  # the grid is behind bars
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small files, and words that can be searched for
    "svg.hashsalt": "ps_trainer",  # the same plot is the same file
}
