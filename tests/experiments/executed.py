"""Executes some runs of an experiment without the harness, and returns the findings on its claims."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps, colors, rc_context
from matplotlib.figure import Figure

from ps_trainer.comparison.style import PALETTE, STYLE
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.runs import Results, RunResult


def results_of(experiment, runs, folder):
    """`Results` of runs, executed one after the other, with the figures of those before that they need."""
    figures = {}
    for run in runs:
        needed = experiment.needed_by(run)
        figures[run.key] = _executed(experiment, run, folder, figures.get(needed.key) if needed else None)
    return Results(RunResult(run, figures[run.key], 0.1, None, folder) for run in runs)


def _executed(experiment, run, folder, needed):
    """The figures of a run; a run of processes says how many workers share its run delay."""
    measured = experiment.execute(run, folder, needed)
    num_workers = getattr(getattr(run.settings, "cluster", run.settings), "n", None)
    if measured.window is not None and isinstance(num_workers, int):
        assert measured.num_workers == num_workers, run
    return measured.figures


def planned(experiment, seeds, *, quick=False, level=None):
    """The runs that the experiment's parts plan, of a level; without those that only serve others (calibrations)."""
    runs = [run for part in experiment.parts for run in part.runs(seeds, quick=quick)]
    return [run for run in runs if level in (None, run.level)]


def findings_of(experiment, results):
    """Claim's key -> its finding, for the claims with at least one measurement."""
    checked = experiment.analyse(results).checked
    return {one.claim.key: one.finding for one in checked if one.finding is not ClaimFinding.NOT_TESTABLE}


def refuted(findings):
    """The keys of the refuted claims."""
    return {key for key, finding in findings.items() if finding is ClaimFinding.REFUTED}


_SHADES = {colors.to_hex(colour) for colour in colormaps["viridis"].colors}


def drawn(plots):
    """The keys of the plots, after drawing each on a throw-away figure.

    Points on a line must be in order of x, and each colour be one of the palette, a shade of a quantity, or grey.
    """
    for drawing in plots:
        figure = Figure()
        with rc_context(STYLE):
            drawing.draw(figure)
        for axis in figure.axes:
            for line in axis.get_lines():
                xs = [x for x in line.get_xdata() if isinstance(x, (int, float, np.number))]
                is_joined = line.get_linestyle() not in ("None", "none", "", " ")
                assert not is_joined or xs == sorted(xs), f"{drawing.plot.key}: {line.get_label()} goes back to {xs}"
                _check_colour(line.get_color(), drawing.plot.key)
            for patch in axis.patches:
                _check_colour(patch.get_facecolor(), drawing.plot.key)
    return [drawing.plot.key for drawing in plots]


def _check_colour(colour, key):
    red, green, blue = colors.to_rgb(colour)
    assert colors.to_hex(colour) in {*_SHADES, *map(str.lower, PALETTE)} or red == green == blue, f"{key}: {colour}"
