"""`SaveTally`: counts the chief's saves, their time and their memory, for summary.json."""

from __future__ import annotations

import dataclasses
import resource
import sys
from typing import Any


@dataclasses.dataclass(kw_only=True)
class SaveTally:
    """The saves of one chief, in all runs that it joined.

    Attributes:
        completed: Number of checkpoints that were written.
        failed: Number of saves that failed.
        num_bytes: Size of the values of the last checkpoint.
        total_secs: Seconds of all saves, from the moment that they save to the end.
        longest_secs: Seconds of the longest save.
        longest_held_up_secs: Longest time for which a save kept the chief from its next step.
        held_bytes: Size of the variables, without logged tables, that a save keeps a second time on the ps tasks.
        longest_log_bytes: Largest size of the table rows that a save kept because they changed meanwhile.
    """

    completed: int = 0
    failed: int = 0
    num_bytes: int = 0
    total_secs: float = 0.0
    longest_secs: float = 0.0
    longest_held_up_secs: float = 0.0
    held_bytes: int = 0
    longest_log_bytes: int = 0

    def count_save(self, num_bytes: int, secs: float) -> None:
        """Counts a checkpoint that was written."""
        self.completed += 1
        self.num_bytes = num_bytes
        self.total_secs += secs
        self.longest_secs = max(self.longest_secs, secs)

    def count_hold_up(self, secs: float) -> None:
        """Counts a time for which a save kept the chief from its next step."""
        self.longest_held_up_secs = max(self.longest_held_up_secs, secs)

    def count_logged_bytes(self, num_bytes: int) -> None:
        """Counts the table rows that one save kept because they changed meanwhile."""
        self.longest_log_bytes = max(self.longest_log_bytes, num_bytes)

    def as_json(self) -> dict[str, Any]:
        """Returns the entry of the saves in summary.json."""
        return {
            "completed": self.completed,
            "failed": self.failed,
            "bytes": self.num_bytes,
            "mean_secs": self.total_secs / self.completed if self.completed else None,
            "longest_secs": self.longest_secs,
            "longest_held_up_secs": self.longest_held_up_secs,
            "held_bytes": self.held_bytes,
            "longest_log_bytes": self.longest_log_bytes,
            "chief_memory_bytes": _largest_memory_bytes(),
        }


def _largest_memory_bytes() -> int:
    """Returns the largest resident size of this process so far."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else 1024 * size
