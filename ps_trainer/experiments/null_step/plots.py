"""The plots of the experiment on the null step, and the words below them."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, draw_estimates, finish
from ps_trainer.experiments.toolkit import looks
from ps_trainer.experiments.toolkit.statistics import IntervalEstimate, median_interval, pooled_median_ratio

from .cases import PAPER_STEP_SECS, Curve, NullSteps, StepCase
from .claims import PUBLISHED

_TITLE = "Batches per second against workers"
_STYLES = {
    Curve.SCALAR: {"marker": "o", "ls": ":"},
    Curve.DENSE: {"marker": "s", "ls": "-"},
    Curve.SPARSE: {"marker": "^", "ls": "--"},
}
_MEGABYTES = (1, 4, 16, 64, 100, 256, 1000)  # sizes of all plots


def _with_one_ps(steps: NullSteps, level: Level) -> list[StepCase]:
    return [case for case in steps.timed if case.p == 1 and case.level is level]


def _draw_source(figure: Figure, cases: Sequence[StepCase]) -> None:
    axis = figure.add_subplot()
    for name, own in _by_curve(cases).items():
        colour = _draw_rates(axis, own, f"{name}, simulated")
        published = PAPER_STEP_SECS[own[0].curve, own[0].megabytes]
        style = {"mec": colour, "mfc": "none" if own[0].curve is Curve.SPARSE else colour}
        axis.plot(list(published), [1 / secs for secs in published.values()], "*", ms=9, **style)
    axis.plot([], [], "k*", label=PUBLISHED[0].origin)
    finish(axis, "workers", "batches per second", log="xy", base=10, fontsize=7, loc="lower left")
    axis.set_ylim(bottom=axis.get_ylim()[0] / 3)  # for the legend, below all lines


def _draw_measured(figure: Figure, cases: Sequence[StepCase]) -> None:
    axis = figure.add_subplot()
    for name, own in _by_curve(cases).items():
        _draw_rates(axis, own, name)
    finish(axis, "workers", "batches per second", log="xy", fontsize=7)


def _draw_bandwidth(figure: Figure, steps: NullSteps) -> None:
    axis = figure.add_subplot()
    cases, bytes_per_sec = steps.on_links, steps.bytes_per_sec
    if bytes_per_sec is None:
        raise ValueError("the bandwidth of the links was not measured, so there is nothing to compare")
    for p, colour in looks.shades(case.p for case in cases).items():
        own = [case for case in cases if case.p == p]
        predicted = [case.predicted_ms(bytes_per_sec) for case in own]
        steps_ms = [IntervalEstimate(*median_interval([ms for run in case.ms_by_run for ms in run])) for case in own]
        draw_estimates(axis, predicted, steps_ms, marker="o", color=colour, label=f"p = {p}")
        axis.plot(predicted, [case.step_ms.median + case.skew_ms for case in own], "x", color=colour)
    axis.plot([], [], "kx", label="from the first worker to the last added")
    ends = [f([case.predicted_ms(bytes_per_sec) for case in cases]) for f in (min, max)]
    axis.plot(ends, ends, "k-", lw=0.8, label="predicted")
    finish(axis, "predicted step, ms", "median step, ms", log="xy")


def _by_curve(cases: Sequence[StepCase]) -> dict[str, list[StepCase]]:
    groups: dict[str, list[StepCase]] = {}
    for case in cases:
        groups.setdefault(case.curve_name, []).append(case)
    return groups


def _draw_rates(axis: Axes, cases: Sequence[StepCase], label: str) -> str:
    """Draws batches per second against the number of workers, and returns the colour."""
    cases = sorted(cases, key=lambda case: case.n)
    per_sec = [pooled_median_ratio([[1000.0]], case.ms_by_run) for case in cases]
    first = cases[0]
    colour = looks.MEASURED if first.curve is Curve.SCALAR else looks.shades(_MEGABYTES)[first.megabytes]
    style = {"lw": 0.8, "color": colour, "label": label, **_STYLES[first.curve]}
    draw_estimates(axis, [case.n for case in cases], per_sec, **style)
    return colour


PLOTS = (
    Plot(
        key="source_scale",
        title=f"{_TITLE}, 16 ps tasks",
        shows="Simulated batches per second against the number of workers, 16 ps tasks; stars: the source's, in the"
        " colour of the line they belong to, hollow for sparse steps.",
        expected="scalar and sparse lines fall by less than ten times over 100 workers; dense lines are flat up to 16"
        " workers, as many as ps tasks, and fall as 1/n beyond; the source's stars lie above the dense lines by a"
        " factor of up to two, where pull and push overlap in part.",
        claims=("phases",),
        draw=_draw_source,
        data=lambda steps: [case for case in steps.cases if case.level is Level.VIRTUAL],
    ),
    Plot(
        key="processes",
        title=f"{_TITLE}, one ps task, processes of one machine",
        shows="Measured batches per second against the number of workers, one ps task, with 90 % intervals."
        " Settings without a comparable run have no marker.",
        expected="sparse points near the scalar ones whatever the table's size, dense ones lower the larger the model.",
        claims=("table_size", "sparse_dense", "scalar"),
        draw=_draw_measured,
        data=lambda steps: _with_one_ps(steps, Level.PROCESSES),
        level=Level.PROCESSES,
    ),
    Plot(
        key="shaped",
        title=f"{_TITLE}, one ps task, shaped links",
        shows="Measured batches per second against the number of workers, one ps task, with 90 % intervals; each host"
        " has a link of limited speed.",
        expected="sparse points near the scalar ones whatever the table's size; dense ones lower the larger the model,"
        " and falling as 1/n where the link decides.",
        claims=("sparse_dense", "linear"),
        draw=_draw_measured,
        data=lambda steps: _with_one_ps(steps, Level.SHAPED),
        level=Level.SHAPED,
    ),
    Plot(
        key="bandwidth",
        title="Dense steps, measured and predicted",
        shows="Median dense steps against the prediction, 2 · max(M/B, nM/(pB)) (A10), with 90 % intervals; black: both"
        " alike; crosses: with the time from the first worker to the last added.",
        expected="points near the diagonal; those of several workers may lie below it, as the first worker with"
        " parameters pushes while others still pull.",
        claims=("bandwidth",),
        draw=_draw_bandwidth,
        data=lambda steps: steps if steps.on_links and steps.bytes_per_sec else (),
        level=Level.SHAPED,
    ),
)
