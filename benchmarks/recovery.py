"""Measures the time from a fault until all workers train again, for each fault and update rule.

    python -m benchmarks.recovery --help

README.md describes what is measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import itertools
import json
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import accounting, arguments, disturbed_run
from benchmarks.report import Report, ResultColumn
from ps_trainer.launch import hosts_iproute

UPDATES = ("async", "sync", "ssp", "all_reduce")
# Twice the heartbeat's timeout, so that the other tasks count the silent task as lost before it is back.
SILENT_SECS = 8
FAULTS = (
    "kill:ps:0",
    "kill:ps:1",
    "kill:chief",
    "kill:worker:1",
    "term:worker:1",
    "freeze:ps:1",
    "freeze:worker:1",
    "cut:ps:1",
    "cut:worker:1",
)
HEARTBEAT_SECS = 4
NUM_WORKERS = 2

_MIN_GAP_SECS = 1.0  # a shorter gap between two steps is not an interruption
_LOG_LINE = re.compile(r"[IWE]\d{4} (\d\d:\d\d:\d\d\.\d{6}) +\d+ \S+\] (.*)")
_NOTICED = re.compile(r"\blost\b|has not answered|restarted|has replaced the run|interrupted|ring .* broke")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecoveryRow(disturbed_run.DisturbedRow):
    """One run with one fault.

    Attributes:
        fault: Name of the fault.
        noticed_secs: Seconds from the fault until another task reported the loss in its log; None = none did.
        chief_secs, worker_secs: Seconds from the fault to the end of that worker's longest interruption; 0 = its steps
            were not interrupted; None = it made no more steps.
    """

    COLUMNS = (
        ResultColumn("rule", "update"),
        ResultColumn("fault", lambda row: f"`{row.fault}`"),
        ResultColumn("noticed, s", "noticed_secs", ".1f"),
        ResultColumn("chief trains again, s", "chief_secs", ".1f"),
        ResultColumn("worker 1, s", "worker_secs", ".1f"),
        ResultColumn("rolled back", "rolled_back"),
        ResultColumn("restarts", "restarts"),
        ResultColumn("problem", lambda row: row.problem or "none"),
    )

    fault: str
    noticed_secs: float | None = None
    chief_secs: float | None = None
    worker_secs: float | None = None

    def line(self) -> str:
        """Returns the run in a sentence."""
        if self.problem:
            return f"{self.update} {self.fault}: {self.problem}"
        noticed, chief, worker = (column.cell(self) for column in self.COLUMNS[2:5])
        return (
            f"{self.update} {self.fault}: noticed after {noticed} s, the chief trains again after {chief} s,"
            f" worker 1 after {worker} s, {self.rolled_back} steps rolled back"
        )


def main(argv: Sequence[str]) -> int:
    """Runs the trainings one after the other.

    Args:
        argv: Arguments, without the program's name.

    Returns:
        0, or 1 when something is wrong with a run.
    """
    plan = parse_plan(argv)
    report = Report("benchmarks.recovery", argv, plan.out_dir, ["runs"])
    for update in plan.updates:
        for fault in plan.faults:
            report.add(run(plan, update, fault))
    return report.finish()


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.recovery", __doc__)
    parser.add_argument("--updates", type=arguments.choices(UPDATES, all_as="all"), default="all", help="rules, or all")
    parser.add_argument("--faults", type=arguments.choices(FAULTS, all_as="all"), default="all", help="faults, or all")
    parser.add_argument("--at_step", type=int, default=500, help="global_step at which the fault happens")
    parser.add_argument("--max_steps", type=int, default=2500, help="global_step at which training ends")
    arguments.add_deadline(parser, 600.0)
    arguments.add_out_dir(parser)
    plan = parser.parse_args(argv)
    if not 0 < plan.at_step < plan.max_steps:
        parser.error(f"--at_step={plan.at_step} must lie between 0 and --max_steps={plan.max_steps}")
    problem = hosts_iproute.probe().problem
    if problem and (cuts := [fault for fault in plan.faults if fault.startswith("cut")]):
        print(f"left out: {', '.join(cuts)}: {problem}", file=sys.stderr)
        plan.faults = [fault for fault in plan.faults if fault not in cuts]
    plan.out_dir = arguments.new_folder(parser, plan.out_dir, "runs/recovery")
    return plan


def flags_of(plan: argparse.Namespace, update: str, fault: str) -> list[str]:
    """Returns the flags of `ps_trainer local` for one run."""
    is_silence = fault.startswith(("freeze", "cut"))
    return [
        "--num_ps=2",
        f"--num_workers={NUM_WORKERS}",
        "--model=softmax",
        "--dataset=digits",
        "--learning_rate=0.02",
        f"--update={update}",
        f"--max_steps={plan.max_steps}",
        "--step_log",
        "--save_checkpoint_secs=1",
        f"--heartbeat_timeout_secs={HEARTBEAT_SECS}",
        "--max_restarts=3",
        f"--fault={fault}@step={plan.at_step}{f',secs={SILENT_SECS}' if is_silence else ''}",
        *(["--hosts=netns"] if fault.startswith("cut") else []),
    ]


def run(plan: argparse.Namespace, update: str, fault: str) -> RecoveryRow:
    """Runs one training and examines it."""
    logdir = plan.out_dir / "runs" / f"{update}-{fault.replace(':', '-')}"
    done = disturbed_run.train(flags_of(plan, update, fault), logdir, plan.deadline_secs)
    return disturbed_run.fill(
        RecoveryRow(update=update, fault=fault), done, lambda row, done: examine(row, logdir, done)
    )


def examine(row: RecoveryRow, logdir: pathlib.Path, done: disturbed_run.DisturbedRun) -> tuple[RecoveryRow, list[str]]:
    """Returns the figures of a run, and what is wrong with them.

    Raises:
        OSError, KeyError, ValueError, IndexError: A file is missing or has other content.
    """
    event = next(_lines(logdir / "metrics" / "launcher.jsonl"))
    summary = done.summary
    books = accounting.read(logdir, summary["global_step"], is_joined=row.update in ("sync", "all_reduce"))
    # From the step logs: reports come every few seconds, too rarely for gaps of a second.
    times = [_step_times(logdir, worker) for worker in range(NUM_WORKERS)]
    back = [secs_until_back(own, event["wall_time"], max(map(max, times))) for own in times]
    filled = dataclasses.replace(
        row,
        noticed_secs=_secs_until_noticed(logdir, event),
        chief_secs=back[0],
        worker_secs=back[1],
        rolled_back=books.rolled_back,
    )
    return filled, [] if summary["status"] == "done" else [summary["status"]]


def secs_until_back(times: Sequence[float], fault_at: float, ended_at: float) -> float | None:
    """Returns the seconds from a fault to the end of the longest interruption of a worker's steps.

    Args:
        times: Times of the worker's steps, ascending.
        fault_at: Time of the fault.
        ended_at: Time of the last step of all workers.

    Returns:
        0 without an interruption; None if the worker stopped at the fault, or a moment later, for good.
    """
    after = [time for time in times if time > fault_at]
    if not after or ended_at - after[-1] > _MIN_GAP_SECS:
        return None
    before = [time for time in times if time <= fault_at][-1:]
    steps = [*before, *after]
    gaps = [(end - start, end) for start, end in itertools.pairwise(steps)]
    longest, end = max(gaps, default=(0.0, fault_at))
    return end - fault_at if longest > _MIN_GAP_SECS else 0.0


def _step_times(logdir: pathlib.Path, worker: int) -> list[float]:
    return [line["wall_time"] for line in _lines(logdir / "steps" / f"worker-{worker}.jsonl")]


def _secs_until_noticed(logdir: pathlib.Path, event: Mapping[str, Any]) -> float | None:
    """Returns the seconds from the fault to the first line in another task's log that reports a loss."""
    fault_at = datetime.datetime.fromtimestamp(event["wall_time"])
    found = []
    for path in (logdir / "logs").glob("*-[0-9]*.log"):
        # The task's own log describes its end or its restart, not that another task noticed it.
        if path.stem == event["task"]:
            continue
        for match in filter(None, map(_LOG_LINE.match, path.read_text(errors="replace").splitlines())):
            # The day is the fault's, so in a run across midnight the lines of the next day do not count.
            at = datetime.datetime.combine(fault_at.date(), datetime.time.fromisoformat(match[1]))
            secs = (at - fault_at).total_seconds()
            if secs > 0 and _NOTICED.search(match[2]):
                found.append(secs)
    return min(found, default=None)


def _lines(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        yield from map(json.loads, lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
