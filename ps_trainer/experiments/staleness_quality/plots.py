"""The plots of the experiment on staleness and model quality, and the words below them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.comparison.style import BLUE, GREEN, ORANGE, PURPLE
from ps_trainer.experiments.harness.plots import Figure, Plot, draw_estimates, finish
from ps_trainer.experiments.harness.targets import Samples, draw_samples
from ps_trainer.experiments.toolkit import looks, quadratic
from ps_trainer.experiments.toolkit.statistics import median_interval

from .cases import (
    MEAN_SQUARE,
    RateSearch,
    StaleTraining,
    select,
    slowdowns_by_depth,
    slowdowns_by_optimizer,
)
from .records import OPTIMIZER_TAU, OPTIMIZERS, Kind, RateChoice

_MARKERS: dict[str, str] = {Kind.CONSTANT: "p", Kind.UNIFORM: "h", Kind.GEOMETRIC: "*", MEAN_SQUARE: "d"}
_COLOURS = dict(zip(_MARKERS, (BLUE, ORANGE, GREEN, PURPLE), strict=True))
_LINES = {Kind.CONSTANT: "-", Kind.UNIFORM: "--", Kind.GEOMETRIC: ":"}


def _draw_boundary(figure: Figure, rates: Mapping[str, Mapping[int, float]]) -> None:
    axis = figure.add_subplot()
    taus = np.array(sorted(rates[Kind.CONSTANT]))
    axis.plot(1 + taus, [quadratic.largest_stable_rate(tau) for tau in taus], "k-", lw=1, label="exact, constant")
    axis.plot(1 + taus, math.sqrt(2) / np.sqrt(1 + taus), "k:", lw=1, label="√2 / √(1 + τ)")
    for kind, by_tau in rates.items():
        style = {"color": _COLOURS[kind], "ms": 7, "mfc": "none", "label": kind}
        axis.plot([1 + tau for tau in by_tau], list(by_tau.values()), _MARKERS[kind], **style)
    finish(axis, "1 + τ, τ the mean staleness in updates", "largest stable learning rate", log="xy")


def _draw_grid(figure: Figure, searches: Sequence[RateSearch]) -> None:
    axis = figure.add_subplot()
    (search,) = searches
    updates = np.array(
        [[search.figures.median(tau, place) for place in range(len(search.rates))] for tau in search.taus]
    )
    updates[~np.isfinite(updates)] = np.nan
    known = np.flatnonzero(np.isfinite(updates).any(axis=0))
    rates = search.rates[: known.max(initial=0) + 2]  # with the first rate at which nothing reached the target
    updates = updates[:, : len(rates)]
    image = axis.imshow(updates, origin="lower", aspect="auto", cmap="viridis_r")
    for (row, column), value in np.ndenumerate(updates):
        text = "–" if np.isnan(value) else f"{value:.0f}"
        is_dark = image.norm(value) > 0.5 if not np.isnan(value) else False
        axis.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if is_dark else "black")
    axis.grid(visible=False)
    axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axis.set_yticks(range(len(search.taus)), [str(tau) for tau in search.taus])
    axis.set_xlabel("learning rate")
    axis.set_ylabel("staleness in updates")
    figure.colorbar(image, label="updates")


def _draw_kinds(figure: Figure, cases: Sequence[StaleTraining]) -> None:
    axis = figure.add_subplot()
    for kind, size in zip(Kind, (15, 10, 5), strict=True):  # equal values are drawn around each other
        own = {case.tau: case.updates for case in cases if case.kind == kind or case.tau == 0}
        draw_samples(axis, own, size, label=kind, color=_COLOURS[kind], marker=_MARKERS[kind], ms=7, ls=_LINES[kind])
    finish(axis, "mean staleness in updates", "updates to the target")


def _draw_depths(figure: Figure, cases: Sequence[StaleTraining]) -> None:
    choices = [choice for choice in RateChoice if any(case.depth != 1 and case.choice == choice for case in cases)]
    axes = figure.subplots(1, len(choices), sharey=True, squeeze=False)[0]
    for axis, choice in zip(axes, choices, strict=True):
        by_depth = slowdowns_by_depth(cases, choice)
        shared = set.intersection(*(set(by_tau) for by_tau in by_depth.values()))  # τ that all depths have
        for depth, colour in looks.shades(by_depth).items():
            name = f"{depth} hidden layer{'s' if depth > 1 else ''}" if depth else "softmax regression"
            shown = {tau: one for tau, one in by_depth[depth].items() if tau in shared}
            draw_samples(axis, {0: Samples.known([1.0]), **shown}, label=name, marker="o", color=colour)
        axis.set_title(f"learning rate {choice}", fontsize=9)
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter("{x:g}")
        finish(axis, "staleness in updates", "slowdown" if axis is axes[0] else "")
    for axis in axes[:-1]:
        axis.get_legend().remove()  # all panels share that of the last one


def _draw_optimizers(figure: Figure, slowdowns: Mapping[str, Samples]) -> None:
    axis = figure.add_subplot()
    for place, samples in enumerate(slowdowns.values()):
        _, interval = median_interval(samples.bounds)
        style = {"marker": "^", "label": "or more: most runs gave up"} if samples.is_open else {"marker": "o"}
        draw_estimates(axis, [place], [(samples.median, interval)], color=looks.MEASURED, **style)
    axis.set_xticks(range(len(slowdowns)), [OPTIMIZERS[name] for name in slowdowns])
    axis.set_ylim(bottom=0)
    axis.set_ylabel("slowdown")
    if any(samples.is_open for samples in slowdowns.values()):
        axis.legend()


OF_QUADRATIC = (
    Plot(
        key="boundary",
        title="Largest stable learning rate on a quadratic",
        shows="Largest stable learning rate against one plus the mean staleness τ, both axes logarithmic; black line:"
        " the exact rate for constant staleness; dotted: √2/√(1 + τ). Stars: single sequences of geometric staleness;"
        " thin diamonds: the mean of the squares of many.",
        expected="constant staleness on the exact line, uniform staleness above it, both falling about as 1/(1 + τ);"
        " thin diamonds on the dotted line, stars above it.",
        claims=("exact", "exact_geometric", "boundary", "boundary_geometric"),
        draw=_draw_boundary,
    ),
)

OF_SEARCHES = (
    Plot(
        key="grid",
        title="Updates to the target, one hidden layer, constant staleness",
        shows="Each cell is the median of the updates to the target on three pilot seeds. A dash: most runs gave up, or"
        " every run did at a smaller rate.",
        expected="a corner of dashes at large rates and large staleness.",
        draw=_draw_grid,
        data=lambda searches: [one for one in searches if (one.depth, one.optimizer) == (1, "sgd")],
    ),
)

OF_TRAINING = (
    Plot(
        key="updates",
        title=f"Updates to the target at the learning rate {RateChoice.FIXED}",
        shows="Median of the updates to the target, bars from the 10th to the 90th percentile.",
        expected="the updates rise with the staleness; the same mean costs most when it is constant.",
        claims=("slower",),
        draw=_draw_kinds,
        data=lambda cases: select(cases, choice=RateChoice.FIXED),
    ),
    Plot(
        key="depth",
        title="Slowdown by staleness and depth",
        shows="Median over the seeds of the updates over those of the same seed without staleness, the vertical axis"
        " logarithmic, bars from the 10th to the 90th percentile. Left: one learning rate for all; right: for each"
        " model the same share of its fastest rate.",
        expected="the more hidden layers, the earlier and the steeper the line rises, in both panels.",
        claims=("depth_at_one_rate", "depth", "depth_of_perceptrons"),
        draw=_draw_depths,
        data=lambda cases: [case for case in cases if case.kind == Kind.CONSTANT],
        size=(8.0, 3.8),
    ),
    Plot(
        key="optimizers",
        title=f"Slowdown by optimizer at a staleness of {OPTIMIZER_TAU} updates",
        shows="Median over the seeds of the updates over those of the same seed without staleness, each at its fastest"
        " rate on the pilot seeds; bars: 90 % interval of it.",
        expected="SGD and Adagrad below momentum, RMSProp and Adam.",
        claims=("adagrad", "sgd", "rmsprop"),
        draw=_draw_optimizers,
        data=slowdowns_by_optimizer,
        size=(6.4, 3.4),
    ),
)
