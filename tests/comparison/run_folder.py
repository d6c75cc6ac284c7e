"""Writes the files of a run as tasks and launcher write them, with numbers that are known."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

START = 1000.0
BATCH_SIZE = 10


def report(
    secs: float, local_step: int, global_step: int, loss: float | None, rate: float, **more: float
) -> dict[str, Any]:
    """A worker's report `secs` after the first step began, with `rate` steps per second since the one before."""
    return {
        "wall_time": START + secs, "kind": "train", "global_step": global_step, "local_step": local_step,
        "steps_per_sec": rate, "examples_per_sec": rate * BATCH_SIZE, "loss": loss, **more,
    }  # fmt: skip


def write(
    folder: pathlib.Path,
    reports: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    summary: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    steps: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> pathlib.Path:
    """Writes a run's folder and returns it; `reports` and `steps` give the lines of each task's file."""
    for name, files in (("metrics", reports), ("steps", steps or {})):
        for task, lines in files.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / f"{task}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = {"cluster": {"ps": ["h:1"], "worker": ["h:2", "h:3"]}, "train": dict(settings or {"update": "async"})}
    (folder / "config.json").write_text(json.dumps(config))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder
