"""A worker's part in a drill: it tells at once when it has come to a step, and raises where that was asked for.

The launcher says by the environment variable `PS_TRAINER_FAULTS` what it needs, as JSON:

    {"steps": [50, 200], "raise": [{"step": 100, "text": "raise:worker:1@step=100"}]}

Without it nothing is done, and a step costs nothing.
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
    """A step that was asked to raise."""


class Raise(NamedTuple):
    """An error to raise after the first step that has reached `step`; `text` is what was asked for."""

    step: int
    text: str


class Drill:
    """What one worker does after each step.

    Args:
        steps: at which something is due, ascending.
        raises: errors of this worker's own.
        task_name: of this worker.
        writer: of its metrics.
    """

    def __init__(self, steps: Sequence[int], raises: Sequence[Raise], task_name: str, writer: MetricsWriter):
        self._steps = list(steps)
        self._raises = list(raises)
        self._task_name = task_name
        self._writer = writer
        self._next = self._steps[0] if self._steps else math.inf

    def after_step(self, global_step: int) -> None:
        """Says that a step is reached, once for each.

        Args:
            global_step: after the step.

        Raises:
            InjectedFaultError: that was asked for.
        """
        if global_step < self._next:
            return
        self._writer.reached(global_step)
        while self._steps and self._steps[0] <= global_step:
            self._steps.pop(0)
        self._next = self._steps[0] if self._steps else math.inf
        for due in [due for due in self._raises if due.step <= global_step]:
            self._raises.remove(due)
            self._writer.event("raise", self._task_name, global_step, fault=due.text)
            raise InjectedFaultError(f"raised on purpose at step {global_step}, by --fault={due.text}")


def create(task_name: str, writer: MetricsWriter, environ: Mapping[str, str] = os.environ) -> Drill | None:
    """The part of the worker `task_name` in a drill; None where there is none."""
    text = environ.get(VARIABLE)
    if not text:
        return None
    asked = json.loads(text)
    return Drill(asked["steps"], [Raise(**one) for one in asked["raise"]], task_name, writer)
