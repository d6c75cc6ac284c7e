"""`ClusterFinding`: one line about whether a cluster will work, and the fix. Imports no TensorFlow.

The doctor prints findings. Before a task starts, it logs the findings about itself. One place words each kind:

    checks.py                      names, ports and interfaces
    runtime/logdir_checks.py       the folder of a run
    runtime/task_fingerprint.py    what a task reports about itself
    runtime/reachability.py        its connections
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
class ClusterFinding:
    """The result of one check.

    Attributes:
        level: OK, WARNING, FAIL, or UNKNOWN if the check needs another machine.
        topic: Topic in one word.
        text: Result in words.
        fix: Change that solves the problem; empty if there is no problem.
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
        """Returns the finding as a line of the doctor's output."""
        text = " ".join(self.message.split())
        return f"{self.level.ljust(_LEVEL_COLUMN)}{self.topic.ljust(_TOPIC_COLUMN)}{text}"


def will_fail(findings: Iterable[ClusterFinding]) -> bool:
    """Returns whether at least one finding predicts a failure."""
    return any(finding.level == FAIL for finding in findings)
