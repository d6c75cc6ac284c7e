"""Report of training in virtual time: text for a terminal, figures as JSON, and tables as CSV."""

from __future__ import annotations

import math
import pathlib
from typing import Any

from ps_trainer.simulation.replay.train import ReplayResult
from ps_trainer.simulation.report import write_csv

_SHARE = 0.05  # share of the updates, at the start and at the end, whose training loss is averaged


def describe(trained: ReplayResult) -> str:
    """Formats the figures as text."""
    curve, end = trained.curve, trained.evaluations[-1]
    count = max(1, int(_SHARE * len(curve.loss)))
    updates = "update" if count == 1 else f"{count} updates"
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in end.metrics.items()) or "no examples"
    lines = [
        f"{'training loss':18}{curve.loss[:count].mean():.4g} in the first {updates},"
        f" {curve.loss[-count:].mean():.4g} in the last {updates}",
        f"{'test':18}{metrics}; after {end.version} updates, {end.secs:.4g} s of virtual time",
    ]
    if trained.has_diverged:
        lines.append(f"{'diverged':18}a loss before update {curve.version[-1]} is not finite; the run stops there")
    return "\n".join(lines)


def to_json(trained: ReplayResult) -> dict[str, Any]:
    """Returns the figures as JSON values; numbers that are not finite become text, because JSON does not have them."""
    end = trained.evaluations[-1]
    return {
        "num_updates": end.version,
        "virtual_secs": end.secs,
        "has_diverged": trained.has_diverged,
        "last_loss": _finite(trained.curve.loss[-1]),
        "test": {name: _finite(value) for name, value in end.metrics.items()},
    }


def write_tables(trained: ReplayResult, folder: pathlib.Path) -> None:
    """Writes `curve.csv`, with a line per update, and `evaluations.csv`."""
    curve = trained.curve
    columns = (curve.version, curve.secs, curve.num_steps, curve.loss, *curve.metrics.values())
    rows = zip(*(column.tolist() for column in columns), strict=True)
    write_csv(folder / "curve.csv", ("global_step", "secs", "steps", "loss", *curve.metrics), rows)
    names = list(trained.evaluations[-1].metrics)
    evaluations = ([e.version, e.secs, *(e.metrics[name] for name in names)] for e in trained.evaluations)
    write_csv(folder / "evaluations.csv", ("global_step", "secs", *names), evaluations)


def _finite(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))
