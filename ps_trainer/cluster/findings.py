"""`Finding`: one line about whether a cluster will work, and what to change. Imports no TensorFlow.

The doctor prints findings; a task logs, before it starts, those that are about itself. Each is worded in one
place: names, ports and interfaces in `checks.py`, the folder of a run in `runtime/logdir_checks.py`, what a task tells
of itself in `runtime/task_info.py`, what it reaches in `runtime/reachability.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

OK = "ok"
UNKNOWN = "not known"
WARNING = "warning"
FAIL = "will fail"

_LEVEL_COLUMN = 11
_TOPIC_COLUMN = 12


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was found about one thing.

    Attributes:
        level: OK, WARNING, FAIL, or UNKNOWN where this machine cannot tell.
        topic: what it is about, one word.
        text: what was found.
        fix: what to change; empty where there is nothing to.
    """

    level: str
    topic: str
    text: str
    fix: str = ""

    @property
    def message(self) -> str:
        """Text and fix as one sentence, for errors and log lines."""
        return f"{self.text}; {self.fix}" if self.fix else self.text

    def line(self) -> str:
        """The finding as a line of the doctor's."""
        text = " ".join(self.message.split())
        return f"{self.level.ljust(_LEVEL_COLUMN)}{self.topic.ljust(_TOPIC_COLUMN)}{text}"


def will_fail(findings: Iterable[Finding]) -> bool:
    """Whether one of them says that something will fail."""
    return any(finding.level == FAIL for finding in findings)
