"""The tables and the explanations of the scaling curve, with sync and async side by side."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.tables import LowerBound, Table, numbers, texts
from ps_trainer.experiments.toolkit.calibration import cost_table

from . import records
from .cases import CurvePoint, Scale, SyncAndAsync, ThroughputCurve
from .records import IMAGES_PER_STEP, PERCENTILES, SHAPE_NAMES


def of_ours(scale: Scale) -> list[Table]:
    """Returns tables of real clusters, of efficiency, and of percentiles of step times."""
    columns = (
        *texts("rule"),
        *numbers("d", "n", "p"),
        *numbers("g", "model", unit="MB"),
        *numbers("g", "longest queue", unit="ms"),
        *numbers(".2f", "steps/s"),
        *numbers(".3f", "round", "simulated", "predicted", unit="s"),
        *numbers(".3f", "measured / simulated", "measured / predicted"),
        *numbers(".0f", "CPU", unit="%"),
        *numbers(".1f", "segments sent again per round", "packets dropped per round"),
        *numbers("d", "seeds"),
    )
    rows = [_point_row(point) for point in (*scale.real, *scale.with_long_queues)]
    points = Table("Real clusters", columns, rows, Level.SHAPED)
    costs = [
        (f"{point.setting.update}, {point.setting.num_bytes / 1e6:g} MB, seed {seed}", figures.calibration)
        for point in scale.real
        for seed, figures in point.by_seed.items()
        if figures.calibration is not None
    ]
    return [points, cost_table(costs, Level.SHAPED), *_curve_tables(scale.curves), *of_papers(scale)]


def of_papers(scale: Scale) -> list[Table]:
    """Returns tables of the published throughput and, by level, of step times, sync and async side by side."""
    columns = (
        *texts("compute times"),
        *numbers("d", "n", "p"),
        *numbers("g", "model", unit="MB"),
        *numbers(".3f", *(f"sync p{p}" for p in PERCENTILES), *(f"async p{p}" for p in PERCENTILES), unit="s"),
        *numbers(".2f", *(f"ratio p{p}" for p in (50, 90, 99))),
    )
    by_level: dict[Level, list[SyncAndAsync]] = {}
    for pair in scale.pairs:
        by_level.setdefault(pair.sync.level, []).append(pair)
    is_papers = any(pair.sync.setting.p == records.NUM_PAPER_PS for pair in scale.pairs)
    whose = " of the paper's cluster" if is_papers else ""
    return [
        _published_table(scale.curves),
        *(
            Table(f"Step times{whose}, sync and async", columns, list(map(_pair_row, own)), one)
            for one, own in by_level.items()
        ),
    ]


def _published_table(curves: Sequence[ThroughputCurve]) -> Table:
    """Returns the simulated and the published throughput of the paper's cluster; no rows for other clusters."""
    columns = (
        *texts("rule", "compute times"),
        *numbers("d", "n", "p"),
        *numbers(",.0f", "images/s", "published"),
    )
    rows = []
    for curve in curves:
        one, point = curve.first.setting, curve.at(records.NUM_LARGEST)
        if point and one.p == records.NUM_PAPER_PS:
            rates = [point.rate * IMAGES_PER_STEP, records.RATES_200[one.update].value]
            rows.append([one.update, SHAPE_NAMES[one.shape], point.setting.n, one.p, *rates])
    return Table("Throughput of the paper's cluster, calibrated on 1 and 50 workers", columns, rows)


def _curve_tables(curves: Sequence[ThroughputCurve]) -> list[Table]:
    """Returns a table of efficiency, the rate per worker over the rate of one worker, for each level."""
    tables = []
    for level in dict.fromkeys(curve.first.level for curve in curves):
        level_curves = [curve for curve in curves if curve.first.level is level]
        counts = sorted({point.setting.n for curve in level_curves for point in curve.points})
        columns = (
            *texts("curve"),
            *numbers(".2f", *(f"n={n}" for n in counts)),
            *numbers(".1f", "knee", "knee, predicted"),
        )
        tables.append(Table("Efficiency", columns, [_curve_row(curve, counts) for curve in level_curves], level))
    return tables


def _point_row(point: CurvePoint) -> list[object]:
    one, secs, predicted = point.setting, point.times.round_secs, point.setting.predicted_secs()
    queue_ms = None if point.queue_secs is None else 1000 * point.queue_secs
    head = [one.update, one.n, one.p, one.num_bytes / 1e6, queue_ms, point.rate]
    times = [secs, point.simulated_secs, predicted, secs / point.simulated_secs, secs / predicted]
    return [*head, *times, point.cpu_percent, point.sent_again, point.dropped, len(point.by_seed)]


def _curve_row(curve: ThroughputCurve, counts: Sequence[int]) -> list[object]:
    points = [curve.at(n) for n in counts]
    starts_alone = curve.first.setting.n == 1
    efficiencies = [curve.efficiency(point) if point and starts_alone else None for point in points]
    knee: float | LowerBound | None = None
    if starts_alone:
        value = curve.measured_knee().value
        knee = value if curve.passes_knee else LowerBound(value)
    return [curve.name, *efficiencies, knee, curve.first.setting.knee()]


def _pair_row(pair: SyncAndAsync) -> list[object]:
    one = pair.sync.setting
    head = [SHAPE_NAMES[one.shape], one.n, one.p, one.num_bytes / 1e6]
    return [*head, *pair.sync.times.percentiles, *pair.other.times.percentiles, *map(pair.ratio, (50, 90, 99))]
