"""`DueFaults`: what the launcher tells a worker about the faults of a run. Imports no TensorFlow."""

from __future__ import annotations

import json
from typing import NamedTuple

# The environment variable in which the launcher passes a worker its `DueFaults`.
VARIABLE = "PS_TRAINER_FAULTS"


class Raise(NamedTuple):
    """An error to raise.

    Attributes:
        step: The error is raised after the first step that reaches this `global_step`.
        text: The fault as the user gave it.
    """

    step: int
    text: str


class DueFaults(NamedTuple):
    """The steps that a worker reports at once, and the errors that it raises.

    Attributes:
        steps: Steps at which a fault is due for any task, ascending.
        raises: Errors that this worker must raise.
    """

    steps: tuple[int, ...]
    raises: tuple[Raise, ...] = ()

    def to_text(self) -> str:
        """Returns the environment variable: `{"steps": [50], "raise": [{"step": 100, "text": "raise:…"}]}`."""
        return json.dumps({"steps": self.steps, "raise": [due._asdict() for due in self.raises]})

    @classmethod
    def from_text(cls, text: str) -> DueFaults:
        """Reads the value of the environment variable."""
        values = json.loads(text)
        return cls(tuple(values["steps"]), tuple(Raise(**due) for due in values["raise"]))
