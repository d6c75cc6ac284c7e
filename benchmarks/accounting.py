"""Accounts for every step of a disturbed run: applied, rolled back, or in flight when its worker was killed.

A *lineage* begins when the chief sets up the run's state. The chief's metrics tell the step at which each lineage
begins ("initialised, at step 0", "restored …, at step 200"). The workers' step logs (`--step_log`) have a line for each
step that a worker finished. For lineage k, from step s(k) on:

    reached(k)      the largest global_step in a line of it, or s(k)
    rolled back     max(0, reached(k) - s(k+1)): updates that the next lineage repeats
    logged          `async`: its lines, each of which is an update; rules that join several batches in an update: the
                    different values of global_step above s(k) in its lines
    unlogged        updates that the step numbers imply and that are in no line: they were in flight when their worker
                    was killed, or when the answer of a lost ps task did not come

    attempted = logged + unlogged = applied + rolled back,  applied = global_step at the end

so `unlogged` follows from the other three. The books are balanced if `unlogged` is not negative and at most one step
for each worker and incident (a kill, or a new lineage).
"""

from __future__ import annotations

import bisect
import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

PAUSE_SECS = 1.0
"""A chief that makes no step for longer than this is down, or waits for another task."""

_START = re.compile(r", at step (?P<step>\d+)$")


class LineageStart(NamedTuple):
    """Time at which the chief set up the state, in seconds since the epoch, and the step of that state."""

    wall_time: float
    step: int


class LoggedStep(NamedTuple):
    """A line of a step log."""

    wall_time: float
    worker: int
    global_step: int


class Rollback(NamedTuple):
    """Updates that were lost.

    Attributes:
        steps: Number of updates.
        secs: Time that the chief had trained since the restored state. The interval of the checkpoints bounds it;
            times in which the chief is down do not count, because only the chief saves.
    """

    steps: int
    secs: float


class Account(NamedTuple):
    """Counts of one run's updates, which the module's docstring defines."""

    applied: int
    logged: int
    unlogged: int
    rollbacks: tuple[Rollback, ...]
    num_lineages: int

    @property
    def rolled_back(self) -> int:
        """Updates that were lost, over all rollbacks."""
        return sum(rollback.steps for rollback in self.rollbacks)

    @property
    def attempted(self) -> int:
        """Updates that were made."""
        return self.logged + self.unlogged

    def is_balanced(self, num_workers: int, num_kills: int) -> bool:
        """Returns whether only steps in flight at an incident are missing."""
        return 0 <= self.unlogged <= num_workers * (num_kills + self.num_lineages - 1)


def account(starts: Sequence[LineageStart], lines: Iterable[LoggedStep], applied: int, *, is_joined: bool) -> Account:
    """Counts the updates of a run.

    Args:
        starts: Starts of its lineages, at least one, in order.
        lines: Step log lines of all workers.
        applied: global_step at the end.
        is_joined: Whether an update joins several batches.
    """
    lineages: list[list[LoggedStep]] = [[] for _ in starts]
    times = [start.wall_time for start in starts]
    for line in sorted(lines):
        # By time and not by step: after a rollback the same steps come a second time.
        lineages[max(0, bisect.bisect_right(times, line.wall_time) - 1)].append(line)
    ends = [*(start.step for start in starts[1:]), applied]
    logged = made = 0
    rollbacks = []
    for start, end, found in zip(starts, ends, lineages, strict=True):
        steps = [line.global_step for line in found]
        reached = max(steps, default=start.step)
        logged += len({step for step in steps if step > start.step}) if is_joined else len(steps)
        made += max(reached, end) - start.step
        if reached > end:
            rollbacks.append(Rollback(reached - end, _trained_secs(found, end)))
    return Account(applied, logged, made - logged, tuple(rollbacks), len(starts))


def read(logdir: pathlib.Path, applied: int, *, is_joined: bool) -> Account:
    """Reads the files of a run and counts its updates.

    Raises:
        ValueError: The chief never set up a state, or the run has no step log.
    """
    states = _records(logdir / "metrics" / "worker-0.jsonl")
    starts = [
        LineageStart(record["wall_time"], int(match["step"]))
        for record in states
        if record.get("kind") == "state" and (match := _START.search(record["state"]))
    ]
    lines = [
        LoggedStep(record["wall_time"], record["worker"], record["global_step"])
        for path in sorted((logdir / "steps").glob("worker-*.jsonl"))
        for record in _records(path)
    ]
    if not starts or not lines:
        raise ValueError(f"{logdir} has no set-up of a chief, or no step log; was it run with --step_log?")
    return account(starts, lines, applied, is_joined=is_joined)


def _trained_secs(lines: Sequence[LoggedStep], step: int) -> float:
    """Returns the seconds in which the chief made steps after `step`, without its pauses."""
    times = [line.wall_time for line in lines if line.worker == 0 and line.global_step >= step]
    pairs = itertools.pairwise(times)
    return sum(later - earlier for earlier, later in pairs if later - earlier < PAUSE_SECS)


def _records(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the JSON lines of a file, without a last line that a kill has cut off."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [record for record in found if isinstance(record, dict)]
