"""Which tasks are started again, how often, and after how long."""

from __future__ import annotations

from collections import Counter

from ps_trainer.errors import EXIT_DONE, EXIT_USAGE
from ps_trainer.launch.process import TaskProcess

BACKOFF_SECS = (1.0, 2.0, 4.0, 8.0)  # the last one from then on
# A task that has run for so long was not ended by what ended the one before it: the delays begin anew.
STEADY_SECS = 60.0


# A task that ended only because of another one is not to blame: it is started again up to so many times as often.
PEER_SHARE = 10


class Restarts:
    """Counts the restarts of each task and allows no more than so many.

    Not started again: a task that was done, one whose input is wrong (the same command would find the same), and one
    that the launcher has asked to end.

    Args:
        max_restarts: for each task, of failures of its own.
    """

    def __init__(self, max_restarts: int = 0):
        self.max_restarts = max_restarts
        self._counts: Counter[str] = Counter()
        self._peer_counts: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """How often each task has been started again, of those that have."""
        return dict(sorted((self._counts + self._peer_counts).items()))

    def delay_for(self, task: TaskProcess, *, is_peer_failure: bool = False) -> float | None:
        """Counts a restart of a task that has ended; seconds until it, or None where it is not to be started again.

        Args:
            task: which.
            is_peer_failure: it has said that it ends because of another task.
        """
        if task.exit_code in (EXIT_DONE, EXIT_USAGE) or task.is_asked_to_end:
            return None
        counts = self._peer_counts if is_peer_failure else self._counts
        if counts[task.name] >= self.max_restarts * (PEER_SHARE if is_peer_failure else 1):
            return None
        counts[task.name] += 1
        in_a_row = 0 if task.elapsed_secs >= STEADY_SECS else self._in_a_row[task.name]
        self._in_a_row[task.name] = in_a_row + 1
        return BACKOFF_SECS[min(in_a_row, len(BACKOFF_SECS) - 1)]

    def words(self, task: TaskProcess, delay_secs: float, *, is_peer_failure: bool = False) -> str:
        """What the launcher says of the restart that was counted last."""
        if is_peer_failure:
            return f"started again in {delay_secs:g} s (another task's failure)"
        number = self._counts[task.name]
        return f"started again in {delay_secs:g} s (restart {number} of {self.max_restarts})"

    def problem(self, task: TaskProcess) -> str:
        """How a task ended that is not started again, in words."""
        times = self.counts.get(task.name, 0)
        return f"{task.outcome()}, after {times} restart{'s' if times > 1 else ''}" if times else task.outcome()
