"""The tables and the explanations of the experiment on bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit.statistics import spread

from .cases import LEAST_IDLE_SECS, Arm, LinkCase, SimulatedCase, d2l_ratios, pairs

_MB = 1e6


def tables(cases: Sequence[LinkCase]) -> list[Table]:
    """Returns a line per case, and the example of "Dive into Deep Learning"."""
    return [_case_table(cases), *_d2l_table(cases)] if cases else []


def of_simulator(cases: Sequence[SimulatedCase]) -> list[Table]:
    """Returns a line per setting in the simulator."""
    columns = (
        *texts("arm"),
        *numbers("d", "n", "p"),
        *numbers(".3f", "round", "predicted", unit="s"),
        *numbers(".3f", "simulated / predicted"),
        *numbers(".2f", "round", unit="M/B"),
    )
    rows = [
        [one.setting.arm.words, one.setting.n, one.setting.p or None, one.round_secs, one.predicted_secs]
        + [one.round_secs / one.predicted_secs, one.in_units]
        for one in cases
    ]
    return [Table("Time per round in the simulator", columns, rows)]


def notes(cases: Sequence[LinkCase]) -> list[str]:
    """Returns the notes of the report, each if its arms were measured."""
    beside = pairs(cases, Arm.PIPELINED, Arm.RING)
    mixed = [f"{case.in_units / ring.in_units:.2f} (n={case.setting.n})" for case, ring in beside]
    beside_ring = f"Time with p = n hosts beside the workers', overlapped, over the ring's time: {', '.join(mixed)}."
    idle = [
        f"A step of one asynchronous worker takes {1000 * value:.0f} ms{within} besides its predicted transfers. The"
        f" prediction for several has this, or {1000 * LEAST_IDLE_SECS:g} ms if it is less."
        for value, ends in [case.idle for case in cases[:1] if case.idle]
        for within in [f" [{1000 * ends.low:.0f}, {1000 * ends.high:.0f}]" if ends else ""]
    ]
    return [*([beside_ring] if mixed else []), *idle]


def _case_table(cases: Sequence[LinkCase]) -> Table:
    """Returns a line per case."""
    columns = (
        *texts("arm", "TCP", "links"),
        *numbers("g", "longest queue", unit="ms"),
        *numbers("d", "n", "p", "hosts"),
        *numbers(".2f", "busiest host receives", "predicted", unit="MB"),
        *numbers(".3f", "round p50", "p10", "p90", "predicted", unit="s"),
        *numbers(".3f", "measured / predicted", "from", "to"),
        *numbers(".2f", "round", unit="M/B"),
        *numbers(".0f", "CPU", unit="%"),
        *numbers(".0f", "segments sent again per round", "packets dropped per round"),
        *numbers("d", "seeds"),
    )
    return Table("Time per round", columns, [_row(case) for case in cases], Level.SHAPED)


def _d2l_table(cases: Sequence[LinkCase]) -> list[Table]:
    """Returns a table of the ratios of d2l's example; no table unless every ratio was measured."""
    rows = [[bar.what, published, measured.value] for bar, published, measured in d2l_ratios(cases)]
    columns = (
        *texts("gradients of 4 are added up"),
        *numbers(".2f", "d2l, 160 MB", "here", unit="over the last line"),
    )
    title = "d2l's example, in ratios"
    return [Table(title, columns, rows, Level.SHAPED)]


def _row(case: LinkCase) -> list[object]:
    setting = case.setting
    again, dropped = (
        [num / setting.rounds for num in case.runs.figures(name) if num is not None]
        for name in ("num_retransmitted", "num_dropped")
    )
    times = [case.timed_secs.median, case.timed_secs.p10, case.timed_secs.p90] if case.secs else [None] * 3
    ratios: list[float | None] = [None] * 4
    if case.secs:
        ratio, ends = case.over_predicted
        ratios = [ratio, *(ends or (None, None)), case.in_units]
    return [
        *(setting.arm.words, setting.congestion_control, setting.rate, 1000 * setting.longest_queue_secs),
        *(setting.n, setting.p or None, setting.num_hosts),
        *(case.most_bytes / _MB, setting.predicted_bytes() / _MB),
        *(*times, case.predicted_secs, *ratios),
        case.runs.cpu_percent,
        *(spread(values).median if values else None for values in (again, dropped)),
        len(case.runs.uncontended()),
    ]
