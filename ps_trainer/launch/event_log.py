"""`EventLog`: the faults and restarts that the launcher causes, as lines in `<logdir>/metrics/launcher.jsonl`.

    {"wall_time": 1690000000.0, "kind": "event", "event": "kill", "task": "worker-1", "global_step": 203,
     "fault": "kill:worker:1@step=200"}

`event` is kill, term, freeze and continue, cut and restore, slow and even, missed (the task had finished before), or
restart with `number` and `delay_secs`. A worker writes the event raise into its own file, in the same form.
`global_step` is the highest step that a worker had reported.
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
    """Appends events to the file, which the first event creates.

    Args:
        folder: Folder of the metrics, created if it is missing.
        wall_time_fn: Time in seconds since the epoch.
    """

    def __init__(self, folder: pathlib.Path, wall_time_fn: Callable[[], float] = time.time):
        self._path = folder / NAME
        self._wall_time_fn = wall_time_fn

    def write(self, event: str, task: str, global_step: int | None, **details: Any) -> None:
        """Writes one event of a task, complete on return. If writing fails, the event is lost with a warning."""
        record = {"wall_time": self._wall_time_fn(), "kind": "event", "event": event, "task": task}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Opened for each event: events are rare, and a line must survive if the launcher is killed next.
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record | {"global_step": global_step} | details) + "\n")
        except OSError as error:  # a full disk must not end the run
            logging.warning("could not write the event %s of %s: %s", event, task, error)
