"""The plots of the experiment on the null step, and the words below them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ps_trainer.experiments.harness.base import Level
from ps_trainer.experiments.harness.captions import Caption
from ps_trainer.experiments.harness.plots import Plot
from ps_trainer.experiments.null_step.cases import NullSteps, StepCase
from ps_trainer.experiments.null_step.claims import PUBLISHED
from ps_trainer.experiments.toolkit.sized_settings import PAPER_STEP_SECS, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = {Curve.SCALAR: "o", Curve.DENSE: "s", Curve.SPARSE: "^"}

CAPTIONS = {
    "source_scale": Caption(
        shows=("Simulated batches per second against the number of workers, 16 ps tasks; stars: the source's."),
        expected=(
            "scalar and sparse lines fall by less than ten times over 100 workers; dense lines are flat up to 16"
            " workers, as many as ps tasks, and fall as 1/n beyond; the source's stars lie above the dense lines by"
            " up to two, where pull and push overlap in part."
        ),
    ),
    "processes": Caption(
        shows=("Measured batches per second against the number of workers, one ps task."),
        expected=(
            "sparse points near the scalar ones whatever the table's size, dense ones lower the larger the model."
        ),
    ),
    "shaped": Caption(
        shows=(
            "Measured batches per second against the number of workers, one ps task; each host has a link of"
            " limited speed."
        ),
        expected=(
            "sparse points near the scalar ones whatever the table's size; dense ones lower the larger the model,"
            " and falling as 1/n where the link decides."
        ),
    ),
    "bandwidth": Caption(
        shows=(
            "Median dense steps against the prediction (A10); black: both alike; crosses: with the time from the"
            " first worker to the last added."
        ),
        expected=(
            "points near the diagonal; those of several workers may lie below it, as who has its parameters first"
            " pushes while others still pull."
        ),
    ),
}


def plots(steps: NullSteps) -> list[Plot]:
    """All plots; one without cases is left out."""
    title = "Batches per second against workers"
    made = (
        ("source_scale", f"{title}, 16 ps tasks", Level.VIRTUAL, _draw_source, steps.cases),
        *(
            (key, f"{title}, one ps task", level, _draw_measured, [case for case in steps.timed if case.p == 1])
            for key, level in (("processes", Level.PROCESSES), ("shaped", Level.SHAPED))
        ),
    )
    plots = [
        Plot(key=key, title=title, level=level.value, draw=functools.partial(draw, cases=own))
        for key, title, level, draw, cases in made
        if (own := [case for case in cases if case.level is level])
    ]
    on_links = Plot(
        key="bandwidth",
        title="Dense steps against 2 · max(M/B, nM/(pB))",
        level=Level.SHAPED.value,
        draw=lambda figure: _draw_bandwidth(figure, steps.on_links, steps.bytes_per_sec),
    )
    return [*plots, *([on_links] if steps.on_links and steps.bytes_per_sec else ())]


def _draw_source(figure: Figure, cases: Sequence[StepCase]) -> None:
    axis = figure.add_subplot()
    for name, own in _by_curve(cases).items():
        (line,) = axis.plot(*_rates(own), _MARKERS[own[0].curve] + "-", mfc="none", lw=0.8, label=f"{name}, simulated")
        published = PAPER_STEP_SECS[own[0].curve, own[0].megabytes]
        axis.plot(list(published), [1 / secs for secs in published.values()], "*", ms=9, color=line.get_color())
    axis.plot([], [], "k*", label=PUBLISHED[0].origin)
    _finish(axis, base=10)


def _draw_measured(figure: Figure, cases: Sequence[StepCase]) -> None:
    axis = figure.add_subplot()
    for name, own in _by_curve(cases).items():
        axis.plot(*_rates(own), _MARKERS[own[0].curve] + "-", mfc="none", lw=0.8, label=name)
    _finish(axis, base=2)


def _draw_bandwidth(figure: Figure, cases: Sequence[StepCase], bytes_per_sec: float) -> None:
    axis = figure.add_subplot()
    for p in sorted({case.p for case in cases}):
        own = [case for case in cases if case.p == p]
        predicted = [case.predicted_ms(bytes_per_sec) for case in own]
        (points,) = axis.plot(predicted, [case.step_ms.median for case in own], "o", mfc="none", label=f"p = {p}")
        with_skew = [case.step_ms.median + case.skew_ms for case in own]
        axis.plot(predicted, with_skew, "x", color=points.get_color())
    ends = [f([case.predicted_ms(bytes_per_sec) for case in cases]) for f in (min, max)]
    axis.plot(ends, ends, "k-", lw=0.8, label="predicted")
    _set_scales(axis, base=2)
    axis.set_xlabel("predicted step, ms")
    axis.set_ylabel("median step, ms")
    axis.legend()


def _by_curve(cases: Sequence[StepCase]) -> dict[str, list[StepCase]]:
    groups: dict[str, list[StepCase]] = {}
    for case in cases:
        groups.setdefault(case.curve_name, []).append(case)
    return groups


def _rates(cases: Sequence[StepCase]) -> tuple[list[int], list[float]]:
    cases = sorted(cases, key=lambda case: case.n)
    return [case.n for case in cases], [1000 / case.step_ms.median for case in cases]


def _set_scales(axis: Axes, base: int) -> None:
    axis.set_xscale("log", base=base)
    axis.set_yscale("log", base=base)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter("{x:g}")


def _finish(axis: Axes, base: int) -> None:
    _set_scales(axis, base)
    axis.set_xlabel("workers")
    axis.set_ylabel("batches per second")
    axis.legend(fontsize=7)
