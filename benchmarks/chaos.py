"""Kills random tasks while a cluster trains on the digits, and checks that every run ends with its accuracy and steps.

    python -m benchmarks.chaos --help

README.md and `accounting.py` describe what is counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Sequence

from benchmarks import accounting, arguments, disturbed_run
from benchmarks.chaos_cases import BY_STEP, CASES, UNSEEN, ChaosCase
from benchmarks.report import Report, ResultColumn

NUM_PS = 2
NUM_WORKERS = 3

# Seconds between two checkpoints of the chief, and seconds that it takes to write one.
SAVE_SECS = 2.0
SAVE_SLACK_SECS = 2.0
# At most 3 of the 360 test examples.
MAX_ACCURACY_LOST = 0.01

UNDISTURBED = -1  # value of the seed for a run without kills


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChaosRow(disturbed_run.DisturbedRow):
    """One run; `update` is the name of the case in `chaos_cases.py`.

    Attributes:
        family: Kind of barrier that the workers of the rule wait at.
        seed: Seed of the kills; -1 = undisturbed.
        kills: Number of kills that happened.
        losses: Number of times that the chief restored the state, from a checkpoint or from the ps tasks.
        applied: Updates that the final state contains, as defined in `accounting.py`.
        logged: Updates that step logs contain; 0 if workers do not see each update.
        unlogged: Updates that no step log contains; 0 if workers do not see each update.
        most_rolled_back_secs: Largest training time that one rollback lost.
        accuracy: Accuracy on the test examples.
        accuracy_lost: Accuracy of the undisturbed run minus this one; negative = this one is better.
    """

    COLUMNS = (
        ResultColumn("family", "family"),
        ResultColumn("rule", "update"),
        ResultColumn("seed", lambda row: None if row.seed == UNDISTURBED else row.seed),
        ResultColumn("s", "wall_secs", ".0f"),
        *(ResultColumn(name, name) for name in ("kills", "restarts", "losses")),
        *(ResultColumn(name, name) for name in ("applied", "rolled_back", "logged", "unlogged")),
        ResultColumn("most s rolled back", "most_rolled_back_secs", ".1f"),
        ResultColumn("accuracy", "accuracy", ".3f"),
        ResultColumn("lost", "accuracy_lost", "+.3f"),
        ResultColumn("orphans", "orphans"),
        ResultColumn("files left", "leftovers"),
        ResultColumn("problem", lambda row: row.problem or "none"),
    )

    family: str
    seed: int
    kills: int = 0
    losses: int = 0
    applied: int = 0
    logged: int = 0
    unlogged: int = 0
    most_rolled_back_secs: float = 0.0
    accuracy: float = 0.0
    accuracy_lost: float = 0.0

    @property
    def name(self) -> str:
        """Case and seed."""
        return f"{self.update}-{'undisturbed' if self.seed == UNDISTURBED else self.seed}"

    def line(self) -> str:
        """Returns the run in a sentence."""
        if not self.applied:
            return f"{self.name}: {self.problem}"
        return (
            f"{self.name}: {100 * self.accuracy:.1f} % after {self.wall_secs:.0f} s, {self.kills} kills,"
            f" {self.restarts} restarts, {self.applied} applied + {self.rolled_back} rolled back = {self.logged} logged"
            f" + {self.unlogged} in flight{'; ' if self.problem else ''}{self.problem}"
        )


def main(argv: Sequence[str]) -> int:
    """Runs the trainings one after the other.

    Args:
        argv: Arguments, without the program's name.

    Returns:
        0, or 1 when something is wrong with a run.
    """
    plan = parse_plan(argv)
    report = Report("benchmarks.chaos", argv, plan.out_dir, ["runs"])
    for name in plan.updates:
        # Run again in each call, so that both runs have the same code, machine and flags.
        undisturbed = run(plan, CASES[name], UNDISTURBED, None)
        report.add(undisturbed)
        for seed in range(plan.first_seed, plan.first_seed + plan.seeds):
            report.add(run(plan, CASES[name], seed, undisturbed.accuracy))
    return report.finish()


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.chaos", __doc__)
    count = arguments.at_least(1)
    parser.add_argument("--kills", type=count, default=20, help="kills in each run")
    parser.add_argument("--together", type=count, default=1, help="tasks killed at each moment; divides --kills")
    parser.add_argument("--seeds", type=count, default=10, help="disturbed runs of each rule")
    parser.add_argument("--first_seed", type=int, default=0, help="seed of the first disturbed run")
    cases = arguments.choices(tuple(CASES), all_as="all")
    parser.add_argument("--updates", type=cases, default="all", help="cases of chaos_cases.py, or all")
    parser.add_argument("--roles", default="ps+worker+chief", help="roles of the tasks that may be killed")
    parser.add_argument("--model", default="softmax", help="model to train")
    parser.add_argument("--max_steps", type=count, default=6000, help="fewer where a step takes several batches")
    arguments.add_deadline(parser, 900.0)
    arguments.add_out_dir(parser)
    plan = parser.parse_args(argv)
    if plan.kills % plan.together:
        parser.error(f"--kills={plan.kills} is not a multiple of --together={plan.together}")
    plan.out_dir = arguments.new_folder(parser, plan.out_dir, "runs/chaos")
    return plan


def flags_of(plan: argparse.Namespace, case: ChaosCase, seed: int) -> list[str]:
    """Returns the flags of `ps_trainer local` for one run."""
    fault = f"--fault=chaos:kills={plan.kills},together={plan.together},roles={plan.roles},seed={seed}"
    max_steps = case.max_steps(plan.max_steps)
    return [
        f"--num_ps={NUM_PS}",
        f"--num_workers={NUM_WORKERS}",
        f"--model={case.model or plan.model}",
        "--dataset=digits",
        *case.flags,
        f"--max_steps={max_steps}",
        # At the end the model no longer moves, so the accuracy shows the kills' effect, not the moment of the end.
        "--learning_rate=0.5",
        "--schedule=cosine",
        f"--schedule_option=decay_steps={max_steps}",
        "--step_log",
        "--report_secs=1",
        f"--save_checkpoint_secs={SAVE_SECS:g}",
        *([] if seed == UNDISTURBED else [fault]),
    ]


def run(plan: argparse.Namespace, case: ChaosCase, seed: int, undisturbed: float | None) -> ChaosRow:
    """Runs one training and examines it.

    Args:
        plan: Result of `parse_plan`.
        case: Update rule with its options.
        seed: Seed of the kills, or `UNDISTURBED`.
        undisturbed: Accuracy of the undisturbed run; None = this run is the undisturbed one.
    """
    row = ChaosRow(family=case.family, update=case.name, seed=seed)
    logdir = plan.out_dir / "runs" / row.name
    done = disturbed_run.train(flags_of(plan, case, seed), logdir, plan.deadline_secs)
    return disturbed_run.fill(row, done, lambda row, done: examine(plan, row, logdir, done, undisturbed))


def examine(
    plan: argparse.Namespace,
    row: ChaosRow,
    logdir: pathlib.Path,
    done: disturbed_run.DisturbedRun,
    undisturbed: float | None,
) -> tuple[ChaosRow, list[str]]:
    """Returns the figures of a run, and what is wrong with them.

    Args:
        plan: Result of `parse_plan`.
        row: Result of the run so far.
        logdir: Folder of the run.
        done: Files and processes that the run left.
        undisturbed: Accuracy of the undisturbed run; None = this run is the undisturbed one.

    Raises:
        OSError, KeyError, ValueError: A file is missing or has other content.
    """
    summary, kills, case = done.summary, done.kills, CASES[row.update]
    books = accounting.read(logdir, summary["global_step"], is_joined=case.books == BY_STEP)
    sees_updates = case.books != UNSEEN
    accuracy = summary["metrics"]["accuracy"]
    lost = 0.0 if undisturbed is None else undisturbed - accuracy
    most_secs = max((rollback.secs for rollback in books.rollbacks), default=0.0)
    problems = []
    if summary["status"] != "done" or books.applied < case.max_steps(plan.max_steps):
        problems.append(f"{summary['status']} at step {books.applied}")
    # Rules with unseen updates have nothing to balance: the step logs lack updates even without a kill.
    if sees_updates and not books.is_balanced(NUM_WORKERS, kills):
        problems.append(f"{books.unlogged} steps are unaccounted for")
    if most_secs > SAVE_SECS + SAVE_SLACK_SECS:
        problems.append(f"{most_secs:.1f} s of training were rolled back")
    if lost > MAX_ACCURACY_LOST:
        problems.append(f"accuracy is {100 * lost:.1f} % lower")
    if row.seed != UNDISTURBED and kills < plan.kills:
        problems.append(f"only {kills} kills happened")
    filled = dataclasses.replace(
        row,
        kills=kills,
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
