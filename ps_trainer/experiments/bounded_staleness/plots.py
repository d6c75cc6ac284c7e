"""The plots of the experiment on bounded staleness, and the words below them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, draw_estimates, finish, finish_grid
from ps_trainer.experiments.toolkit import looks, real_clusters
from ps_trainer.experiments.toolkit.statistics import Interval, IntervalEstimate, median_interval

from .cases import RealBound, TimedBound, TrainedBound, by_cluster
from .records import TARGET_LOSS


def _draw_shares(figure: Figure, cases: Sequence[TimedBound]) -> None:
    clusters = by_cluster(cases)
    axes = figure.subplots(2, 3, sharey=True).flat
    for axis in axes[len(clusters) :]:
        axis.set_axis_off()
    for axis, (name, cluster_cases) in zip(axes, clusters.items(), strict=False):
        waiting = [case.wait_share for case in cluster_cases.values()]
        positions = range(len(cluster_cases))
        axis.bar(positions, [1 - share for share in waiting], color=looks.COMPUTES, label="computes")
        axis.bar(positions, waiting, bottom=[1 - share for share in waiting], color=looks.WAITS, label="waits")
        predicted = [1 - case.predicted_wait_share for case in cluster_cases.values()]
        axis.plot(positions, predicted, "k_", ms=14, label="model")
        computing = [case.mean_of_seeds(lambda one: 1 - one.wait_share) for case in cluster_cases.values()]
        draw_estimates(axis, positions, computing, color="0.3")
        _name_bounds(axis, list(cluster_cases))
        axis.set_title(name, fontsize=8)
    finish_grid(
        figure,
        "bound s on the lead, in clocks",
        "share of the workers' time",
        fontsize=6,
        loc="lower right",
        frameon=True,
    )


def _draw_rates(figure: Figure, cases: Sequence[TimedBound]) -> None:
    axis = figure.add_subplot()
    for name, cluster_cases in by_cluster(cases).items():
        bounded = [case for case in cluster_cases.values() if case.bound is not None]
        positions = range(len(bounded))
        colour, style = looks.SHAPE_COLOURS[bounded[0].shape], "--" if bounded[0].is_slow else "-"
        look = {"marker": looks.SHAPE_MARKERS[bounded[0].shape], "mfc": "none" if bounded[0].n == 4 else colour}
        axis.plot(positions, [case.predicted for case in bounded], style, lw=1, color=colour)
        rates = [case.mean_of_seeds(lambda one: one.rate) for case in bounded]
        draw_estimates(axis, positions, rates, color=colour, label=name, **look)
    bounds = [case.bound for case in next(iter(by_cluster(cases).values())).values() if case.bound is not None]
    _name_bounds(axis, bounds)
    axis.set_ylim(0, 1.05)
    finish(axis, "bound s on the lead, in clocks; lines: the model", "clocks of a worker per mean step", fontsize=7)


def _draw_objective(figure: Figure, cases: Sequence[TrainedBound]) -> None:
    for axis, of, unit in zip(figure.subplots(1, 2), ("updates", "time"), ("", " / mean step"), strict=True):
        medians = [IntervalEstimate(*median_interval([*case.at_others_rate(of).values()])) for case in cases]
        known = {place: one for place, one in enumerate(medians) if math.isfinite(one.value)}
        draw_estimates(axis, list(known), list(known.values()), marker="o", color=looks.MEASURED)
        for place in set(range(len(cases))) - set(known):
            axis.annotate("not reached", (place, 0.5), xycoords=("data", "axes fraction"), rotation=90, ha="center")
        _name_bounds(axis, [case.bound for case in cases])
        axis.set_ylim(bottom=0)
        axis.set_xlabel("bound s on the lead, in clocks")
        axis.set_ylabel(f"{of} to the objective{unit}")


def _draw_real(figure: Figure, cases: Sequence[RealBound]) -> None:
    axis = figure.add_subplot()
    positions, bottom = range(len(cases)), np.zeros(len(cases))
    for name, colour in (
        ("computes", looks.COMPUTES),
        ("communicates", looks.COMMUNICATES),
        ("waits", looks.WAITS),
    ):
        shares = np.array([case.median(name) for case in cases])
        axis.bar(positions, shares, bottom=bottom, color=colour, label=name)
        bottom += shares
    computing = [
        IntervalEstimate(1 - value, ends and Interval(1 - ends.high, 1 - ends.low))
        for value, ends in (case.pair("waits").measured_mean for case in cases)
    ]
    draw_estimates(axis, positions, computing, color="0.3")
    axis.plot(
        positions, [1 - case.pair("waits").simulated for case in cases], "k_", ms=20, label="waits above, simulated"
    )
    _name_bounds(axis, [case.bound for case in cases])
    finish(axis, "bound s on the lead, in clocks", "share of the workers' time", loc="lower right", frameon=True)


def _name_bounds(axis: Axes, bounds: Sequence[int | None]) -> None:
    axis.set_xticks(range(len(bounds)), ["∞" if bound is None else str(bound) for bound in bounds])


OF_TIMING = (
    Plot(
        key="shares",
        title="Where the workers' time goes, by the bound on their lead",
        shows="Each bar is a worker's time, split into computing and waiting; marks: the model (A17);"
        " grey bars: 90 % intervals.",
        expected="the waiting part is largest at s = 0 and shrinks with each further clock of lead, most with the"
        " first ones; with one slow worker no finite bound helps.",
        claims=("wait", "falls", "few"),
        draw=_draw_shares,
        size=(8.0, 5.2),
    ),
    Plot(
        key="rates",
        title="Clock rate against the bound",
        shows="Markers: clocks of a worker per mean step, against the bound, with 90 % intervals, hollow for 4 workers"
        " and filled for 8; lines: the model (A17), dashed with a slow worker. 1 is the rate without a bound and"
        " without a slow worker.",
        expected="markers on their lines, which rise most with the first clocks of lead; with one slow worker a flat"
        " line at its rate, 0.25.",
        claims=("barrier", "free", "permanent"),
        draw=_draw_rates,
    ),
)

OF_TRAINING = (
    Plot(
        key="objective",
        title=f"Updates and time to a test loss of {TARGET_LOSS:g}, by the bound",
        shows="Median of the updates, and of the time in mean steps, until the test loss is reached, each bound at the"
        " learning rate that the other seeds choose, with 90 % intervals.",
        expected="more updates with a larger bound, and the least time with a finite bound above 0.",
        claims=("work", "interior"),
        draw=_draw_objective,
        size=(8.0, 3.6),
    ),
)

OF_REAL_CLUSTERS = (
    Plot(
        key="real_shares",
        title="Where the workers' time goes on a real cluster, by the bound on their lead",
        shows="Each bar is the time of the workers of a real cluster: medians of the shares of computing,"
        " communicating and waiting, which need not add up to 1. Marks: where waiting begins in simulations with the"
        " same delays; grey bars: 90 % intervals of where it begins on the cluster.",
        expected="waiting is largest at s = 0 and shrinks with each clock of lead, as in the simulation; communicating"
        " does not depend on the bound.",
        claims=("real_wait",),
        draw=_draw_real,
        data=lambda cases: [case for case in cases if case.timed()],
        level=real_clusters.LEVEL,
    ),
)
