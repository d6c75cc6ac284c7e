"""The worker's side of injected faults: it reports at once that it has reached a step, and raises errors when due.

The launcher passes these steps and errors as JSON in the environment variable `PS_TRAINER_FAULTS`:

    {"steps": [50, 200], "raise": [{"step": 100, "text": "raise:worker:1@step=100"}]}

Without that variable the worker does nothing here, and a step costs nothing.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ps_trainer.disturbances.faults import VARIABLE
from ps_trainer.errors import RunError
from ps_trainer.metrics.writer import MetricsWriter


class InjectedFaultError(RunError):
    """An error that `--fault=raise:…` has requested."""


class Raise(NamedTuple):
    """An error to raise.

    Attributes:
        step: The error is raised after the first step that reaches this `global_step`.
        text: The fault as the user gave it.
    """

    step: int
    text: str


class Drill:
    """Reports and raises for one worker after each step.

    Args:
        steps: Steps at which a fault is due for any task, ascending.
        raises: Errors that this worker must raise.
        task_name: Name of this worker.
        writer: Writer of its metrics.
    """

    def __init__(self, steps: Sequence[int], raises: Sequence[Raise], task_name: str, writer: MetricsWriter):
        self._steps = list(steps)
        self._raises = list(raises)
        self._task_name = task_name
        self._writer = writer
        self._next = self._steps[0] if self._steps else math.inf

    def after_step(self, global_step: int) -> None:
        """Reports each step that is now reached, once.

        Args:
            global_step: Value of `global_step` after the step.

        Raises:
            InjectedFaultError: a requested error is due.
        """
        # This comparison is all that most steps cost.
        if global_step < self._next:
            return
        self._writer.reached(global_step)
        # Updates of other workers make `global_step` skip values, so one step may reach several.
        while self._steps and self._steps[0] <= global_step:
            self._steps.pop(0)
        self._next = self._steps[0] if self._steps else math.inf
        for due in [due for due in self._raises if due.step <= global_step]:
            self._raises.remove(due)
            self._writer.event("raise", self._task_name, global_step, fault=due.text)
            raise InjectedFaultError(f"raised on purpose at step {global_step}, by --fault={due.text}")


def create(task_name: str, writer: MetricsWriter, environ: Mapping[str, str] = os.environ) -> Drill | None:
    """The drill of the worker `task_name`; None if no faults were requested."""
    text = environ.get(VARIABLE)
    if not text:
        return None
    asked = json.loads(text)
    return Drill(asked["steps"], [Raise(**one) for one in asked["raise"]], task_name, writer)
