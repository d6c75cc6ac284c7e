"""The plots of the experiment on staleness and model quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ps_trainer.experiments.frame.base import Level
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.lab import quadratic
from ps_trainer.experiments.lab.statistics import spread
from ps_trainer.experiments.staleness_quality.cases import CONSTANT, DEPTHS, GEOMETRIC, KINDS, UNIFORM, Case, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = {CONSTANT: "s", UNIFORM: "^", GEOMETRIC: "o"}


def plots(cases: Sequence[Case], rates: Mapping[str, Mapping[int, float]], fixed_rate: float) -> list[Plot]:
    """All plots."""
    level = Level.VIRTUAL.value
    at_fixed = select(cases, lr=fixed_rate)
    by_depth = [one for depth in DEPTHS for one in select(cases, kind=CONSTANT, depth=depth, lr=fixed_rate)]
    return [
        Plot(
            key="boundary",
            title="Largest stable learning rate on a quadratic",
            level=level,
            caption=(
                "With constant staleness the rates lie on the exact line and fall as 1/(1 + τ); with uniform staleness"
                " they lie about half above it, in parallel. With geometric staleness they fall as 1/√(1 + τ) only."
            ),
            draw=lambda figure: _draw_boundary(figure, rates),
        ),
        Plot(
            key="grid",
            title="Updates to the target, one hidden layer, constant staleness",
            level=level,
            caption=(
                "Each cell is the median of the updates; dark is many, empty is a rate at which most runs do not reach"
                " the target. The empty corner of large rates grows as the staleness does."
            ),
            draw=lambda figure: _draw_grid(figure, select(cases, kind=CONSTANT)),
        ),
        Plot(
            key="updates",
            title=f"Updates to the target at the learning rate {fixed_rate:g}",
            level=level,
            caption=(
                "The updates rise with the staleness, with bars from the 10th to the 90th percentile. At the top are"
                " runs that gave up. Constant staleness costs most, geometric staleness of the same mean least."
            ),
            draw=lambda figure: _draw_kinds(figure, at_fixed),
        ),
        Plot(
            key="depth",
            title=f"Slowdown by staleness and depth at the learning rate {fixed_rate:g}",
            level=level,
            caption=(
                "The more hidden layers, the earlier and the steeper the line rises; that of softmax regression hardly"
                " does."
            ),
            draw=lambda figure: _draw_depths(figure, by_depth),
        ),
    ]


def _draw_boundary(figure: Figure, rates: Mapping[str, Mapping[int, float]]) -> None:
    axis = figure.add_subplot()
    taus = np.array(sorted(rates[CONSTANT]))
    axis.plot(1 + taus, [quadratic.largest_stable_rate(tau) for tau in taus], "k-", lw=1, label="exact, constant")
    axis.plot(1 + taus, 1.8 / np.sqrt(1 + taus), "k:", lw=1, label="1.8 / √(1 + τ)")
    for kind, by_tau in rates.items():
        axis.plot([1 + tau for tau in by_tau], list(by_tau.values()), _MARKERS[kind], mfc="none", label=kind)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("1 + τ, mean staleness in updates")
    axis.set_ylabel("largest stable learning rate")
    axis.legend()


def _draw_grid(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    taus, rates = sorted({case.tau for case in cases}), sorted({case.lr for case in cases})
    updates = np.full((len(taus), len(rates)), np.nan)
    for case in cases:
        if not case.is_lost:
            updates[taus.index(case.tau), rates.index(case.lr)] = case.median
    image = axis.imshow(updates, origin="lower", aspect="auto", cmap="viridis_r")
    for (row, column), value in np.ndenumerate(updates):
        axis.text(column, row, "–" if np.isnan(value) else f"{value:.0f}", ha="center", va="center", fontsize=7)
    axis.grid(visible=False)
    axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axis.set_yticks(range(len(taus)), [str(tau) for tau in taus])
    axis.set_xlabel("learning rate")
    axis.set_ylabel("staleness in updates")
    figure.colorbar(image, label="updates")


def _draw_kinds(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    for kind in KINDS:
        own = sorted((case for case in cases if case.kind == kind or case.tau == 0), key=lambda case: case.tau)
        spreads = [spread(case.updates) for case in own]
        low = [one.median - one.p10 for one in spreads]
        high = [one.p90 - one.median for one in spreads]
        axis.errorbar(
            [case.tau for case in own], [one.median for one in spreads], (low, high), fmt=f"{_MARKERS[kind]}-",
            mfc="none", lw=1, capsize=2, label=kind,
        )  # fmt: skip
    axis.set_xlabel("mean staleness in updates")
    axis.set_ylabel("updates to the target")
    axis.legend()


def _draw_depths(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    for depth in sorted({case.depth for case in cases}):
        own = sorted((case for case in cases if case.depth == depth), key=lambda case: case.tau)
        axis.plot(
            [case.tau for case in own], [case.median / own[0].median for case in own], "o-", mfc="none", lw=1,
            label=f"{depth} hidden layers" if depth else "softmax regression",
        )  # fmt: skip
    axis.set_xlabel("staleness in updates")
    axis.set_ylabel("updates over those without staleness")
    axis.legend()
