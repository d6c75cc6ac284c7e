"""The plots of the experiment on bounded staleness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ps_trainer.experiments.bounded_staleness import training as bounded_training
from ps_trainer.experiments.bounded_staleness.cases import Case, by_cluster
from ps_trainer.experiments.frame.base import Level
from ps_trainer.experiments.frame.plots import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plots(cases: Sequence[Case], arms: Sequence[bounded_training.Arm]) -> list[Plot]:
    """All plots; those without cases, or arms, are left out."""
    return [*(_timing_plots(cases) if cases else ()), *([_training_plot(arms)] if arms else ())]


def _timing_plots(cases: Sequence[Case]) -> list[Plot]:
    level = Level.VIRTUAL.value
    return [
        Plot(
            key="shares",
            title="Where the workers' time goes, by the bound on their lead",
            level=level,
            draw=lambda figure: _draw_shares(figure, cases),
            size=(8.0, 5.2),
        ),
        Plot(
            key="rates",
            title="Clock rate against the bound",
            level=level,
            draw=lambda figure: _draw_rates(figure, cases),
        ),
    ]


def _training_plot(arms: Sequence[bounded_training.Arm]) -> Plot:
    return Plot(
        key="objective",
        title=f"Updates and time to a test loss of {bounded_training.TARGET_LOSS:g}, by the bound",
        level=Level.VIRTUAL.value,
        draw=lambda figure: bounded_training.draw(figure, arms),
        size=(8.0, 3.6),
    )


def _draw_shares(figure: Figure, cases: Sequence[Case]) -> None:
    clusters = by_cluster(cases)
    axes = figure.subplots(2, 3, sharey=True).flat
    for axis in axes[len(clusters) :]:
        axis.set_axis_off()
    for axis, (name, own) in zip(axes, clusters.items(), strict=False):
        waiting = [case.wait_share for case in own.values()]
        places = range(len(own))
        axis.bar(places, [1 - share for share in waiting], color="tab:blue", label="computes")
        axis.bar(places, waiting, bottom=[1 - share for share in waiting], color="tab:red", alpha=0.6, label="waits")
        predicted = [1 - case.predicted_wait_share for case in own.values()]
        axis.plot(places, predicted, "k_", ms=14, label="A17")
        _name_bounds(axis, list(own))
        axis.set_title(name, fontsize=8)
    figure.axes[0].legend(fontsize=6, loc="lower right", frameon=True)
    figure.supxlabel("bound s on the lead, in clocks", fontsize=9)
    figure.supylabel("share of the workers' time", fontsize=9)


def _draw_rates(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    for name, own in by_cluster(cases).items():
        bounded = [case for case in own.values() if case.bound is not None]
        places = range(len(bounded))
        (line,) = axis.plot(places, [case.predicted for case in bounded], lw=1)
        axis.plot(places, [case.rate for case in bounded], "o", mfc="none", color=line.get_color(), label=name)
    bounds = [case.bound for case in next(iter(by_cluster(cases).values())).values() if case.bound is not None]
    _name_bounds(axis, bounds)
    axis.set_ylim(0, 1.05)
    axis.set_xlabel("bound s on the lead, in clocks; lines: A17")
    axis.set_ylabel("clocks of a worker per mean step")
    axis.legend(fontsize=7)


def _name_bounds(axis: Axes, bounds: Sequence[int | None]) -> None:
    axis.set_xticks(range(len(bounds)), ["∞" if bound is None else str(bound) for bound in bounds])
