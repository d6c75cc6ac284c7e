"""The table of the experiment on cached reads."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.harness.targets import target_columns

from .cases import CacheComparison, median


def of_reads(comparisons: Sequence[CacheComparison]) -> list[Table]:
    """Returns a table for each problem, with a row per arm; bounds where most seeds do not reach the objective."""
    columns = (
        *texts("rule"),
        *numbers("g", "learning rate"),
        *target_columns(".1f", "time", unit="mean steps"),
        *numbers(",.0f", "gradients"),
        *numbers(".1f", "computing", unit="%"),
        *numbers(".2f", "pulls per step"),
        *numbers("d", "oldest missing step", "not reached", "seeds"),
    )
    tables = []
    for one in comparisons:
        rows = []
        for arm in one.arms:
            reached = [*arm.cells("times"), arm.cells("gradients")[0]]
            rows.append(
                [arm.name, arm.rates[0], *reached, 100 * median(arm.computes), median(arm.pulls), arm.age]
                + [arm.num_lost, len(arm.times)]
            )
        tables.append(Table(f"To the objective, {one.problem}", columns, rows))
    return tables
