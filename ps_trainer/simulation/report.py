"""Report of a simulation: text for a terminal, figures as JSON, and tables as CSV."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import numpy as np

from ps_trainer.simulation.schedule import DROPPED, ScheduleBlock
from ps_trainer.simulation.summary import Summary, TimeSpread

_BAR = 40  # characters of the longest bar
_BINS = 12

STEP_COLUMNS = (
    *("worker", "local_step", "gs_read", "gs_applied", "staleness", "dropped"),
    *("t_start", "t_pull_done", "t_compute_done", "t_push_done"),
)
"""Columns of the table of steps, with one line per step of a worker; records of real clusters have the same names."""


def describe(summary: Summary) -> str:
    """Formats the figures as text, with a histogram of the staleness."""
    used, dropped = int(summary.used.sum()), int(summary.dropped.sum())
    wait = summary.wait_share
    lines = [
        f"{summary.num_updates} updates, without the first {summary.num_warmup_updates}",
        f"{'':18}{'mean':>11}{'p10':>11}{'p50':>11}{'p90':>11}",
        f"{'time per update':18}{_spread_text(summary.update_secs)}",
        f"{'step of a worker':18}{_spread_text(summary.step_secs)}",
        f"{'throughput':18}{summary.updates_per_sec:.4g} updates/s, {summary.gradients_per_sec:.4g} pushes used/s",
        f"{'pushes':18}{used} used, {dropped} dropped ({summary.dropped_share:.1%})",
        f"{'used per worker':18}{summary.used.min()} to {summary.used.max()}",
        f"{'waiting':18}{np.mean(wait):.1%} of a worker's time ({wait.min():.1%} to {wait.max():.1%})",
        f"{'staleness':18}mean {summary.staleness_mean():.4g}, p50 {summary.staleness_percentile(50)},"
        f" p99 {summary.staleness_percentile(99)}, max {len(summary.staleness) - 1}",
    ]
    if summary.local.any():
        lines.insert(6, f"{'local steps':18}{summary.local.sum()} without a push")
    return "\n".join([*lines, *_histogram(summary)])


def to_json(summary: Summary) -> dict[str, Any]:
    """Returns the figures as JSON values, with times in seconds."""
    return {
        "num_workers": summary.num_workers,
        "num_updates": summary.num_updates,
        "num_warmup_updates": summary.num_warmup_updates,
        "num_steps": summary.num_steps,
        "duration_secs": summary.duration_secs,
        "update_secs": summary.update_secs._asdict(),
        "step_secs": summary.step_secs._asdict(),
        "updates_per_sec": summary.updates_per_sec,
        "gradients_per_sec": summary.gradients_per_sec,
        "gradients_used": int(summary.used.sum()),
        "gradients_dropped": int(summary.dropped.sum()),
        "dropped_share": summary.dropped_share,
        "wait_share": float(np.mean(summary.wait_share)),
        "staleness": {
            "mean": summary.staleness_mean(),
            "deviation": summary.staleness_deviation(),
            "p50": summary.staleness_percentile(50),
            "p99": summary.staleness_percentile(99),
            "max": len(summary.staleness) - 1,
        },
    }


def write_tables(summary: Summary, folder: pathlib.Path) -> None:
    """Writes `staleness.csv` and `workers.csv`."""
    write_csv(folder / "staleness.csv", ("staleness", "gradients"), enumerate(summary.staleness.tolist()))
    columns = (summary.used, summary.dropped, summary.local, summary.mean_staleness, summary.wait_share)
    header = ("worker", "used", "dropped", "local_steps", "mean_staleness", "wait_share")
    rows = zip(range(summary.num_workers), *(column.tolist() for column in columns), strict=True)
    write_csv(folder / "workers.csv", header, rows)


def write_steps(blocks: Iterable[ScheduleBlock], file: TextIO) -> Iterator[ScheduleBlock]:
    """Writes the steps of each block as CSV and then yields the block.

    Args:
        blocks: Blocks of a schedule.
        file: File that is open for writing. It gets a line of names and a line per step. Steps are numbered from 1.
            gs_applied is global_step after the update that has the step's gradient, empty if no update has it.
    """
    writer = csv.writer(file)
    writer.writerow(STEP_COLUMNS)
    for block in blocks:
        steps = block.steps
        applied = ["" if update < 0 else update + 1 for update in steps.update.tolist()]
        times = (steps.t_start, steps.t_pull_done, steps.t_compute_done, steps.t_push_done)
        columns = (steps.worker, steps.local_step + 1, steps.version, applied, steps.staleness)
        writer.writerows(zip(*columns, (steps.update == DROPPED).astype(int), *times, strict=True))
        yield block


def write_csv(path: pathlib.Path, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Writes a table as CSV, with a line of names first."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _spread_text(spread: TimeSpread) -> str:
    return "".join(f"{1000 * secs:>8.4g} ms" for secs in spread)


def _histogram(summary: Summary) -> list[str]:
    """Formats a line per bin up to the 99th percentile, and a line for everything above."""
    counts = summary.staleness
    # Rounded up, so that at most _BINS bins reach to the 99th percentile.
    width = -(-(summary.staleness_percentile(99) + 1) // _BINS)
    num_bins = -(-(summary.staleness_percentile(99) + 1) // width)
    bins = [(f"{i * width}" if width == 1 else f"{i * width}-{(i + 1) * width - 1}") for i in range(num_bins)]
    sizes = [int(counts[i * width : (i + 1) * width].sum()) for i in range(num_bins)]
    above = int(counts[num_bins * width :].sum())
    if above:
        bins.append(f">{num_bins * width - 1}")
        sizes.append(above)
    total, largest = sum(sizes), max(sizes)
    return [
        f"{label:>16}  {size / total:>6.1%} {'#' * round(_BAR * size / largest)}".rstrip()
        for label, size in zip(bins, sizes, strict=True)
    ]
