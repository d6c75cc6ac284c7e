"""The table of the experiment on linear scaling."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts

from .cases import BATCH_SIZE, ScaledTraining


def of_training(cases: Sequence[ScaledTraining]) -> list[Table]:
    """Returns a row per number of workers and learning rate."""
    columns = (
        *numbers("d", "k", "batch of all workers"),
        *texts("rate"),
        *numbers("g", "learning rate"),
        *numbers(",.0f", "examples", "p10", "p90"),
        *numbers("d", "not reached", "seeds"),
    )
    rows = [
        [one.k, BATCH_SIZE * one.k, one.scaling, one.lr, *one.cells("examples"), one.num_lost, len(one.runs)]
        for one in cases
    ]
    return [Table("Examples to the target", columns, rows)]
