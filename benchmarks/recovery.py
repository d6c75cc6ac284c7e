"""How long after a fault do all workers train again, for each fault and update rule?

    python -m benchmarks.recovery --help

What is measured is described in README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import accounting, arguments, report
from benchmarks.contenders import REPOSITORY
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, RunError
from ps_trainer.experiments.frame.provenance import origin_sentence, provenance
from ps_trainer.launch import hosts_iproute
from ps_trainer.launch.command import run_local

UPDATES = ("async", "sync", "ssp", "all_reduce")
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

_LEAST_GAP_SECS = 1.0  # shorter ones are no interruption
_LOG_LINE = re.compile(r"[IWE]\d{4} (\d\d:\d\d:\d\d\.\d{6}) +\d+ \S+\] (.*)")
_NOTICED = re.compile(
    r"\blost\b|has not answered|was started anew|started again|begun .*anew|interrupted|ring .* broke"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One run with one fault.

    Attributes:
        update: the rule.
        fault: that happened.
        noticed_secs: from it until a task other than the one that was hit said so in its log; None = none did.
        chief_secs, worker_secs: from it until that worker made a step again after its longest interruption; 0 = it had
            none; None = it made no more.
        rolled_back: steps that had to be made again from the last checkpoint on.
        restarts: of all tasks.
        wall_secs: of the whole run.
        problem: what is not as it should be; empty = nothing.
    """

    update: str
    fault: str
    noticed_secs: float | None = None
    chief_secs: float | None = None
    worker_secs: float | None = None
    rolled_back: int = 0
    restarts: int = 0
    wall_secs: float = 0.0
    problem: str = ""


def main(argv: Sequence[str]) -> int:
    """Runs the trainings one after the other; a line each, and `results.json`, `.csv`, `.md`.

    Args:
        argv: arguments, without the program's name.

    Returns:
        0, or 1 when a run was not done.
    """
    plan = parse_plan(argv)
    plan.out_dir.mkdir(parents=True)
    signal.signal(signal.SIGTERM, arguments.exit_by_signal)
    origin = provenance(["python", "-m", "benchmarks.recovery", *argv])
    rows: list[Row] = []
    for update in plan.updates:
        for fault in plan.faults:
            rows.append(run(plan, update, fault))
            print(_line(rows[-1]), flush=True)
            _write(plan.out_dir, origin, rows)
    print(plan.out_dir.joinpath("results.md").read_text(), end="")
    return EXIT_FAILED if any(row.problem for row in rows) else EXIT_DONE


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """The plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.recovery", __doc__)
    parser.add_argument("--updates", type=arguments.choices(UPDATES, all_as="all"), default="all", help="rules, or all")
    parser.add_argument("--faults", type=arguments.choices(FAULTS, all_as="all"), default="all", help="or all")
    parser.add_argument("--at_step", type=int, default=500, help="global_step at which the fault happens")
    parser.add_argument("--max_steps", type=int, default=2500)
    parser.add_argument("--deadline_secs", type=float, default=600.0, help="after so long a run has failed")
    arguments.add_out_dir(parser)
    plan = parser.parse_args(argv)
    if not 0 < plan.at_step < plan.max_steps or plan.deadline_secs <= 0:
        parser.error("--at_step must lie between 0 and --max_steps, --deadline_secs above 0")
    problem = hosts_iproute.probe().problem
    if problem and (cuts := [fault for fault in plan.faults if fault.startswith("cut")]):
        print(f"left out: {', '.join(cuts)}: {problem}", file=sys.stderr)
        plan.faults = [fault for fault in plan.faults if fault not in cuts]
    plan.out_dir = arguments.new_folder(parser, plan.out_dir, "runs/recovery")
    return plan


def flags_of(plan: argparse.Namespace, update: str, fault: str) -> list[str]:
    """The flags of `python -m ps_trainer local` for one run."""
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


def run(plan: argparse.Namespace, update: str, fault: str) -> Row:
    """One run, and what is wrong with it."""
    logdir = plan.out_dir / "runs" / f"{update}-{fault.replace(':', '-')}"
    logdir.parent.mkdir(exist_ok=True)
    row = Row(update=update, fault=fault)
    try:
        secs = run_local(flags_of(plan, update, fault), logdir, plan.deadline_secs, cwd=REPOSITORY, environ=os.environ)
        return examine(dataclasses.replace(row, wall_secs=secs), logdir)
    except RunError as error:
        return dataclasses.replace(row, problem=str(error).splitlines()[0])
    except (OSError, KeyError, ValueError, IndexError) as error:
        return dataclasses.replace(row, problem=f"nothing to examine: {error!r}")


def examine(row: Row, logdir: pathlib.Path) -> Row:
    """The row with the figures that a run has left.

    Raises:
        OSError, KeyError, ValueError, IndexError: a file is missing, or holds something else.
    """
    event = next(_lines(logdir / "metrics" / "launcher.jsonl"))
    summary = json.loads((logdir / "summary.json").read_text())
    books = accounting.read(logdir, summary["global_step"], is_joined=row.update in ("sync", "all_reduce"))
    times = [_step_times(logdir, worker) for worker in range(NUM_WORKERS)]
    back = [secs_until_back(own, event["wall_time"], max(map(max, times))) for own in times]
    return dataclasses.replace(
        row,
        noticed_secs=_secs_until_noticed(logdir, event),
        chief_secs=back[0],
        worker_secs=back[1],
        rolled_back=books.rolled_back,
        restarts=sum(summary.get("restarts", {}).values()),
        problem="" if summary["status"] == "done" else summary["status"],
    )


def secs_until_back(times: Sequence[float], fault_at: float, ended_at: float) -> float | None:
    """Seconds from a fault to the end of the longest interruption of a worker's steps; 0 without one.

    Args:
        times: of its steps, ascending.
        fault_at: time of the fault.
        ended_at: time of the last step of all.

    Returns:
        None where it made no step any more from the fault, or a moment after it, to the end.
    """
    after = [time for time in times if time > fault_at]
    if not after or ended_at - after[-1] > _LEAST_GAP_SECS:
        return None
    before = [time for time in times if time <= fault_at][-1:]
    steps = [*before, *after]
    gaps = [(end - start, end) for start, end in zip(steps, steps[1:], strict=False)]
    longest, end = max(gaps, default=(0.0, fault_at))
    return end - fault_at if longest > _LEAST_GAP_SECS else 0.0


def _step_times(logdir: pathlib.Path, worker: int) -> list[float]:
    return [line["wall_time"] for line in _lines(logdir / "steps" / f"worker-{worker}.jsonl")]


def _secs_until_noticed(logdir: pathlib.Path, event: Mapping[str, Any]) -> float | None:
    """Seconds from the fault to the first line in another task's log that tells of a loss."""
    fault_at = datetime.datetime.fromtimestamp(event["wall_time"])
    found = []
    for path in (logdir / "logs").glob("*-[0-9]*.log"):
        if path.stem == event["task"]:
            continue
        for match in filter(None, map(_LOG_LINE.match, path.read_text(errors="replace").splitlines())):
            at = datetime.datetime.combine(fault_at.date(), datetime.time.fromisoformat(match[1]))
            secs = (at - fault_at).total_seconds()
            if secs > 0 and _NOTICED.search(match[2]):
                found.append(secs)
    return min(found, default=None)


def _lines(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        yield from map(json.loads, lines)


def _line(row: Row) -> str:
    if row.problem:
        return f"{row.update} {row.fault}: {row.problem}"
    return (
        f"{row.update} {row.fault}: noticed after {_secs(row.noticed_secs)} s, the chief trains again after"
        f" {_secs(row.chief_secs)} s, worker 1 after {_secs(row.worker_secs)} s, {row.rolled_back} steps rolled back"
    )


def _secs(secs: float | None) -> str:
    return "-" if secs is None else f"{secs:.1f}"


def _write(folder: pathlib.Path, origin: Mapping[str, Any], rows: Sequence[Row]) -> None:
    values = [report.rounded(row) for row in rows]
    folder.joinpath("results.json").write_text(json.dumps({"provenance": origin, "runs": values}, indent=2) + "\n")
    report.write_csv(rows, Row, folder / "results.csv")
    lines = [
        "| rule | fault | noticed, s | chief trains again, s | worker 1, s | rolled back | restarts | problem |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        secs = [_secs(value) for value in (row.noticed_secs, row.chief_secs, row.worker_secs)]
        cells = [
            row.update,
            f"`{row.fault}`",
            *secs,
            row.rolled_back,
            row.restarts,
            row.problem.replace("|", "/") or "none",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    folder.joinpath("results.md").write_text("\n".join([*lines, "", origin_sentence(origin), ""]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
