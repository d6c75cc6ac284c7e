"""Trains on the digits while tasks are killed at random: does it complete, as well as undisturbed, with no step lost?

    python -m benchmarks.chaos --help

What is counted is described in README.md and in `accounting.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import accounting, arguments, leftovers, report
from benchmarks.chaos_cases import BY_STEP, CASES, UNSEEN, Case
from benchmarks.contenders import REPOSITORY
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, RunError
from ps_trainer.experiments.frame.provenance import origin_sentence, provenance
from ps_trainer.launch.command import run_local

NUM_PS = 2
NUM_WORKERS = 3

# A checkpoint is due every so many seconds of the chief's, and takes some time to be written.
SAVE_SECS = 2.0
SAVE_SLACK_SECS = 2.0
MOST_ACCURACY_LOST = 0.01
END_SECS = 10.0

_UNDISTURBED = -1  # in place of a seed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One run.

    Attributes:
        family: what the rule's workers wait for.
        update: the case of `chaos_cases.py`.
        seed: of the kills; -1 = undisturbed.
        wall_secs: from the start of the launcher to its end.
        kills: that happened.
        restarts: of all tasks.
        losses: set-ups of the state by the chief after the first: state restored, or taken over.
        applied, rolled_back, logged, unlogged: see `accounting.py`; the last two are 0 where a worker does not see
            each update.
        most_rolled_back_secs: of one rollback; see `accounting.Rollback.secs`.
        accuracy: on the test examples.
        accuracy_lost: against the undisturbed run of the rule; negative = better.
        orphans: processes left.
        leftovers: temporary files left.
        problem: what is not as it should be; empty = nothing.
    """

    family: str
    update: str
    seed: int
    wall_secs: float = 0.0
    kills: int = 0
    restarts: int = 0
    losses: int = 0
    applied: int = 0
    rolled_back: int = 0
    logged: int = 0
    unlogged: int = 0
    most_rolled_back_secs: float = 0.0
    accuracy: float = 0.0
    accuracy_lost: float = 0.0
    orphans: int = 0
    leftovers: int = 0
    problem: str = ""


def main(argv: Sequence[str]) -> int:
    """Runs the trainings one after the other; a line each, and `results.json`, `.csv`, `.md`.

    Args:
        argv: arguments, without the program's name.

    Returns:
        0, or 1 when something of a run is not as it should be.
    """
    plan = parse_plan(argv)
    plan.out_dir.mkdir(parents=True)
    signal.signal(signal.SIGTERM, arguments.exit_by_signal)
    origin = provenance(["python", "-m", "benchmarks.chaos", *argv])
    rows: list[Row] = []
    for name in plan.updates:
        undisturbed = None
        for seed in (_UNDISTURBED, *range(plan.first_seed, plan.first_seed + plan.seeds)):
            row = run(plan, CASES[name], seed, undisturbed)
            undisturbed = row.accuracy if seed == _UNDISTURBED else undisturbed
            rows.append(row)
            print(_line(row), flush=True)
            _write(plan.out_dir, origin, rows)
    print(plan.out_dir.joinpath("results.md").read_text(), end="")
    return EXIT_FAILED if any(row.problem for row in rows) else EXIT_DONE


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """The plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.chaos", __doc__)
    parser.add_argument("--kills", type=int, default=20, help="in each run")
    parser.add_argument("--together", type=int, default=1, help="tasks killed at each moment; --kills is a multiple")
    parser.add_argument("--seeds", type=int, default=10, help="disturbed runs of each rule")
    parser.add_argument("--first_seed", type=int, default=0)
    cases = arguments.choices(tuple(CASES), all_as="all")
    parser.add_argument("--updates", type=cases, default="all", help="cases of chaos_cases.py, or all")
    parser.add_argument("--roles", default="ps+worker+chief", help="whom to kill")
    parser.add_argument("--model", default="softmax")
    parser.add_argument("--max_steps", type=int, default=6000, help="fewer where a step stands for several batches")
    parser.add_argument("--deadline_secs", type=float, default=900.0, help="after so long a run has failed")
    arguments.add_out_dir(parser)
    plan = parser.parse_args(argv)
    if min(plan.kills, plan.seeds, plan.max_steps) < 1 or plan.deadline_secs <= 0:
        parser.error("--kills, --seeds and --max_steps must be at least 1, --deadline_secs more than 0")
    if plan.together < 1 or plan.kills % plan.together:
        parser.error("--together must be at least 1, and --kills a multiple of it")
    plan.out_dir = arguments.new_folder(parser, plan.out_dir, "runs/chaos")
    return plan


def flags_of(plan: argparse.Namespace, case: Case, seed: int) -> list[str]:
    """The flags of `python -m ps_trainer local` for one run."""
    fault = f"--fault=chaos:kills={plan.kills},together={plan.together},roles={plan.roles},seed={seed}"
    max_steps = case.max_steps(plan.max_steps)
    return [
        f"--num_ps={NUM_PS}",
        f"--num_workers={NUM_WORKERS}",
        f"--model={case.model or plan.model}",
        "--dataset=digits",
        *case.flags,
        f"--max_steps={max_steps}",
        # At its end the model stands still: what differs is what the kills have done, not the moment.
        "--learning_rate=0.5",
        "--schedule=cosine",
        f"--schedule_option=decay_steps={max_steps}",
        "--step_log",
        "--report_secs=1",
        f"--save_checkpoint_secs={SAVE_SECS:g}",
        *([] if seed == _UNDISTURBED else [fault]),
    ]


def run(plan: argparse.Namespace, case: Case, seed: int, undisturbed: float | None) -> Row:
    """One run, and what is wrong with it.

    Args:
        plan: as `parse_plan` gives it.
        case: the rule.
        seed: of the kills.
        undisturbed: accuracy of the undisturbed run; None = this is it.
    """
    logdir = plan.out_dir / "runs" / f"{case.name}-{'undisturbed' if seed == _UNDISTURBED else seed}"
    temporary = logdir.with_name(f"{logdir.name}-tmp")
    temporary.mkdir(parents=True)
    problems = []
    wall_secs = 0.0
    try:
        environ = {**os.environ, "TMPDIR": str(temporary)}
        wall_secs = run_local(flags_of(plan, case, seed), logdir, plan.deadline_secs, cwd=REPOSITORY, environ=environ)
    except RunError as error:
        problems.append(str(error).splitlines()[0])
    orphans, left = leftovers.processes(logdir, END_SECS), leftovers.files(logdir, temporary)
    problems += [f"still runs: {orphan}" for orphan in orphans] + [f"left: {path}" for path in left]
    row = Row(family=case.family, update=case.name, seed=seed, wall_secs=wall_secs)
    row = dataclasses.replace(row, orphans=len(orphans), leftovers=len(left))
    try:
        row, found = examine(plan, row, logdir, undisturbed)
        problems += found
    except (OSError, KeyError, ValueError) as error:
        problems.append(f"nothing to examine: {error!r}")
    return dataclasses.replace(row, problem="; ".join(problems))


def examine(
    plan: argparse.Namespace, row: Row, logdir: pathlib.Path, undisturbed: float | None
) -> tuple[Row, list[str]]:
    """The figures that a run has left, and what is wrong with them.

    Args:
        plan: as `parse_plan` gives it.
        row: what is known.
        logdir: of the run.
        undisturbed: see `run`.

    Raises:
        OSError, KeyError, ValueError: a file is missing, or holds something else.
    """
    summary = json.loads((logdir / "summary.json").read_text())
    kills = sum("missed" not in fault for fault in summary.get("faults", ()))
    case = CASES[row.update]
    books = accounting.read(logdir, summary["global_step"], is_joined=case.books == BY_STEP)
    sees_updates = case.books != UNSEEN
    accuracy = summary["metrics"]["accuracy"]
    lost = 0.0 if undisturbed is None else undisturbed - accuracy
    most_secs = max((rollback.secs for rollback in books.rollbacks), default=0.0)
    problems = []
    if summary["status"] != "done" or books.applied < case.max_steps(plan.max_steps):
        problems.append(f"{summary['status']} at step {books.applied}")
    if sees_updates and not books.is_balanced(NUM_WORKERS, kills):
        problems.append(f"{books.unlogged} steps are unaccounted for")
    if most_secs > SAVE_SECS + SAVE_SLACK_SECS:
        problems.append(f"{most_secs:.1f} s of training were rolled back")
    if lost > MOST_ACCURACY_LOST:
        problems.append(f"accuracy is {100 * lost:.1f} % lower")
    if row.seed != _UNDISTURBED and kills < plan.kills:
        problems.append(f"only {kills} kills happened")
    filled = dataclasses.replace(
        row,
        kills=kills,
        restarts=sum(summary.get("restarts", {}).values()),
        losses=books.num_lineages - 1,
        applied=books.applied,
        rolled_back=books.rolled_back,
        logged=books.logged if sees_updates else 0,
        unlogged=books.unlogged if sees_updates else 0,
        most_rolled_back_secs=most_secs,
        accuracy=accuracy,
        accuracy_lost=lost,
    )
    return filled, problems


def _line(row: Row) -> str:
    name = f"{row.update} {'undisturbed' if row.seed == _UNDISTURBED else f'seed {row.seed}'}"
    if not row.applied:
        return f"{name}: {row.problem}"
    return (
        f"{name}: {100 * row.accuracy:.1f} % after {row.wall_secs:.0f} s, {row.kills} kills, {row.restarts} restarts,"
        f" {row.applied} applied + {row.rolled_back} rolled back = {row.logged} logged + {row.unlogged} in flight"
        f"{'; ' if row.problem else ''}{row.problem}"
    )


def _write(folder: pathlib.Path, origin: Mapping[str, Any], rows: Sequence[Row]) -> None:
    values = [dataclasses.asdict(row) for row in rows]
    folder.joinpath("results.json").write_text(json.dumps({"provenance": origin, "runs": values}, indent=2) + "\n")
    report.write_csv(rows, Row, folder / "results.csv")
    columns = ("kills", "restarts", "losses", "applied", "rolled_back", "logged", "unlogged")
    head = ["family", "rule", "seed", "s", *columns, "most s rolled back", "accuracy", "lost"]
    head += ["orphans", "files left", "problem"]
    lines = ["| " + " | ".join(head) + " |", "|---|---" + "|--:" * (len(head) - 3) + "|---|"]
    for row in rows:
        cells = [row.family, row.update, "-" if row.seed == _UNDISTURBED else row.seed, f"{row.wall_secs:.0f}"]
        cells += [getattr(row, column) for column in columns]
        cells += [f"{row.most_rolled_back_secs:.1f}", f"{row.accuracy:.3f}", f"{row.accuracy_lost:+.3f}"]
        cells += [row.orphans, row.leftovers, row.problem.replace("|", "/") or "none"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    folder.joinpath("results.md").write_text("\n".join([*lines, "", origin_sentence(origin), ""]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
