"""Where the steps of a disturbed run went: applied, rolled back, or made by a worker that could not write it down.

A *lineage* is what is trained between two set-ups of the run's state by the chief: its metrics say at which step each
one begins ("initialised, at step 0", "restored …, at step 200"). The workers' step logs (`--step_log`) have a line for
each step that a worker has come back from. For lineage k, from step s(k) on:

    reached(k)      the largest global_step in a line of it, or s(k)
    rolled back     max(0, reached(k) - s(k+1)): updates that were made, and are made again
    logged          `async`: its lines, each of which is an update; rules that join several batches in an update: the
                    different values of global_step above s(k) in them
    unlogged        updates that must have been made, by the numbers of steps, and are in no line: in flight when their
                    worker was killed, or when the answer of a lost ps task did not come

    attempted = logged + unlogged = applied + rolled back,  applied = global_step at the end

so `unlogged` is what is left of the other three; the books are balanced if it is not negative and no more than one
step for each worker and incident (a kill, or a new lineage).
"""

from __future__ import annotations

import bisect
import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

# A chief without a step for longer than this was down, or waited for somebody.
PAUSE_SECS = 1.0

_START = re.compile(r", at step (?P<step>\d+)$")


class Start(NamedTuple):
    """The chief has set up the state: when (seconds since the epoch), and at which step."""

    wall_time: float
    step: int


class Line(NamedTuple):
    """A line of a step log."""

    wall_time: float
    worker: int
    global_step: int


class Rollback(NamedTuple):
    """Updates that were lost.

    Attributes:
        steps: how many.
        secs: time in which the chief trained since the state that was restored: what a checkpoint every so many
            seconds bounds. While the chief is down, nobody saves.
    """

    steps: int
    secs: float


class Account(NamedTuple):
    """The books of one run; see the module's docstring."""

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
        """Whether nothing is missing but what was in flight at an incident."""
        return 0 <= self.unlogged <= num_workers * (num_kills + self.num_lineages - 1)


def account(starts: Sequence[Start], lines: Iterable[Line], applied: int, is_joined: bool) -> Account:
    """The books of a run.

    Args:
        starts: of its lineages, at least one, in order.
        lines: of all workers.
        applied: global_step at the end.
        is_joined: whether an update joins several batches, of one worker or of several.
    """
    lineages: list[list[Line]] = [[] for _ in starts]
    times = [start.wall_time for start in starts]
    for line in sorted(lines):
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


def read(logdir: pathlib.Path, applied: int, is_joined: bool) -> Account:
    """The books of the run with this logdir.

    Raises:
        ValueError: its chief has never set up a state, or no step was logged.
    """
    states = _records(logdir / "metrics" / "worker-0.jsonl")
    starts = [
        Start(record["wall_time"], int(match["step"]))
        for record in states
        if record.get("kind") == "state" and (match := _START.search(record["state"]))
    ]
    lines = [
        Line(record["wall_time"], record["worker"], record["global_step"])
        for path in sorted((logdir / "steps").glob("worker-*.jsonl"))
        for record in _records(path)
    ]
    if not starts or not lines:
        raise ValueError(f"{logdir} has no set-up of a chief, or no step log; was it run with --step_log?")
    return account(starts, lines, applied, is_joined)


def _trained_secs(lines: Sequence[Line], step: int) -> float:
    """Seconds in which the chief made steps after `step`, without its pauses."""
    times = [line.wall_time for line in lines if line.worker == 0 and line.global_step >= step]
    pairs = zip(times, times[1:], strict=False)
    return sum(later - earlier for earlier, later in pairs if later - earlier < PAUSE_SECS)


def _records(path: pathlib.Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; a line that was cut off by a kill is left out."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [record for record in found if isinstance(record, dict)]
