"""What training in virtual time says: text for a terminal, figures for a file, and its tables."""

from __future__ import annotations

import math
import pathlib
from typing import Any

from ps_trainer.simulation.replay.run import Trained
from ps_trainer.simulation.report import write_csv

_SHARE = 0.05  # of the updates, at the start and at the end, over which the training loss is averaged


def describe(trained: Trained) -> str:
    """The figures as text."""
    curve, end = trained.curve, trained.evaluations[-1]
    count = max(1, int(_SHARE * len(curve.loss)))
    updates = "update" if count == 1 else f"{count} updates"
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in end.metrics.items())
    lines = [
        f"{'training loss':18}{curve.loss[:count].mean():.4g} in the first {updates},"
        f" {curve.loss[-count:].mean():.4g} in the last {updates}",
        f"{'test':18}{metrics}; after {end.version} updates, {end.secs:.4g} s of virtual time",
    ]
    if trained.has_diverged:
        lines.append(
            f"{'diverged':18}a loss on the way to update {curve.version[-1]} is not finite; nothing follows it"
        )
    return "\n".join(lines)


def to_json(trained: Trained) -> dict[str, Any]:
    """The figures as JSON values; a number that is not finite as text, as JSON has none."""
    end = trained.evaluations[-1]
    return {
        "num_updates": end.version,
        "virtual_secs": end.secs,
        "has_diverged": trained.has_diverged,
        "last_loss": _finite(trained.curve.loss[-1]),
        "test": {name: _finite(value) for name, value in end.metrics.items()},
    }


def write_tables(trained: Trained, folder: pathlib.Path) -> None:
    """Writes `curve.csv`, a line per update, and `evaluations.csv`."""
    curve = trained.curve
    columns = (curve.version, curve.secs, curve.num_steps, curve.loss, *curve.metrics.values())
    rows = zip(*(column.tolist() for column in columns), strict=True)
    write_csv(folder / "curve.csv", ("global_step", "secs", "steps", "loss", *curve.metrics), rows)
    names = list(trained.evaluations[-1].metrics)
    evaluations = ([e.version, e.secs, *(e.metrics[name] for name in names)] for e in trained.evaluations)
    write_csv(folder / "evaluations.csv", ("global_step", "secs", *names), evaluations)


def _finite(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))
