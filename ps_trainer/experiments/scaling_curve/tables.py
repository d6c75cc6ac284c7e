"""The tables of the scaling curve, and sync beside async."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ps_trainer.experiments.frame.tables import Column, Table, numbers
from ps_trainer.experiments.scaling_curve.cases import ASYNC, PERCENTILES, SHAPE_NAMES, SYNC, Curve, Point


class Pair(NamedTuple):
    """Synchronous and asynchronous workers on the same cluster."""

    sync: Point
    other: Point

    @property
    def name(self) -> str:
        """Without the update rule."""
        one = self.sync.setting
        return f"{self.sync.level.value[:2]}, n={one.n}, p={one.p}, {SHAPE_NAMES[one.shape]}"

    def ratio(self, percent: int) -> float:
        """Sync over async of a percentile of step times, one of `PERCENTILES`."""
        place = PERCENTILES.index(percent)
        return self.sync.times.percentiles[place] / self.other.times.percentiles[place]

    def is_(self, shape: str, n: int) -> bool:
        """Whether it is of that distribution and number of workers."""
        return (self.sync.setting.shape, self.sync.setting.n) == (shape, n)


def pairs_of(points: Sequence[Point]) -> list[Pair]:
    """Of more than one worker, in the order of the synchronous points."""
    others = {(p.level, p.setting): p for p in points if p.setting.update == ASYNC}
    found = []
    for point in points:
        other = others.get((point.level, point.setting._replace(update=ASYNC)))
        if point.setting.update == SYNC and point.setting.n > 1 and other:
            found.append(Pair(point, other))
    return found


def point_table(points: Sequence[Point]) -> list[Table]:
    """A line per real cluster; nothing without any."""
    if not points:
        return []
    columns = (
        Column(name="rule"),
        *numbers("d", "n", "p"),
        *numbers("g", "model", unit="MB"),
        *numbers(".2f", "steps/s"),
        *numbers(".3f", "round", "simulated", "A10 + A13", unit="s"),
        *numbers(".3f", "measured / simulated", "measured / A10 + A13"),
        *numbers("d", "seeds"),
    )
    rows = [_point_row(point) for point in points]
    return [Table(title="Real clusters", level=points[0].level.value, columns=columns, rows=rows)]


def curve_tables(curves: Sequence[Curve]) -> list[Table]:
    """Efficiency: rate per worker over that of one worker; a table per level."""
    tables = []
    for level in dict.fromkeys(curve.first.level for curve in curves):
        own = [curve for curve in curves if curve.first.level is level]
        counts = sorted({point.setting.n for curve in own for point in curve.points})
        columns = (
            Column(name="curve"),
            *numbers(".2f", *(f"n={n}" for n in counts)),
            *numbers(".1f", "knee", "knee, predicted"),
        )
        rows = [_curve_row(curve, counts) for curve in own]
        tables.append(Table(title="Efficiency", level=level.value, columns=columns, rows=rows))
    return tables


def pair_table(points: Sequence[Point]) -> list[Table]:
    """Percentiles of step times, sync beside async; a table per level."""
    tables = []
    pairs = pairs_of(points)
    for level in dict.fromkeys(pair.sync.level for pair in pairs):
        own = [pair for pair in pairs if pair.sync.level is level]
        columns = (
            Column(name="compute times"),
            *numbers("d", "n", "p"),
            *numbers("g", "model", unit="MB"),
            *numbers(".3f", *(f"sync p{p}" for p in PERCENTILES), *(f"async p{p}" for p in PERCENTILES), unit="s"),
            *numbers(".2f", *(f"ratio p{p}" for p in (50, 90, 99))),
        )
        rows = [_pair_row(pair) for pair in own]
        tables.append(Table(title="Step times, sync and async", level=level.value, columns=columns, rows=rows))
    return tables


def _point_row(point: Point) -> list[object]:
    one, secs, predicted = point.setting, point.times.round_secs, point.setting.predicted_secs()
    head = [one.update, one.n, one.p, one.num_bytes / 1e6, point.rate, secs, point.simulated_secs, predicted]
    return [*head, secs / point.simulated_secs, secs / predicted, point.num_seeds]


def _curve_row(curve: Curve, counts: Sequence[int]) -> list[object]:
    points = [curve.at(n) for n in counts]
    starts_alone = curve.first.setting.n == 1
    efficiencies = [curve.efficiency(point) if point and starts_alone else None for point in points]
    return [curve.name, *efficiencies, curve.measured_knee() if starts_alone else None, curve.first.setting.knee()]


def _pair_row(pair: Pair) -> list[object]:
    one = pair.sync.setting
    head = [SHAPE_NAMES[one.shape], one.n, one.p, one.num_bytes / 1e6]
    return [*head, *pair.sync.times.percentiles, *pair.other.times.percentiles, *map(pair.ratio, (50, 90, 99))]
