"""What the launcher adds to `<logdir>/summary.json`, which the chief writes."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from ps_trainer.launch.supervisor import RunOutcome

NAME = "summary.json"


def complete(
    logdir: pathlib.Path,
    outcome: RunOutcome,
    *,
    started_at: float,
    restarts: Mapping[str, int],
    faults: Sequence[Mapping[str, Any]],
) -> None:
    """Adds `restarts` (a count for each task that was started again) and `faults` (what became of each).

    A chief that was killed has left no summary, or that of an earlier run: then there is one that says so.

    Args:
        logdir: of the run; its tasks have ended.
        outcome: of the run.
        started_at: seconds since the epoch.
        restarts: see above.
        faults: see above.
    """
    path = logdir / NAME
    summary = _read(path, started_at)
    if summary is None or (outcome.exit_code and summary.get("status") == "done"):
        status = "interrupted" if outcome.signum else "failed" if outcome.exit_code else "done"
        culprit = f"{outcome.culprit.name}: {outcome.problem}" if outcome.culprit else ""
        summary = (summary or {"workers": {}}) | {"status": status, "reason": culprit}
    temporary = path.with_suffix(".part")
    text = json.dumps(summary | {"restarts": dict(restarts), "faults": list(faults)}, indent=2) + "\n"
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        logging.warning("%s has no restarts and faults: %s", path, error)


def _read(path: pathlib.Path, started_at: float) -> dict[str, Any] | None:
    """The summary, if there is one of this run."""
    try:
        if path.stat().st_mtime < started_at:
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
