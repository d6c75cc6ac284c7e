"""Runs one training whose tasks are killed, frozen or cut off, and checks that it leaves nothing behind."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from benchmarks import leftovers
from benchmarks.contenders import REPOSITORY
from benchmarks.report import Row
from ps_trainer.errors import RunError
from ps_trainer.launch.command import run_local

# After the launcher was killed, its tasks notice it and save before they end.
_END_SECS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DisturbedRow(Row):
    """The result of one disturbed run.

    Attributes:
        update: The update rule, or the name of the case.
        wall_secs: Seconds from the start of the launcher to its end.
        restarts: Restarts of all tasks.
        rolled_back: Number of steps that were repeated after a checkpoint was restored.
        orphans: Number of processes that the run left.
        leftovers: Number of temporary files that the run left.
        problem: Problems of the run; empty = none.
    """

    update: str
    wall_secs: float = 0.0
    restarts: int = 0
    rolled_back: int = 0
    orphans: int = 0
    leftovers: int = 0
    problem: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problem


class DisturbedRun(NamedTuple):
    """Result of a run, and what the run left on the machine.

    Attributes:
        wall_secs: Seconds from the start of the launcher to its end; 0 if the run failed.
        summary: Content of its `summary.json`; empty if it has none.
        orphans: Command lines of the processes that still run.
        leftovers: Paths of temporary files.
        failure: Reason why the run failed; empty if it did not.
    """

    wall_secs: float
    summary: Mapping[str, Any]
    orphans: Sequence[str]
    leftovers: Sequence[str]
    failure: str

    @property
    def kills(self) -> int:
        """Number of kills that happened."""
        return sum("missed" not in fault for fault in self.summary.get("faults", ()))

    @property
    def problems(self) -> list[str]:
        """Faults of the run, without a look at its figures."""
        failures = [self.failure] if self.failure else []
        return (
            failures + [f"still runs: {name}" for name in self.orphans] + [f"left: {path}" for path in self.leftovers]
        )


def train(
    flags: Sequence[str], logdir: pathlib.Path, deadline_secs: float, run: Callable[..., float] = run_local
) -> DisturbedRun:
    """Trains once, with its own folder for temporary files; leaves no process running.

    Args:
        flags: Flags of `ps_trainer local`, without `--logdir`.
        logdir: New folder for the run.
        deadline_secs: Time limit of the run.
        run: Function that starts the training and waits for its end, as `run_local` does.
    """
    temporary = logdir.with_name(f"{logdir.name}-tmp")
    temporary.mkdir(parents=True)
    wall_secs, failure = 0.0, ""
    try:
        wall_secs = run(flags, logdir, deadline_secs, cwd=REPOSITORY, environ={**os.environ, "TMPDIR": str(temporary)})
    except RunError as error:
        failure = str(error).splitlines()[0]
    # A failed run is examined as well: its files are part of the result.
    path = logdir / "summary.json"
    summary = json.loads(path.read_text()) if path.exists() else {}
    orphans = leftovers.processes(logdir, _END_SECS)
    return DisturbedRun(wall_secs, summary, orphans, leftovers.files(logdir, temporary), failure)


DisturbedRowT = TypeVar("DisturbedRowT", bound=DisturbedRow)
Examine = Callable[[DisturbedRowT, DisturbedRun], tuple[DisturbedRowT, list[str]]]


def fill(row: DisturbedRowT, run: DisturbedRun, examine: Examine[DisturbedRowT]) -> DisturbedRowT:
    """Returns the row of a run, with figures and problems.

    Args:
        row: Row of the run before it began.
        run: Files and processes that the run left.
        examine: Function that fills in the benchmark's figures and names problems. It may raise OSError, KeyError,
            ValueError or IndexError where a file is missing or has other content.
    """
    row = dataclasses.replace(
        row,
        wall_secs=run.wall_secs,
        restarts=sum(run.summary.get("restarts", {}).values()),
        orphans=len(run.orphans),
        leftovers=len(run.leftovers),
    )
    try:
        row, found = examine(row, run)
    except (OSError, KeyError, ValueError, IndexError) as error:
        found = [f"the run's files cannot be examined: {error!r}"]
    return dataclasses.replace(row, problem="; ".join([*run.problems, *found]))
