"""The plots of the experiment on bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ps_trainer.experiments.frame.base import Level
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.lab import theory
from ps_trainer.experiments.ps_bandwidth.cases import Arm, Case, timed
from ps_trainer.experiments.ps_bandwidth.tables import d2l_ratios

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEVEL = Level.SHAPED.value
_SKEWED = (Arm.UNSHARDED, Arm.PARTITIONED)


def plots(cases: Sequence[Case]) -> list[Plot]:
    """All of them; a plot without cases is left out."""
    made = []
    by_number = timed(cases, Arm.PS, Arm.RING, Arm.COLOCATED, Arm.ASYNC)
    if by_number:
        made.append(
            Plot(
                key="round",
                title="Time of a round against the number of workers",
                level=_LEVEL,
                draw=lambda figure: _draw_rounds(figure, by_number),
                size=(7.2, 4.4),
            )
        )
    if d2l_ratios(cases):
        made.append(
            Plot(
                key="d2l",
                title="Where the gradients of four workers are added up",
                level=_LEVEL,
                draw=lambda figure: _draw_d2l(figure, cases),
            )
        )
    if skewed := timed(cases, *_SKEWED):
        made.append(
            Plot(
                key="largest_variable",
                title="A variable with three quarters of the model",
                level=_LEVEL,
                draw=lambda figure: _draw_skewed(figure, skewed),
            )
        )
    made.append(
        Plot(
            key="bytes",
            title="Bytes that the busiest host receives in a round",
            level=_LEVEL,
            draw=lambda figure: _draw_bytes(figure, [case for case in cases if case.setting.arm is not Arm.ASYNC]),
            size=(6.4, 4.4),
        )
    )
    return made


def _draw_rounds(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    most = max(case.setting.n for case in cases)
    grid = np.arange(1, most + 1)
    lines: tuple[tuple[str, str, Callable[[int], float]], ...] = (
        ("p = 1, A10", "-", lambda n: theory.ps_round_secs(1, n, 1, 1)),
        ("p = 2, A10", "--", lambda n: theory.ps_round_secs(1, n, 2, 1)),
        ("p ≥ n, A10", ":", lambda n: theory.ps_round_secs(1, n, n, 1)),
        ("ring, A11", "-.", lambda n: theory.ring_secs(1, n, 1)),
    )
    for label, style, secs in lines:
        axis.plot(grid, [secs(int(n)) for n in grid], "k", ls=style, lw=0.9, label=label)
    axis.axhline(1, color="tab:red", lw=0.8, label="p = n, both directions at once, A12")
    looks = {
        "p = 1": ("tab:blue", "o", lambda s: s.arm is Arm.PS and s.p == 1),
        "p = 2": ("tab:cyan", "s", lambda s: s.arm is Arm.PS and s.p == 2 and s.n > 2),
        "p ≥ n": ("tab:green", "^", lambda s: s.arm is Arm.PS and s.p >= s.n and s.p > 1),
        "ring": ("tab:orange", "x", lambda s: s.arm is Arm.RING),
        "ps on each worker's host": ("tab:purple", "D", lambda s: s.arm is Arm.COLOCATED and s.p == s.n),
        "one ps on a worker's host": ("tab:pink", "D", lambda s: s.arm is Arm.COLOCATED and s.p < s.n),
        "asynchronous, p = 1": ("tab:blue", "+", lambda s: s.arm is Arm.ASYNC and s.p == 1),
        "asynchronous, p = 2": ("tab:cyan", "+", lambda s: s.arm is Arm.ASYNC and s.p == 2),
    }
    for label, (colour, marker, belongs) in looks.items():
        _points(axis, [case for case in cases if belongs(case.setting)], label, colour, marker)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("workers")
    axis.set_ylabel("time of a round in M/B")
    axis.set_ylim(bottom=0)
    axis.legend(ncols=2)


def _points(axis: Axes, cases: Sequence[Case], label: str, colour: str, marker: str) -> None:
    if cases:
        units = [case.setting.unit_secs for case in cases]
        medians = np.array([case.in_units for case in cases])
        below = medians - np.array([case.secs.p10 / unit for case, unit in zip(cases, units, strict=True)])
        above = np.array([case.secs.p90 / unit for case, unit in zip(cases, units, strict=True)]) - medians
        numbers = [case.setting.n for case in cases]
        axis.errorbar(numbers, medians, [below, above], fmt=marker, color=colour, mfc="none", ms=7, label=label)


def _draw_d2l(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    ratios = d2l_ratios(cases)
    places = np.arange(len(ratios))
    axis.bar(places - 0.2, [published for _, published, _ in ratios], 0.4, color="0.7", label="d2l, 160 MB over PCIe")
    axis.bar(places + 0.2, [measured for *_, measured in ratios], 0.4, color="tab:blue", label="here")
    axis.set_xticks(places, [bar.what for bar, *_ in ratios])
    axis.set_ylabel("time over that of a share on each worker")
    axis.legend()


def _draw_skewed(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    for place, case in enumerate(cases):
        axis.bar(place, case.in_units, color="tab:blue", width=0.5)
        predicted = case.setting.predicted_secs() / case.setting.unit_secs
        axis.hlines(predicted, place - 0.35, place + 0.35, color="black", lw=1)
    axis.set_xticks(range(len(cases)), [case.setting.name for case in cases])
    axis.set_ylabel("time of a round in M/B")


def _draw_bytes(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    places = np.arange(len(cases))
    axis.barh(places, [case.most_bytes / case.setting.num_bytes for case in cases], color="tab:blue")
    for place, case in zip(places.tolist(), cases, strict=True):
        predicted = case.setting.predicted_bytes() / case.setting.num_bytes
        axis.vlines(predicted, place - 0.45, place + 0.45, color="black", lw=1.2)
    axis.set_yticks(places, [case.setting.name for case in cases])
    axis.invert_yaxis()
    axis.set_xlabel("bytes received in a round, in M; black: predicted")
