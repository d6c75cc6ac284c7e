"""The history of the step-rate benchmark: a CSV file with a line for each commit, workload and contender measured."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks.step_rate_rows import StepRateRow

COLUMNS = (
    "commit",
    "date",
    "cpu",
    "cores",
    "load",
    "workload",
    "mode",
    "ps",
    "workers",
    "who",
    "repetitions",
    "steps_per_sec",
    "steps_per_sec_min",
    "steps_per_sec_max",
    "cpu_secs_per_step",
    "other_cores",
    "ratio_to_stock",
    "ratio_to_best_peer",
    "share_of_engine",
)


def add(path: pathlib.Path, origin: Mapping[str, Any], row: StepRateRow) -> None:
    """Appends the line of a row; creates the file with its header.

    Args:
        path: The file.
        origin: Provenance of the run.
        row: Result to add.
    """
    where = {
        "commit": (origin["commit"] or "unknown")[:7] + ("+" if origin["has_uncommitted_changes"] else ""),
        "date": origin["started"][:10],
        "cpu": origin["cpu"],
        "cores": origin["cores"],
        "load": origin["load_average"][0],
    }
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow({**row.values(), **where})
