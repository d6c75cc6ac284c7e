"""Trains the CNN on the digits with every update rule and gradient transform, in real processes, one after the other.

    python -m benchmarks.update_rules --help

`settings.py` has the settings; README.md describes the results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import arguments, settings
from benchmarks.report import Report
from benchmarks.trained_rows import RuleRow, TransformRow, trained_row
from benchmarks.training_outcome import TrainingOutcome, train
from ps_trainer.errors import RunError


def main(argv: Sequence[str]) -> int:
    """Runs the trainings, rules first.

    Args:
        argv: Arguments, without the program's name.

    Returns:
        0, or 1 when a run failed: its setting has no row.
    """
    plan = parse_plan(argv)
    report = Report("benchmarks.update_rules", argv, plan.out_dir, ["rules", "transforms"])
    has_failed = False
    for key, chosen, known, row_type in (
        ("rules", plan.rules, settings.RULES, RuleRow),
        ("transforms", plan.transforms, settings.TRANSFORMS, TransformRow),
    ):
        for name in chosen:
            if outcomes := _repeat(plan, key, name, known[name]):
                report.add(trained_row(row_type, name, known[name], outcomes), key)
            else:
                has_failed = True
    exit_code = report.finish(has_failed=has_failed)
    if has_failed:
        print("error: the failed runs, which are reported above, have no row", file=sys.stderr)
    return exit_code


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.update_rules", __doc__)
    for kind, known in (("rules", settings.RULES), ("transforms", settings.TRANSFORMS)):
        parser.add_argument(
            f"--{kind}",
            type=arguments.choices(known, all_as="all"),
            default="all",
            help=f"comma-separated names, all, or nothing at all (--{kind}=)",
        )
    parser.add_argument("--repetitions", type=arguments.at_least(1), default=1, help="runs of each setting")
    arguments.add_deadline(parser, 300.0)
    arguments.add_out_dir(parser)
    plan = parser.parse_args(argv)
    plan.out_dir = arguments.new_folder(parser, plan.out_dir, "runs/rules")
    return plan


def _repeat(plan: argparse.Namespace, kind: str, name: str, setting: settings.TrainingSetting) -> list[TrainingOutcome]:
    """Returns the outcomes of a setting's runs; none if one of them failed."""
    outcomes = []
    for repetition in range(plan.repetitions):
        run_name = f"{kind}-{name.replace(' ', '-')}-{repetition}"
        try:
            outcomes.append(train(setting, plan.out_dir / "runs" / run_name, plan.deadline_secs))
        except RunError as error:
            print(f"error: {run_name} failed: {error}", file=sys.stderr, flush=True)
            return []
        result = outcomes[-1]
        print(
            f"{run_name}: {100 * result.accuracy:.1f} % after {result.global_step} steps, {result.wall_secs:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return outcomes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
