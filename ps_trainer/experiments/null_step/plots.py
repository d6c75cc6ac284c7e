"""The plots of the experiment on the null step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ps_trainer.experiments.frame.base import Level
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.lab.sized_settings import PAPER_STEP_SECS, Curve
from ps_trainer.experiments.null_step.cases import Case
from ps_trainer.experiments.null_step.claims import PUBLISHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = {Curve.SCALAR: "o", Curve.DENSE: "s", Curve.SPARSE: "^"}


def plots(cases: Sequence[Case], bytes_per_sec: float | None) -> list[Plot]:
    """All plots; one without cases is left out.

    Args:
        cases: all.
        bytes_per_sec: B on shaped hosts; None = not measured.
    """
    made = []
    virtual = [case for case in cases if case.level is Level.VIRTUAL]
    if virtual:
        made.append(
            Plot(
                key="source_scale",
                title="Batches per second against workers, 16 ps tasks",
                level=Level.VIRTUAL.value,
                draw=lambda figure: _draw_source(figure, virtual),
            )
        )
    for level, key in ((Level.PROCESSES, "processes"), (Level.SHAPED, "shaped")):
        own = [case for case in cases if case.level is level and case.p == 1 and not case.is_contended]
        if own:
            made.append(
                Plot(
                    key=key,
                    title="Batches per second against workers, one ps task",
                    level=level.value,
                    draw=lambda figure, own=own: _draw_measured(figure, own),
                )
            )
    on_links = [
        case for case in cases if case.level is Level.SHAPED and case.curve is Curve.DENSE and not case.is_contended
    ]
    if on_links and bytes_per_sec:
        made.append(
            Plot(
                key="bandwidth",
                title="Dense steps against 2 · max(M/B, nM/(pB))",
                level=Level.SHAPED.value,
                draw=lambda figure: _draw_bandwidth(figure, on_links, bytes_per_sec),
            )
        )
    return made


def _draw_source(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    for name, own in _by_curve(cases).items():
        (line,) = axis.plot(*_rates(own), _MARKERS[own[0].curve] + "-", mfc="none", lw=0.8, label=f"{name}, simulated")
        published = PAPER_STEP_SECS[own[0].curve, own[0].megabytes]
        axis.plot(list(published), [1 / secs for secs in published.values()], "*", ms=9, color=line.get_color())
    axis.plot([], [], "k*", label=PUBLISHED[0].origin)
    _finish(axis, base=10)


def _draw_measured(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    for name, own in _by_curve(cases).items():
        axis.plot(*_rates(own), _MARKERS[own[0].curve] + "-", mfc="none", lw=0.8, label=name)
    _finish(axis, base=2)


def _draw_bandwidth(figure: Figure, cases: Sequence[Case], bytes_per_sec: float) -> None:
    axis = figure.add_subplot()
    for p in sorted({case.p for case in cases}):
        own = [case for case in cases if case.p == p]
        predicted = [case.predicted_ms(bytes_per_sec) for case in own]
        (points,) = axis.plot(predicted, [case.step_ms.median for case in own], "o", mfc="none", label=f"p = {p}")
        with_skew = [case.step_ms.median + case.skew_ms for case in own]
        axis.plot(predicted, with_skew, "x", color=points.get_color())
    ends = [f([case.predicted_ms(bytes_per_sec) for case in cases]) for f in (min, max)]
    axis.plot(ends, ends, "k-", lw=0.8, label="A10")
    _set_scales(axis, base=2)
    axis.set_xlabel("A10, ms")
    axis.set_ylabel("median step, ms")
    axis.legend()


def _by_curve(cases: Sequence[Case]) -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.curve_name, []).append(case)
    return groups


def _rates(cases: Sequence[Case]) -> tuple[list[int], list[float]]:
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
