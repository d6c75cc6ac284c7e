"""The table of the experiment on linear scaling."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit.statistics import spread

from .cases import BATCH_SIZE, ScaledTraining


def of_training(cases: Sequence[ScaledTraining]) -> list[Table]:
    """Returns a row per number of workers and learning rate; a dash where most seeds do not reach the target."""
    columns = (
        *numbers("d", "k", "batch of all workers"),
        *texts("rate"),
        *numbers("g", "learning rate"),
        *numbers(",.0f", "examples", "p10", "p90"),
        *numbers("d", "not reached", "seeds"),
    )
    rows = []
    for case in cases:
        examples = spread(case.examples)
        figures = [None] * 3 if case.is_lost else [examples.median, examples.p10, examples.p90]
        rows.append([case.k, BATCH_SIZE * case.k, case.scaling, case.lr, *figures, case.num_lost, len(case.examples)])
    return [Table("Examples to the target", columns, rows)]
