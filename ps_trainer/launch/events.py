"""What the launcher itself does to a run, as lines of metrics: `<logdir>/metrics/launcher.jsonl`.

    {"wall_time": 1690000000.0, "kind": "event", "event": "kill", "task": "worker-1", "global_step": 203,
     "fault": "kill:worker:1@step=200"}

`event` is kill, term, freeze and continue, cut and restore, slow and even, missed (the task had done its work before),
or restart with `number` and `delay_secs`. A worker writes the event raise into its own file, in the same form.
`global_step` is the highest that a worker had reported.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

from absl import logging

NAME = "launcher.jsonl"


class EventLog:
    """Appends to the file; it is made with the first event.

    Args:
        folder: of the metrics; made if need be.
        wall_clock: seconds since the epoch.
    """

    def __init__(self, folder: pathlib.Path, wall_clock: Callable[[], float] = time.time):
        self._path = folder / NAME
        self._wall_clock = wall_clock

    def write(self, event: str, task: str, global_step: int | None, **details: Any) -> None:
        """Writes one event of a task; complete in the file on return. What cannot be written is lost with a warning."""
        record = {"wall_time": self._wall_clock(), "kind": "event", "event": event, "task": task}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record | {"global_step": global_step} | details) + "\n")
        except OSError as error:  # no run ends because its disk is full
            logging.warning("the event %s of %s is not written: %s", event, task, error)
