"""Adds restarts and faults to `<logdir>/summary.json`, which the chief writes."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from ps_trainer.errors import EXIT_USAGE
from ps_trainer.launch.injector import FaultResult
from ps_trainer.launch.supervisor import RunOutcome

NAME = "summary.json"


def complete(
    logdir: pathlib.Path,
    outcome: RunOutcome,
    *,
    started_at: float,
    restarts: Mapping[str, int],
    faults: Sequence[FaultResult],
) -> None:
    """Adds `restarts` (a count for each restarted task) and `faults` (the result of each).

    A killed chief leaves no summary, or the summary of an earlier run. Then this writes a summary with the run's
    status. A run that was refused leaves the summary of an earlier run as it is.

    Args:
        logdir: Folder of the run, whose tasks have ended.
        outcome: How the run ended.
        started_at: Start of the run in seconds since the epoch.
        restarts: Number of restarts of each restarted task.
        faults: Result of each fault, from `Injector.report`.
    """
    path = logdir / NAME
    summary = _read(path, started_at)
    # The chief removes an earlier summary when it sets up a run, so this run was refused before that.
    if summary is None and outcome.exit_code == EXIT_USAGE and path.exists():
        return
    # A chief that was done has written "done", and cannot know that another task failed after it.
    if summary is None or (outcome.exit_code and summary.get("status") == "done"):
        status = "interrupted" if outcome.signum else "failed" if outcome.exit_code else "done"
        culprit = f"{outcome.culprit.name}: {outcome.problem}" if outcome.culprit else ""
        summary = (summary or {"workers": {}}) | {"status": status, "reason": culprit}
    # A reader, or a full disk, must never find half a summary in place of the chief's.
    temporary = path.with_suffix(".part")
    text = (
        json.dumps(summary | {"restarts": dict(restarts), "faults": [fault.as_json() for fault in faults]}, indent=2)
        + "\n"
    )
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        logging.warning("could not add restarts and faults to %s: %s", path, error)


def _read(path: pathlib.Path, started_at: float) -> dict[str, Any] | None:
    """Returns the summary that this run has written, or None."""
    try:
        if path.stat().st_mtime < started_at:
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
