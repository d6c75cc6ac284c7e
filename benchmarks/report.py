"""From measurements to rows, and the files and the table that they are shown in."""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import sizes
from benchmarks.contenders import ASYNC, STOCK, Cell
from benchmarks.measure import Measurement

_TABLE_WIDTH = 140


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """The result of one contender in one cell, over its repetitions.

    Attributes:
        workload: "deep" or "wide".
        mode: "async" or "sync".
        ps: number of ps tasks.
        workers: number of workers.
        who: name of the contender.
        steps_per_sec: steps per second of one worker (mean over the workers), median over repetitions.
        steps_per_sec_min: the lowest of the repetitions.
        steps_per_sec_max: the highest.
        examples_per_sec: of all workers together, median.
        ratio_to_stock: `steps_per_sec` divided by that of the stock script; None without one.
        ratio_to_async: divided by that of update rule `async`, where the contenders are update rules; else None.
        cpu_secs_per_step: CPU seconds of all tasks, ps and workers, per step of a worker; median.
        other_cores: cores used meanwhile by other processes, median; well above 0 the rates are too low.
        repetitions: number of runs.
    """

    workload: str
    mode: str
    ps: int
    workers: int
    who: str
    steps_per_sec: float
    steps_per_sec_min: float
    steps_per_sec_max: float
    examples_per_sec: float
    ratio_to_stock: float | None
    ratio_to_async: float | None
    cpu_secs_per_step: float
    other_cores: float
    repetitions: int


def rows(cell: Cell, measurements: Mapping[str, Sequence[Measurement]]) -> list[Row]:
    """One row for each contender.

    Args:
        cell: what was run.
        measurements: contender's name -> its repetitions, at least one.
    """
    medians = {who: statistics.median(m.steps_per_sec for m in runs) for who, runs in measurements.items()}
    return [_row(cell, who, repetitions, medians) for who, repetitions in measurements.items()]


def rounded(row: Any) -> dict[str, Any]:
    """The fields of a dataclass; numbers rounded to what a repetition can tell."""
    values = dataclasses.asdict(row)
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in values.items()}


def to_json(row: Row) -> str:
    """The row as one line."""
    return json.dumps(rounded(row))


def print_table(all_rows: Sequence[Row], file: TextIO) -> None:
    """The rows as a table for a person; nothing when there are none."""
    if not all_rows:
        return
    ratio = "÷ stock" if all_rows[0].ratio_to_async is None else "÷ async"
    table = Table(box=box.SIMPLE, title="steps/s of one worker: median (lowest..highest)")
    for name in ("workload", "mode", "ps", "workers", "who"):
        table.add_column(name, no_wrap=True)
    for name in ("steps/s", "", "examples/s", ratio, "CPU ms/step", "other cores"):
        table.add_column(name, justify="right", no_wrap=True)
    previous = None
    for row in all_rows:
        cell = (row.workload, row.mode, row.ps, row.workers)
        if previous not in (None, cell):
            table.add_section()
        previous = cell
        table.add_row(
            *map(str, cell),
            row.who,
            f"{row.steps_per_sec:.1f}",
            f"({row.steps_per_sec_min:.1f}..{row.steps_per_sec_max:.1f})",
            f"{row.examples_per_sec:.0f}",
            _ratio(row.ratio_to_stock if row.ratio_to_async is None else row.ratio_to_async),
            f"{1000 * row.cpu_secs_per_step:.1f}",
            f"{row.other_cores:.1f}",
        )
    # Rich would cut words to fit a narrow terminal, or the 80 columns it takes a file to have.
    console = Console(file=file)
    console.width = max(console.width, _TABLE_WIDTH)
    console.print(table)


def write_results(all_rows: Sequence[Row], folder: pathlib.Path) -> None:
    """`results.jsonl` and `results.csv`, a line per row."""
    folder.joinpath("results.jsonl").write_text("".join(to_json(row) + "\n" for row in all_rows))
    write_csv(all_rows, Row, folder / "results.csv")


def write_csv(all_rows: Sequence[Any], row_type: type, path: pathlib.Path) -> None:
    """A line per row, under the names of the fields.

    Args:
        all_rows: of one dataclass.
        row_type: that dataclass.
        path: of the file.
    """
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in dataclasses.fields(row_type)])
        writer.writeheader()
        writer.writerows(rounded(row) for row in all_rows)


def _row(cell: Cell, who: str, repetitions: Sequence[Measurement], medians: Mapping[str, float]) -> Row:
    rates = [m.steps_per_sec for m in repetitions]
    rate = medians[who]
    return Row(
        workload=cell.workload,
        mode=cell.mode,
        ps=cell.num_ps,
        workers=cell.num_workers,
        who=who,
        steps_per_sec=rate,
        steps_per_sec_min=min(rates),
        steps_per_sec_max=max(rates),
        examples_per_sec=rate * cell.num_workers * sizes.BATCH_SIZE,
        ratio_to_stock=rate / medians[STOCK] if STOCK in medians else None,
        ratio_to_async=rate / medians[ASYNC] if ASYNC in medians else None,
        cpu_secs_per_step=statistics.median(m.cpu_secs_per_step for m in repetitions),
        other_cores=statistics.median(m.other_cores for m in repetitions),
        repetitions=len(repetitions),
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
