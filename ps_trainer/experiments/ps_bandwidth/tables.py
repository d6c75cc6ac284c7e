"""The tables of the experiment on bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ps_trainer.experiments.frame.base import Level
from ps_trainer.experiments.frame.tables import Column, Table
from ps_trainer.experiments.ps_bandwidth.cases import Arm, Case

_MB = 1e6


class D2lBar(NamedTuple):
    """A way to add up gradients in the figure of "Dive into Deep Learning", and ours that is like it.

    Attributes:
        what: in words.
        published_ms: there, 160 MB and 4 GPUs.
        arm: ours, with 4 workers.
        p: its ps tasks.
    """

    what: str
    published_ms: float
    arm: Arm
    p: int


# The fourth way there, a ring over a faster kind of link, has no counterpart where all links are alike.
D2L_WORKERS = 4
D2L_BARS = (
    D2lBar("all on one worker", 60.0, Arm.COLOCATED, 1),
    D2lBar("all on one host of its own", 80.0, Arm.PS, 1),
    D2lBar("a share on each worker", 15.0, Arm.COLOCATED, D2L_WORKERS),
)


def d2l_ratios(cases: Sequence[Case]) -> list[tuple[D2lBar, float, float]]:
    """Each bar with its published and its measured time over those of the last one; empty unless all were measured."""
    by_key = {(c.setting.arm, c.setting.n, c.setting.p): c for c in cases if c.secs is not None}
    own = [by_key.get((bar.arm, D2L_WORKERS, bar.p)) for bar in D2L_BARS]
    if None in own:
        return []
    return [
        (bar, bar.published_ms / D2L_BARS[-1].published_ms, case.secs.median / own[-1].secs.median)
        for bar, case in zip(D2L_BARS, own, strict=True)
    ]


def case_table(cases: Sequence[Case]) -> Table:
    """A line per case."""
    columns = (
        Column(name="arm"),
        Column(name="n", form="d"),
        Column(name="p", form="d"),
        Column(name="hosts", form="d"),
        Column(name="busiest host receives", form=".2f", unit="MB"),
        Column(name="predicted", form=".2f", unit="MB"),
        Column(name="round p50", form=".3f", unit="s"),
        Column(name="p10", form=".3f", unit="s"),
        Column(name="p90", form=".3f", unit="s"),
        Column(name="predicted", form=".3f", unit="s"),
        Column(name="measured / predicted", form=".3f"),
        Column(name="round", form=".2f", unit="M/B"),
        Column(name="CPU", form=".0f", unit="%"),
        Column(name="seeds", form="d"),
    )
    return Table(title="Time per round", level=Level.SHAPED.value, columns=columns, rows=[_row(case) for case in cases])


def d2l_table(cases: Sequence[Case]) -> list[Table]:
    """d2l's example, in ratios; none unless all of it was measured."""
    rows = [[bar.what, published, measured] for bar, published, measured in d2l_ratios(cases)]
    columns = (
        Column(name="gradients of 4 are added up"),
        Column(name="d2l, 160 MB", form=".2f", unit="over the last line"),
        Column(name="here", form=".2f", unit="over the last line"),
    )
    title = "d2l's example, in ratios"
    return [Table(title=title, level=Level.SHAPED.value, columns=columns, rows=rows)] if rows else []


def _row(case: Case) -> list[object]:
    one = case.setting
    times = [case.secs.median, case.secs.p10, case.secs.p90] if case.secs else [None] * 3
    ratios = [case.over_predicted, case.in_units] if case.secs else [None] * 2
    return [
        one.arm.value,
        one.n,
        one.p or None,
        one.num_hosts,
        case.most_bytes / _MB,
        one.predicted_bytes() / _MB,
        *times,
        one.predicted_secs(),
        *ratios,
        None if case.cpu_share is None else 100 * case.cpu_share,
        case.num_seeds,
    ]
