"""The tables of the experiment on the time to an accuracy."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.harness.targets import target_columns
from ps_trainer.experiments.toolkit import real_clusters
from ps_trainer.experiments.toolkit.statistics import spread

from .cases import PacedTraining, TimedAccuracy, batch_size, over_one


def of_training(cases: Sequence[TimedAccuracy]) -> list[Table]:
    """Returns a row per kind of batches, rule and number of workers, with bounds where most seeds miss the target."""
    columns = (
        *texts("batches", "updates"),
        *numbers("d", "n", "batch of a worker"),
        *numbers("g", "learning rate"),
        *target_columns(",.0f", "examples"),
        *numbers(".3f", "an update", unit="steps of one worker"),
        *numbers(".1f", "time, median", unit="steps of one worker"),
        *numbers(".2f", "speed-up, of geometric means", "from", "to"),
        *numbers("d", "not reached", "seeds"),
    )
    rows = []
    for case in sorted(cases, key=lambda one: (one.batches, one.n, one.rule)):
        rule = "one worker" if case.n == 1 else case.rule
        speedup: list[float | None] = [None] * 3
        for measure in over_one(cases, case.batches, case.rule, case.n):
            if not measure.sign:
                speedup = [1 / measure.value, 1 / measure.bounds.high, 1 / measure.bounds.low]
        rows.append(
            [case.batches, rule, case.n, batch_size(case.batches, case.n), case.rate, *case.cells("examples")]
            + [spread(case.update_times).median, case.samples("times").percentile(50), *speedup]
            + [case.num_lost, len(case.times)]
        )
    return [Table("To the test accuracy", columns, rows)]


def of_clusters(cases: Sequence[PacedTraining]) -> list[Table]:
    """Returns the time to the loss and the gradients per mean step, each beside the simulator's."""
    timed = [(case.name, runs) for case in cases if (runs := case.runs.uncontended())]
    return [
        real_clusters.timing_table(what, unit, [real_clusters.pair(name, runs, figure) for name, runs in timed])
        for what, unit, figure in (
            ("time to a training loss", "steps of one worker", "time"),
            ("throughput", "gradients per mean step", "gradients"),
        )
    ]
