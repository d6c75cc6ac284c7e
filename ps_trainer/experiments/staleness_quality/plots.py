"""The plots of the experiment on staleness and model quality, and the words below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, finish
from ps_trainer.experiments.toolkit import looks, quadratic
from ps_trainer.experiments.toolkit.statistics import spread

from .cases import FIXED_RATE, Kind, StaleTraining, by_depth, select

_MARKERS: dict[str, str] = {Kind.CONSTANT: "s", Kind.UNIFORM: "^", Kind.GEOMETRIC: "o"}


def _draw_boundary(figure: Figure, rates: Mapping[str, Mapping[int, float]]) -> None:
    axis = figure.add_subplot()
    taus = np.array(sorted(rates[Kind.CONSTANT]))
    axis.plot(1 + taus, [quadratic.largest_stable_rate(tau) for tau in taus], "k-", lw=1, label="exact, constant")
    axis.plot(1 + taus, 1.8 / np.sqrt(1 + taus), "k:", lw=1, label="1.8 / √(1 + τ)")
    for kind, by_tau in rates.items():
        axis.plot([1 + tau for tau in by_tau], list(by_tau.values()), _MARKERS[kind], mfc="none", label=kind)
    finish(axis, "1 + τ, τ the mean staleness in updates", "largest stable learning rate", log="xy")


def _draw_grid(figure: Figure, cases: Sequence[StaleTraining]) -> None:
    axis = figure.add_subplot()
    taus, rates = sorted({case.tau for case in cases}), sorted({case.lr for case in cases})
    updates = np.full((len(taus), len(rates)), np.nan)
    for case in cases:
        if not case.is_lost:
            updates[taus.index(case.tau), rates.index(case.lr)] = case.median
    image = axis.imshow(updates, origin="lower", aspect="auto", cmap="viridis_r")
    for (row, column), value in np.ndenumerate(updates):
        text = "–" if np.isnan(value) else f"{value:.0f}"
        is_dark = image.norm(value) > 0.5 if not np.isnan(value) else False
        axis.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if is_dark else "black")
    axis.grid(visible=False)
    axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axis.set_yticks(range(len(taus)), [str(tau) for tau in taus])
    axis.set_xlabel("learning rate")
    axis.set_ylabel("staleness in updates")
    figure.colorbar(image, label="updates")


def _draw_kinds(figure: Figure, cases: Sequence[StaleTraining]) -> None:
    axis = figure.add_subplot()
    for kind, size in zip(Kind, (15, 10, 5), strict=True):  # equal values are drawn around each other
        kind_cases = sorted((case for case in cases if case.kind == kind or case.tau == 0), key=lambda case: case.tau)
        reached = [case for case in kind_cases if not case.is_lost]
        medians, p10, p90 = np.array([spread(case.updates) for case in reached]).reshape(-1, 3).T
        style = {"fmt": f"{_MARKERS[kind]}-", "mfc": "none", "lw": 1, "capsize": 2, "label": kind}
        bars = axis.errorbar([case.tau for case in reached], medians, (medians - p10, p90 - medians), **style)
        _mark_lost(axis, kind_cases, 1.0, bars.lines[0].get_color(), size)
    _name_lost(axis, cases)
    finish(axis, "mean staleness in updates", "updates to the target")


def _draw_depths(figure: Figure, cases: Sequence[StaleTraining]) -> None:
    axis = figure.add_subplot()
    for depth, colour in looks.shades(case.depth for case in cases).items():
        depth_cases = sorted((case for case in cases if case.depth == depth), key=lambda case: case.tau)
        unit = depth_cases[0].median
        reached = [case for case in depth_cases if not case.is_lost]
        name = f"{depth} hidden layer{'s' if depth > 1 else ''}" if depth else "softmax regression"
        slowdowns = [case.median / unit for case in reached]
        axis.plot([case.tau for case in reached], slowdowns, "o-", mfc="none", lw=1, color=colour, label=name)
        _mark_lost(axis, depth_cases, unit, colour)
    _name_lost(axis, cases)
    finish(axis, "staleness in updates", "updates over those without staleness")


def _mark_lost(axis: Axes, cases: Sequence[StaleTraining], unit: float, colour: str, size: int = 9) -> None:
    """Draws a triangle, joined to nothing, where most runs gave up: the value is that much or more."""
    lost = [case for case in cases if case.is_lost]
    slowdowns = [case.median / unit for case in lost]
    axis.plot([case.tau for case in lost], slowdowns, "^", ms=size, mfc="none", mew=1.5, color=colour)


def _name_lost(axis: Axes, cases: Sequence[StaleTraining]) -> None:
    if any(case.is_lost for case in cases):
        axis.plot([], [], "^", ms=9, mfc="none", mew=1.5, color="0.4", label="or more: most runs gave up")


OF_QUADRATIC = (
    Plot(
        key="boundary",
        title="Largest stable learning rate on a quadratic",
        shows="Largest stable learning rate against one plus the mean staleness τ, both axes logarithmic; black line:"
        " the exact rate for constant staleness; dotted: 1.8/√(1 + τ).",
        expected="constant staleness on the exact line, uniform staleness above it, both falling about as 1/(1 + τ),"
        " and so the geometric one.",
        claims=("exact", "boundary", "boundary_geometric"),
        draw=_draw_boundary,
    ),
)

OF_TRAINING = (
    Plot(
        key="grid",
        title="Updates to the target, one hidden layer, constant staleness",
        shows="Each cell is the median of the updates to the target; a dash: most runs do not reach the target.",
        expected="a corner of dashes at large rates and large staleness.",
        claims=("slower",),
        draw=_draw_grid,
        data=lambda cases: select(cases, kind=Kind.CONSTANT),
    ),
    Plot(
        key="updates",
        title=f"Updates to the target at the learning rate {FIXED_RATE:g}",
        shows="Median of the updates to the target, bars from the 10th to the 90th percentile. Triangles at the cap:"
        " most runs gave up there, so their updates are that many or more.",
        expected="the updates rise with the staleness; the same mean costs most when it is constant.",
        claims=("slower",),
        draw=_draw_kinds,
        data=lambda cases: select(cases, lr=FIXED_RATE),
    ),
    Plot(
        key="depth",
        title=f"Slowdown by staleness and depth at the learning rate {FIXED_RATE:g}",
        shows="Median of the updates over those of the same model without staleness. Triangles: most runs gave up"
        " there, so the true value is that much or more.",
        expected="the more hidden layers, the earlier and the steeper the line rises.",
        claims=("depth",),
        draw=_draw_depths,
        data=by_depth,
    ),
)
