"""`StepReporter`: writes a worker's steps for `benchmarks.step_rate`, and its losses; the standard library only."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Sequence

_REPORT_SECS = 1.0


class StepReporter:
    """Writes a line `{"kind": "train", "wall_time": …, "local_step": …}` about once a second.

    Args:
        report_file: File for the lines; None = no file.
        losses_file: File for the list of all losses, written by `close`; None = losses are not kept.
    """

    def __init__(self, report_file: str | None, losses_file: str | None = None):
        # Buffered by lines, because the benchmark reads the file while the worker runs.
        self._file = open(report_file, "a", buffering=1, encoding="utf-8") if report_file else None  # noqa: SIM115
        self._losses_file = losses_file
        self._losses: list[float] = []
        self._num_steps = 0
        self._next_report_secs = 0.0

    def count_step(self, loss: float) -> None:
        """Counts a step; `loss` is the loss before its update."""
        self.count_steps([loss])

    def count_steps(self, losses: Sequence[float]) -> None:
        """Counts the steps of a call, of which each has a loss."""
        now = time.time()
        self._num_steps += len(losses)
        if self._losses_file:
            self._losses += map(float, losses)
        if self._file and now >= self._next_report_secs:
            self._next_report_secs = now + _REPORT_SECS
            self._file.write(json.dumps({"kind": "train", "wall_time": now, "local_step": self._num_steps}) + "\n")

    def close(self) -> None:
        """Writes the losses."""
        if self._file:
            self._file.close()
        if self._losses_file:
            pathlib.Path(self._losses_file).write_text(json.dumps(self._losses))
