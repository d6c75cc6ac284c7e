"""The tables of the experiment on backup workers among many workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.harness.targets import target_columns
from ps_trainer.experiments.toolkit.statistics import spread, standard_error

from .cases import NUM_NEEDED, AtScale, TimedTraffic


def of_training(cases: Sequence[AtScale]) -> list[Table]:
    """Returns a row per mode and number of workers; bounds where most seeds do not reach the target."""
    columns = (
        *texts("updates"),
        *numbers("d", "n", "b", "batch"),
        *numbers("g", "learning rate"),
        *numbers(".2f", "final test accuracy, mean", "± SE", unit="%"),
        *target_columns(".1f", "time to the target", unit="mean steps"),
        *numbers("d", "not reached", "seeds"),
    )
    rows = []
    for case in cases:
        accuracies = 100 * np.array(case.accuracies)
        rows.append(
            [
                case.updates,
                case.n,
                case.b,
                case.batch_size,
                case.rates[0],
                accuracies.mean(),
                standard_error(accuracies.tolist()),
            ]
            + [*case.cells("times"), case.num_lost, len(case.times)]
        )
    return [Table("Final accuracy and time to an accuracy", columns, rows)]


def of_traffic(cases: Sequence[TimedTraffic]) -> list[Table]:
    """Returns a row per kind of step times and number of backup workers."""
    columns = (
        *texts("cluster"),
        *numbers("d", "b"),
        *numbers(".3f", "median update", "mean update", unit="s"),
        *numbers("d", "seeds"),
    )
    rows = [[case.cluster, case.b, case.median, spread(case.means).median, len(case.medians)] for case in cases]
    return [Table(f"Time per update, N = {NUM_NEEDED}, token queue", columns, rows)]
