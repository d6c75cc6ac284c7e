"""The plots of the experiment on bandwidth, and the words below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, draw_estimates, finish
from ps_trainer.experiments.toolkit import looks, theory
from ps_trainer.experiments.toolkit.statistics import Interval, IntervalEstimate

from .cases import Arm, D2lBar, LinkCase, LinkSetting, SimulatedCase, d2l_ratios, timed_cases

_FORMULAS: tuple[tuple[str, str, Callable[[int], float]], ...] = (
    ("p = 1, formula", "-", lambda n: theory.ps_round_secs(1, n, 1, 1)),
    ("p = 2, formula", "--", lambda n: theory.ps_round_secs(1, n, 2, 1)),
    ("p ≥ n, formula", ":", lambda n: theory.ps_round_secs(1, n, n, 1)),
    ("ring, formula", "-.", lambda n: theory.ring_secs(1, n, 1)),
)
_ROUND_ARMS = (Arm.PS, Arm.RING, Arm.COLOCATED, Arm.ASYNC, Arm.SOCKETS, Arm.PIPELINED)


def _draw_rounds(figure: Figure, data: Sequence[LinkCase]) -> None:
    axis = figure.add_subplot()
    _draw_formulas(axis, np.arange(1, max(case.setting.n for case in data) + 1))
    axis.axhline(1, color="0.5", lw=0.8, label="p = n, both directions at once")
    series: dict[str, tuple[str, str, Callable[[LinkSetting], bool]]] = {
        "p = 1": (looks.SYNC, "^", lambda s: s.arm is Arm.PS and s.p == 1),
        "p = 2": (looks.SYNC, "<", lambda s: s.arm is Arm.PS and s.p == 2 and s.n > 2),
        "p ≥ n": (looks.SYNC, ">", lambda s: s.arm is Arm.PS and s.p >= s.n and s.p > 1),
        "ring": (looks.RING, "x", lambda s: s.arm is Arm.RING),
        "ps on each worker's host": (looks.COLOCATED, "D", lambda s: s.arm is Arm.COLOCATED and s.p == s.n),
        "one ps on a worker's host": (looks.COLOCATED, "d", lambda s: s.arm is Arm.COLOCATED and s.p < s.n),
        "asynchronous, p = 1": (looks.ASYNC, "+", lambda s: s.arm is Arm.ASYNC and s.p == 1),
        "asynchronous, p = 2": (looks.ASYNC, "*", lambda s: s.arm is Arm.ASYNC and s.p == 2),
        "sockets, overlapped, p = n": (looks.SOCKETS, "h", lambda s: s.arm is Arm.PIPELINED),
        "sockets, p = n": (looks.SOCKETS, "p", lambda s: s.arm is Arm.SOCKETS),
    }
    for label, (colour, marker, belongs) in series.items():
        _points(axis, [case for case in data if belongs(case.setting)], label, colour, marker)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_ylim(bottom=0)
    finish(axis, "workers", "time of a round in M/B", ncols=2)


def _draw_formulas(axis: Axes, counts: np.ndarray) -> None:
    for label, style, secs in _FORMULAS:
        axis.plot(counts, [secs(int(n)) for n in counts], "k", ls=style, lw=0.9, label=label)


def _draw_simulated(figure: Figure, cases: Sequence[SimulatedCase]) -> None:
    axis = figure.add_subplot()
    _draw_formulas(axis, np.array(sorted({case.setting.n for case in cases})))
    series: dict[str, tuple[str, str, Callable[[LinkSetting], bool]]] = {
        "p = 1": (looks.SYNC, "^", lambda s: s.arm is Arm.PS and s.p == 1),
        "p = 2": (looks.SYNC, "<", lambda s: s.arm is Arm.PS and s.p == 2 and s.n > 2),
        "p = n": (looks.SYNC, ">", lambda s: s.arm is Arm.PS and s.p == s.n),
        "ring": (looks.RING, "x", lambda s: s.arm is Arm.RING),
        "ps on each worker's host": (looks.COLOCATED, "D", lambda s: s.arm is Arm.COLOCATED),
        "asynchronous, p = 1": (looks.ASYNC, "+", lambda s: s.arm is Arm.ASYNC),
    }
    for label, (colour, marker, belongs) in series.items():
        own = [case for case in cases if belongs(case.setting)]
        style = {"color": colour, "ls": "none", "mfc": "none", "ms": 7, "label": label}
        axis.plot([case.setting.n for case in own], [case.in_units for case in own], marker, **style)
    finish(axis, "workers", "time of a round in M/B", log="xy", ncols=2)


def _points(
    axis: Axes, cases: Sequence[LinkCase], label: str, colour: str, marker: str, place: float | None = None
) -> None:
    """Draws medians with bars from the 10th to the 90th percentile, at the number of workers or at one place."""
    if cases:
        units = [case.setting.unit_secs for case in cases]
        medians = np.array([case.in_units for case in cases])
        below = medians - np.array([case.timed_secs.p10 / unit for case, unit in zip(cases, units, strict=True)])
        above = np.array([case.timed_secs.p90 / unit for case, unit in zip(cases, units, strict=True)]) - medians
        places = [case.setting.n if place is None else place for case in cases]
        style = {"color": colour, "mfc": "none", "ms": 7, "ls": "none", "marker": marker, "label": label, "capsize": 2}
        axis.errorbar(places, medians, [below, above], **style)


def _draw_d2l(figure: Figure, data: Sequence[tuple[D2lBar, float, IntervalEstimate]]) -> None:
    axis = figure.add_subplot()
    places = np.arange(len(data))
    axis.bar(places - 0.2, [published for _, published, _ in data], 0.4, color="0.7", label="d2l, 160 MB over PCIe")
    axis.bar(places + 0.2, [measured.value for *_, measured in data], 0.4, color=looks.MEASURED, label="here")
    draw_estimates(axis, [place + 0.2 for place in range(len(data))], [measured for *_, measured in data], color="0.2")
    axis.set_xticks(places, [bar.what for bar, *_ in data])
    axis.set_ylabel("time over that of a share on each worker")
    axis.legend()


def _draw_skewed(figure: Figure, data: Sequence[LinkCase]) -> None:
    axis = figure.add_subplot()
    for place, case in enumerate(data):
        axis.bar(place, case.in_units, color=looks.MEASURED, width=0.5)
        _points(axis, [case], "", "0.2", "", place)
        predicted = case.setting.predicted_secs() / case.setting.unit_secs
        axis.hlines(predicted, place - 0.35, place + 0.35, color="black", lw=1)
    axis.set_xticks(range(len(data)), [case.setting.name for case in data])
    axis.set_ylabel("time of a round in M/B")


def _draw_bytes(figure: Figure, data: Sequence[LinkCase]) -> None:
    cases = [case for case in data if case.setting.arm is not Arm.ASYNC and case.setting.is_usual]
    axis = figure.add_subplot()
    positions = np.arange(len(cases))
    received = [
        case.bytes_over_predicted.over(case.setting.num_bytes / case.setting.predicted_bytes()) for case in cases
    ]
    ends = [ends or Interval(value, value) for value, ends in received]
    bars = [[one.value - end.low for one, end in zip(received, ends, strict=True)]]
    bars += [[end.high - one.value for one, end in zip(received, ends, strict=True)]]
    error_kw = {"color": "0.2", "ecolor": "0.2", "capsize": 2}
    axis.barh(positions, [one.value for one in received], xerr=bars, color=looks.MEASURED, error_kw=error_kw)
    for position, case in zip(positions.tolist(), cases, strict=True):
        predicted = case.setting.predicted_bytes() / case.setting.num_bytes
        axis.vlines(predicted, position - 0.45, position + 0.45, color="black", lw=1.2)
    axis.set_yticks(positions, [case.setting.name for case in cases])
    axis.invert_yaxis()
    axis.set_xlabel("bytes received in a round, in M; black: predicted")


OF_SIMULATOR = (
    Plot(
        key="simulated_rounds",
        title="Time of a round with up to 64 workers",
        shows="Time of a round in the simulator in units of M/B against the number of workers, both axes logarithmic;"
        " lines: the models.",
        expected="synchronous points on their lines; the ring, and ps tasks on the workers' own hosts, on one line that"
        " rises to 2; asynchronous workers with one ps task at n + 1, nearly a factor of two below synchronous ones.",
        claims=("simulated_ps", "simulated_colocated", "simulated_async"),
        draw=_draw_simulated,
        size=(7.2, 4.4),
    ),
)

PLOTS = (
    Plot(
        key="round",
        title="Time of a round against the number of workers",
        shows="Time of a round in units of M/B, the model's bytes over a link's speed, with the 10th and 90th"
        " percentile; lines: the models (A10, A11, A12).",
        expected="points on their lines: with one ps task the time grows by 2 per worker, with two half as fast, with"
        " as many ps tasks as workers it stays at 2; the ring and ps tasks on the workers' own hosts lie together"
        " below 2; asynchronous workers lie below the lines of synchronous ones; plain sockets with as many ps tasks as"
        " workers lie at 1 if they overlap, at 2 if not.",
        claims=("scaling", "ps_round", "colocated", "pipelined", "sockets", "both_directions"),
        draw=_draw_rounds,
        data=lambda cases: timed_cases(cases, *_ROUND_ARMS),
        level=Level.SHAPED,
        size=(7.2, 4.4),
    ),
    Plot(
        key="d2l",
        title="Where the gradients of four workers are added up",
        shows="Time of a round over its time with a share of the model on each worker's host: in the book's example of"
        " 160 MB, and here with 90 % intervals.",
        expected="the book's ratios: four with one ps task on a worker's host, 5.3 with one on a separate host.",
        claims=("d2l",),
        draw=_draw_d2l,
        data=d2l_ratios,
        level=Level.SHAPED,
    ),
    Plot(
        key="largest_variable",
        title="A variable with three quarters of the model",
        shows="Time of a round in units of M/B, the model's bytes over a link's speed, with the 10th and 90th"
        " percentile; black: predicted from the largest share of a ps task.",
        expected="whole on one ps task the variable makes a round several times as long as in parts.",
        claims=("unsharded", "partitioned"),
        draw=_draw_skewed,
        data=lambda cases: timed_cases(cases, Arm.UNSHARDED, Arm.PARTITIONED),
        level=Level.SHAPED,
    ),
    Plot(
        key="bytes",
        title="Bytes that the busiest host receives in a round",
        shows="Bytes that the busiest host receives in a round, in multiples of the model's bytes M, with 90 %"
        " intervals; black: predicted, the larger of M and n times a ps task's share; (n + p − 2)M/p with a ps task on"
        " a worker's host; 2(n − 1)M/n in a ring.",
        expected="each bar ends at its black line.",
        claims=("bytes",),
        draw=_draw_bytes,
        level=Level.SHAPED,
        size=(6.4, 4.4),
    ),
)
