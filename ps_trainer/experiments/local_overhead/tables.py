"""The tables and the explanations of the experiment on the cost of a ps task."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit.statistics import Line

from .cases import Overheads, SizedModel, line_text


def tables(overheads: Overheads) -> list[Table]:
    """Returns the tables of step times of each model and of losses of each run."""
    return [_size_table(overheads.sizes, overheads.line), _equality_table(overheads.results)]


def notes(overheads: Overheads) -> list[str]:
    """Returns the notes of the report."""
    differences = overheads.results.figures("loss_difference")
    return [
        *([f"Overhead per step = {line_text(overheads.line)}."] if overheads.line else []),
        f"{sum(one == 0 for one in differences)} of {len(differences)} runs have the same losses to the last bit.",
    ]


def _size_table(sizes: Sequence[SizedModel], line: Line | None) -> Table:
    columns = (
        *texts("model"),
        *numbers(",d", "parameters"),
        *(*numbers(".2f", "local step", unit="ms"), *numbers(".2f", "p10", "p90")),
        *(*numbers(".2f", "step with a ps", unit="ms"), *numbers(".2f", "p10", "p90")),
        *(*numbers(".2f", "step of the TF1 script", unit="ms"), *numbers(".2f", "p10", "p90")),
        *numbers(".2f", "overhead, mean", "a + b·M", unit="ms"),
        *texts("disturbed"),
    )
    rows = [
        [size.model, size.parameters, *size.local, *size.cluster, *(size.stock or [None] * 3), size.overhead.value]
        + [line.at(size.megabytes) if line else None, "yes" if size.is_disturbed else "no"]
        for size in sizes
    ]
    return Table("Step with and without a ps task; medians of runs", columns, rows, Level.PROCESSES)


def _equality_table(results: Results) -> Table:
    columns = (
        *texts("run"),
        *numbers("d", "steps"),
        *numbers(".4f", "first loss", "last loss"),
        *numbers(".1e", "largest difference of a loss", "of the TF1 script"),
    )
    rows = [
        [result.run.key, found.num_steps, found.first_loss, found.last_loss, found.loss_difference]
        + [found.stock_loss_difference]
        for result in results
        for found in [result.figures]
    ]
    return Table("Losses of one process and of a cluster", columns, rows, Level.PROCESSES)
