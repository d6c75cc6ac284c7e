"""The plots of the experiment on backup workers, and the words below them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, draw_estimates, finish, finish_grid
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit import looks
from ps_trainer.experiments.toolkit.real_clusters import LEVEL
from ps_trainer.experiments.toolkit.step_times import Shape

from .cases import RealBarrier, Sweep, Timings
from .claims import PUBLISHED
from .records import NUM_NEEDED, OF_50, OF_100, QUANTILES, Rule

_COLOURS: dict[str, str] = {Rule.TOKENS: looks.TOKEN_QUEUE, Rule.BARRIER: looks.SYNC}
_LONGEST_SHOWN = 3  # mean steps per update, with a slow worker
_MARKERS: dict[str, str] = {Rule.TOKENS: "D", Rule.BARRIER: "o"}
_REAL_LOOKS = {  # colour, marker, line
    Rule.BARRIER: (looks.SYNC, "o", "-"),
    Rule.REPLICAS: (looks.SYNC, "s", "--"),
    Rule.STOCK: (looks.TOKEN_QUEUE, "D", "-"),
}
_OF_PAPER = (Shape.NARROW, Shape.MODERATE, Shape.SHIFTED)
_SHOWN = (Shape.EXPONENTIAL, Shape.MODERATE, Shape.SHIFTED, Shape.SPIKES, Shape.PARETO, Shape.PERSISTENT)
_PAPER_SIZES = (OF_50, OF_100)


def _of_8(timings: Timings) -> list[Sweep]:
    return timings.where(sizes=["N = 8"])


def _draw_steps(figure: Figure, sweeps: Sequence[Sweep]) -> None:
    for axis, shape, shape_cases in _panels(figure, sweeps):
        for sweep in shape_cases:
            backups = [case.num_backups for case in sweep.cases]
            colour, name = _COLOURS[sweep.rule], sweep.rule.words
            marker = _MARKERS[sweep.rule]
            axis.plot(backups, [case.step for case in sweep.cases], marker, mfc="none", color=colour, label=name)
            p10, p90 = [case.p10 for case in sweep.cases], [case.p90 for case in sweep.cases]
            axis.fill_between(backups, p10, p90, color=colour, alpha=0.12, lw=0)
            known = [case for case in sweep.cases if case.predicted is not None]
            style = {"lw": 0.8, "color": colour, "label": f"{name}, model"}
            axis.plot([case.num_backups for case in known], [case.predicted for case in known], "x-", **style)
        known = [case for case in shape_cases[0].cases if case.cancelled is not None]
        axis.plot([c.num_backups for c in known], [c.cancelled for c in known], "k--", lw=0.8, label="order statistic")
        axis.set_ylim(bottom=0)
        if shape == Shape.PERSISTENT:
            axis.set_ylim(0, _LONGEST_SHOWN)
    finish_grid(figure, "backup workers", "time per update / mean step; shaded: p10 to p90", fontsize=6)


def _draw_real(figure: Figure, cases: Sequence[RealBarrier]) -> None:
    shapes = list(dict.fromkeys(case.shape for case in cases))
    for axis, shape in zip(figure.subplots(1, len(shapes), squeeze=False)[0], shapes, strict=True):
        for rule, (colour, marker, line) in _REAL_LOOKS.items():
            own = sorted(
                (case for case in cases if (case.shape, case.rule) == (shape, rule)), key=lambda case: case.num_backups
            )
            backups, steps = [case.num_backups for case in own], [case.pair("step") for case in own]
            if own:
                measured = [step.measured_mean for step in steps]
                draw_estimates(axis, backups, measured, marker=marker, color=colour, label=rule.words)
                style = {"lw": 0.8, "color": colour, "label": f"{rule.words}, simulated"}
                axis.plot(backups, [step.simulated for step in steps], f"x{line}", **style)
        axis.set_ylim(bottom=0)
        axis.set_title(shape, fontsize=8)
        axis.xaxis.get_major_locator().set_params(integer=True)
    finish_grid(figure, "backup workers", "time per update / mean step", fontsize=6)


def _draw_speedups(figure: Figure, sweeps: Sequence[Sweep]) -> None:
    for axis, _, own in _panels(figure, sweeps):
        for sweep in own:
            _plot_speedup(axis, sweep, sweep.rule.words, marker=_MARKERS[sweep.rule], color=_COLOURS[sweep.rule])
        axis.axhline(1.0, color="black", lw=0.8)
    finish_grid(figure, "backup workers", "normalised speed-up", fontsize=6)


def _draw_large(figure: Figure, sweeps: Sequence[Sweep]) -> None:
    gain = next(one for one in PUBLISHED if "speed-up" in one.what)
    for axis, size in zip(figure.subplots(1, 2), _PAPER_SIZES, strict=True):
        for sweep in (one for one in sweeps if one.size == size and one.shape in _OF_PAPER):
            _plot_speedup(axis, sweep, sweep.shape, **looks.of_shape(sweep.shape))
        axis.axhline(1.0, color="black", lw=0.8)
        axis.set_title(size, fontsize=8)
    left, right = figure.axes
    left.plot([3], [gain.value], "k*", ms=9, label=gain.origin)
    best = next(one for one in PUBLISHED if "among 100" in one.what)
    right.axvline(best.value, color="black", lw=0.8, ls=":", label=f"best, {best.origin}")
    finish(left, "backup workers", "token queue's normalised speed-up", fontsize=6)
    finish(right, "backup workers", fontsize=6)


def _draw_arrivals(figure: Figure, results: Results) -> None:
    axis = figure.add_subplot()
    arrivals = results[0].figures.arrivals
    shades = looks.shades(map(int, arrivals))
    for k, colour in shades.items():
        axis.plot(arrivals[str(k)], np.array(QUANTILES) / 100, color=colour, lw=1.2, label=f"k = {k}")
    finish(axis, "time since the update before / mean step", "share of updates", fontsize=7)


def _panels(figure: Figure, sweeps: Sequence[Sweep]) -> list[tuple[Axes, str, list[Sweep]]]:
    """Makes one axis for each kind of step times."""
    groups = {shape: [sweep for sweep in sweeps if sweep.shape == shape] for shape in _SHOWN}
    groups = {shape: shape_cases for shape, shape_cases in groups.items() if shape_cases}
    num_rows = 1 + (len(groups) - 1) // 3
    axes = figure.subplots(num_rows, min(3, len(groups)), squeeze=False, sharex=True).flat
    for axis in axes[len(groups) :]:
        axis.set_axis_off()
    panels: list[tuple[Axes, str, list[Sweep]]] = []
    for axis, (shape, shape_cases) in zip(axes, groups.items(), strict=False):
        axis.set_title(shape, fontsize=8)
        axis.xaxis.get_major_locator().set_params(integer=True)
        panels.append((axis, shape, shape_cases))
    return panels


def _plot_speedup(axis: Axes, sweep: Sweep, label: str, **style: str) -> None:
    backups = [case.num_backups for case in sweep.cases]
    draw_estimates(axis, backups, list(map(sweep.speedup_estimate, sweep.cases)), ls="-", label=label, **style)


def _arrivals_plot(size: str, shape: str) -> Plot:
    return Plot(
        key=f"arrivals-{size.replace(' ', '')}",
        title=f"Arrival of an update's k-th gradient: {size}, {shape} steps",
        shows="Without backup workers: share of updates of which the k-th gradient has arrived, against the time since"
        " the update before; drawn through the 5th to 95th percentiles, minimum and maximum.",
        expected="the curves of the last gradients stand further apart than those of the first ones: an update waits"
        " longest for its last few gradients.",
        draw=_draw_arrivals,
        data=lambda timings: timings.alone.where(size=size, shape=shape),
    )


OF_TIMINGS = (
    Plot(
        key="step_times",
        title="Time per update against backup workers, N = 8",
        shows="Median over seeds of the mean time per update against backup workers, a panel for each kind of step"
        " times; shaded: 10th to 90th percentile of updates; crosses: models of each rule; dashed: stragglers that are"
        f" cancelled (A3). The panel of one slow worker shows times up to {_LONGEST_SHOWN} mean steps."
        " Without backup workers its update takes as long as the slow worker's step.",
        expected="the time falls most with the first backup worker and less with each further one; hollow markers"
        " on the crosses of their rule, and above the dashed line but for the slow worker.",
        claims=("falls", "prediction"),
        draw=_draw_steps,
        data=_of_8,
        size=(8.0, 5.2),
    ),
    Plot(
        key="speedups",
        title="Normalised speed-up, N = 8",
        shows="Speed-up over no backup workers, with the work of the backup workers counted: t(0)/t(b) · N/(N + b)."
        " Black line: no gain.",
        expected="with heavy tails a highest point above 1 at some backup workers; with shifted exponential steps no"
        " point above 1.",
        claims=("pays", "interior", "light"),
        draw=_draw_speedups,
        data=_of_8,
        size=(8.0, 5.2),
    ),
    Plot(
        key="paper_scale",
        title="Normalised speed-up at the papers' numbers of workers",
        shows="Speed-up over no backup workers, with their work counted, as above for N = 8, of the token queue with"
        " the papers' numbers of workers. Star and dotted line: what was published.",
        expected="with 50 workers a point above 1 for shifted exponential steps, too.",
        claims=("size",),
        draw=_draw_large,
        data=lambda timings: timings.where(sizes=_PAPER_SIZES, rule=Rule.TOKENS),
        size=(8.0, 3.8),
    ),
    _arrivals_plot("N = 8", Shape.EXPONENTIAL),
    _arrivals_plot(OF_100, Shape.NARROW),
)

OF_REAL_CLUSTERS = (
    Plot(
        key="real_step_times",
        title="Time per update of real clusters against backup workers",
        shows="Mean time per update of real clusters, with a marker for each rule: a true barrier, ours with a token"
        " queue for each worker, and TensorFlow's own class, with 90 % intervals. Crosses: simulations with the same"
        " delays.",
        expected="markers on the crosses, or a few percent above, for all step times and all numbers of backup"
        " workers.",
        claims=("real_time", "real_pays", "real_pays_exponential"),
        draw=_draw_real,
        data=lambda cases: [case for case in cases if case.shape != Shape.SHIFTED and case.num_needed == NUM_NEEDED],
        level=LEVEL,
        size=(8.0, 3.2),
    ),
)
