"""The tables and the explanations of the experiment on what a ps task costs."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.base import Level, Results
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit.statistics import Line

from .cases import Overheads, SizedModel


def tables(overheads: Overheads) -> list[Table]:
    """Step times of each model, and losses of each run."""
    return [_size_table(overheads.sizes, overheads.line), _equality_table(overheads.results)]


def notes(overheads: Overheads) -> list[str]:
    """Sentences for the report."""
    line, differences = overheads.line, overheads.results.figures("loss_difference")
    return [
        *([f"Overhead per step = {line.a:.2f} ms + M · {line.b / 1000:.4f} s/MB."] if line else []),
        f"{sum(one == 0 for one in differences)} of {len(differences)} runs have the same losses to the last bit.",
        "Both sides compute with the same number of threads per op and without TensorFlow's graph rewriting. With"
        " other numbers of threads a product of large matrices (1,024 × 1,024) is summed in another order, and losses"
        " differ by some 1e-7: the one difference found while this was built. It is of the threads, not of the ps"
        " tasks.",
        "One worker and one ps task without a pause keep two cores some 75 % busy. That is what is measured here, not"
        " contention: times count wherever other programs took less than a tenth of that.",
        "The ps task pays for copies: parameters and gradient are packed, sent and unpacked, once each way.",
    ]


def _size_table(sizes: Sequence[SizedModel], line: Line | None) -> Table:
    columns = (
        *texts("model"),
        *numbers(",d", "parameters"),
        *(*numbers(".2f", "local step", unit="ms"), *numbers(".2f", "p10", "p90")),
        *(*numbers(".2f", "step with a ps", unit="ms"), *numbers(".2f", "p10", "p90")),
        *numbers(".2f", "overhead", "a + b·M", unit="ms"),
        *texts("disturbed"),
    )
    rows = [
        [size.model, size.parameters, *size.local, *size.cluster, size.overhead_ms]
        + [line.at(size.megabytes) if line else None, "yes" if size.is_disturbed else "no"]
        for size in sizes
    ]
    return Table("Step with and without a ps task; medians of runs", columns, rows, Level.PROCESSES)


def _equality_table(results: Results) -> Table:
    columns = (
        *texts("run"),
        *numbers("d", "steps"),
        *numbers(".4f", "first loss", "last loss"),
        *numbers(".1e", "max |Δ loss|"),
    )
    names = ("num_steps", "first_loss", "last_loss", "loss_difference")
    rows = [[result.run.key, *(result.figures[name] for name in names)] for result in results]
    return Table("Losses of one process and of a cluster", columns, rows, Level.PROCESSES)
