"""`Restarts`: decides which tasks are restarted, how often, and after which delay."""

from __future__ import annotations

from collections import Counter

from ps_trainer.errors import EXIT_DONE, EXIT_USAGE
from ps_trainer.launch.process import TaskProcess

# Even the longest delay is far below the default of --recover_timeout_secs, for which the other tasks wait.
BACKOFF_SECS = (1.0, 2.0, 4.0, 8.0)  # the last one applies to all further restarts
# A task that ran for this long did not die of the previous cause, so its delays start at 1 s again.
STEADY_SECS = 60.0

# A task that ended only because of another task is not to blame: its limit is this many times higher.
PEER_SHARE = 10


class Restarts:
    """Counts the restarts of each task and enforces their limit.

    A task is not restarted if it was done, or if the launcher asked it to end. Nor is it if its input was wrong: the
    same command would fail again.

    Args:
        max_restarts: Number of restarts of each task after its own failures.
    """

    def __init__(self, max_restarts: int = 0):
        self.max_restarts = max_restarts
        self._counts: Counter[str] = Counter()
        self._peer_counts: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """The number of restarts of each task that was restarted."""
        return dict(sorted((self._counts + self._peer_counts).items()))

    def delay_for(self, task: TaskProcess, *, is_peer_failure: bool = False) -> float | None:
        """Counts a restart of a task that has ended; returns the delay in seconds, or None if it is not restarted.

        Args:
            task: Task that has ended.
            is_peer_failure: True if the task reported that it ends because of another task.
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

    def restart_message(self, task: TaskProcess, delay_secs: float, *, is_peer_failure: bool = False) -> str:
        """Returns the launcher's message about the restart that was counted last."""
        if is_peer_failure:
            return f"restarted in {delay_secs:g} s (another task's failure)"
        number = self._counts[task.name]
        return f"restarted in {delay_secs:g} s (restart {number} of {self.max_restarts})"

    def problem(self, task: TaskProcess) -> str:
        """Returns in words how a task ended that is not restarted."""
        times = self.counts.get(task.name, 0)
        return f"{task.outcome()}, after {times} restart{'s' if times > 1 else ''}" if times else task.outcome()
