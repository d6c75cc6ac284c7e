"""The tables of the scaling curve, sync beside async, and the explanations."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.tables import Table, numbers, texts

from .cases import NUM_REAL_SEEDS, PERCENTILES, ROUNDS, SHAPE_NAMES, CurvePoint, Scale, SyncAndAsync, ThroughputCurve

NOTES = (
    "A step is pull, compute, push, one after the other. A ceiling of pB/(2M) steps per second holds for synchronous"
    " workers, who use one direction of a link at a time. Asynchronous ones get out of step, one's pull passes beside"
    " another's push, and the ceiling is pB/M. So the sum's 2nM/(pB) is up to twice too long for them beyond the knee:"
    " the sum is refuted there, by up to 1 − 1/2; the simulator, in which pulls and pushes have a link each, is not.",
    "The closed form and the simulator share a link evenly. A real one serves its queue in order, so that of several"
    " workers that pull at once the first has its parameters long before the last and computes meanwhile. A"
    " synchronous step is shorter by that where transfers fit into the queue (half a second of data): with 8 workers"
    " and 1 MB.",
    "Fig. 8's shape, sync near async at the median and far above it in the tail, is a statement about the delays. The"
    " slowest of n is long at the median, too, when every worker's time varies a little (lognormal), and then the tail"
    " is relatively *shorter*, as the maximum of many varies less than one. It takes delays that are long and rarer"
    " than one in n steps, so that most rounds have none.",
    "In virtual time transfers and compute times do not overlap within a worker; TensorFlow begins to push the last"
    " layers' gradients while the first ones' are still computed, which hides a part of them.",
    f"Real runs have {ROUNDS} steps per worker and {NUM_REAL_SEEDS} seeds, virtual ones, also those that real ones are"
    " compared with, as many steps as percentiles need: in a short run of few asynchronous workers it matters how they"
    " began. The simulator does not count what a step costs on the machine beside its transfers, some 20 to 40 ms.",
)


def of_ours(scale: Scale) -> list[Table]:
    """Real clusters, efficiency, and percentiles of step times."""
    columns = (
        *texts("rule"),
        *numbers("d", "n", "p"),
        *numbers("g", "model", unit="MB"),
        *numbers(".2f", "steps/s"),
        *numbers(".3f", "round", "simulated", "predicted", unit="s"),
        *numbers(".3f", "measured / simulated", "measured / predicted"),
        *numbers("d", "seeds"),
    )
    points = Table("Real clusters", columns, [_point_row(point) for point in scale.real], Level.SHAPED)
    return [points, *_curve_tables(scale.curves), *of_papers(scale)]


def of_papers(scale: Scale) -> list[Table]:
    """Percentiles of step times, sync beside async; a table per level."""
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
    return [
        Table("Step times, sync and async", columns, list(map(_pair_row, own)), one) for one, own in by_level.items()
    ]


def _curve_tables(curves: Sequence[ThroughputCurve]) -> list[Table]:
    """Efficiency: rate per worker over that of one worker; a table per level."""
    tables = []
    for level in dict.fromkeys(curve.first.level for curve in curves):
        own = [curve for curve in curves if curve.first.level is level]
        counts = sorted({point.setting.n for curve in own for point in curve.points})
        columns = (
            *texts("curve"),
            *numbers(".2f", *(f"n={n}" for n in counts)),
            *numbers(".1f", "knee", "knee, predicted"),
        )
        tables.append(Table("Efficiency", columns, [_curve_row(curve, counts) for curve in own], level))
    return tables


def _point_row(point: CurvePoint) -> list[object]:
    one, secs, predicted = point.setting, point.times.round_secs, point.setting.predicted_secs()
    head = [one.update, one.n, one.p, one.num_bytes / 1e6, point.rate, secs, point.simulated_secs, predicted]
    return [*head, secs / point.simulated_secs, secs / predicted, point.num_seeds]


def _curve_row(curve: ThroughputCurve, counts: Sequence[int]) -> list[object]:
    points = [curve.at(n) for n in counts]
    starts_alone = curve.first.setting.n == 1
    efficiencies = [curve.efficiency(point) if point and starts_alone else None for point in points]
    return [curve.name, *efficiencies, curve.measured_knee() if starts_alone else None, curve.first.setting.knee()]


def _pair_row(pair: SyncAndAsync) -> list[object]:
    one = pair.sync.setting
    head = [SHAPE_NAMES[one.shape], one.n, one.p, one.num_bytes / 1e6]
    return [*head, *pair.sync.times.percentiles, *pair.other.times.percentiles, *map(pair.ratio, (50, 90, 99))]
