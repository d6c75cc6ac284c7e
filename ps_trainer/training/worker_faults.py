"""The worker's side of injected faults: it reports at once that it has reached a step, and raises errors when due.

The launcher passes these steps and errors as `DueFaults` in an environment variable. Without that variable the worker
does nothing here, and a step costs nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from ps_trainer.disturbances.due_faults import VARIABLE, DueFaults
from ps_trainer.errors import RunError
from ps_trainer.metrics.writer import MetricsWriter


class InjectedFaultError(RunError):
    """An error that `--fault=raise:…` has requested."""


class WorkerFaults:
    """Reports and raises for one worker after each step.

    Args:
        due: Steps to report and errors to raise.
        task_name: Name of this worker.
        writer: Writer of its metrics.
    """

    def __init__(self, due: DueFaults, task_name: str, writer: MetricsWriter):
        self._steps = list(due.steps)
        self._raises = list(due.raises)
        self._task_name = task_name
        self._writer = writer
        self._next = self._steps[0] if self._steps else math.inf

    def is_due(self, global_step: int) -> bool:
        """Returns whether `after_step` would report or raise something."""
        return global_step >= self._next

    def after_step(self, global_step: int) -> None:
        """Reports each step that is now reached, once.

        Args:
            global_step: Value of `global_step` after the step.

        Raises:
            InjectedFaultError: A requested error is due.
        """
        # This comparison is all that most steps cost.
        if global_step < self._next:
            return
        self._writer.report_reached(global_step)
        # Updates of other workers make `global_step` skip values, so one step may reach several.
        while self._steps and self._steps[0] <= global_step:
            self._steps.pop(0)
        self._next = self._steps[0] if self._steps else math.inf
        for due in [due for due in self._raises if due.step <= global_step]:
            self._raises.remove(due)
            self._writer.event("raise", self._task_name, global_step, fault=due.text)
            raise InjectedFaultError(f"raised on purpose at step {global_step}, by --fault={due.text}")


def create(task_name: str, writer: MetricsWriter, environ: Mapping[str, str] = os.environ) -> WorkerFaults | None:
    """Returns the faults of the worker `task_name`; None if no faults were requested."""
    text = environ.get(VARIABLE)
    return WorkerFaults(DueFaults.from_text(text), task_name, writer) if text else None
