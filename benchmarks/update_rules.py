"""Trains the CNN on the digits by every update rule and gradient transform, in real processes, one after the other.

    python -m benchmarks.update_rules --help

What is run is in `settings.py`; what comes out is described in README.md.
"""

from __future__ import annotations

import json
import pathlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks import arguments, report, settings
from benchmarks.trained import Outcome, train
from benchmarks.trained_report import TrainedRow, rules_markdown, trained_row, transforms_markdown
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, RunError
from ps_trainer.experiments.frame.provenance import origin_sentence, provenance

_BASELINE = "none"


class Plan(NamedTuple):
    """What to run.

    Attributes:
        rules: name -> setting, in this order.
        transforms: after the rules.
        repetitions: runs of each.
        deadline_secs: after so long a run has failed.
        folder: where results and logdirs go.
    """

    rules: Mapping[str, settings.Setting]
    transforms: Mapping[str, settings.Setting]
    repetitions: int
    deadline_secs: float
    folder: pathlib.Path


def main(argv: Sequence[str]) -> int:
    """Runs the trainings.

    Args:
        argv: arguments, without the program's name.

    Returns:
        0, or 1 when a run failed: its setting has no row.
    """
    plan = parse_plan(argv)
    plan.folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, arguments.exit_by_signal)
    return run(plan, provenance(["python", "-m", "benchmarks.update_rules", *argv]))


def run(plan: Plan, origin: Mapping[str, object]) -> int:
    """Runs a plan and writes its results after each setting.

    Args:
        plan: what to run.
        origin: as `provenance` gives it.

    Returns:
        0, or 1 when a run failed.
    """
    for name, value in origin.items():
        print(f"{name}: {value}")
    print(f"results: {plan.folder}", flush=True)
    rows: dict[str, list[TrainedRow]] = {"rules": [], "transforms": []}
    has_failed = False
    for kind, chosen in (("rules", plan.rules), ("transforms", plan.transforms)):
        for name, setting in chosen.items():
            outcomes = _repeat(plan, kind, name, setting)
            if outcomes:
                rows[kind].append(trained_row(name, setting, outcomes))
            has_failed |= not outcomes
            _write(plan.folder, origin, rows)
    print(plan.folder.joinpath("results.md").read_text(), end="")
    if has_failed:
        print("error: some runs failed, see above; they have no row", file=sys.stderr)
    return EXIT_FAILED if has_failed else EXIT_DONE


def parse_plan(argv: Sequence[str]) -> Plan:
    """The plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.update_rules", __doc__)
    for kind, known in (("rules", settings.RULES), ("transforms", settings.TRANSFORMS)):
        parser.add_argument(
            f"--{kind}",
            type=arguments.choices(known, all_as="all"),
            default="all",
            help=f"comma-separated names, all, or nothing at all (--{kind}=)",
        )
    parser.add_argument("--repetitions", type=int, default=1, help="runs of each")
    parser.add_argument("--deadline_secs", type=float, default=300.0, help="after so long a run has failed")
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    if flags.repetitions < 1 or flags.deadline_secs <= 0:
        parser.error("--repetitions must be at least 1, --deadline_secs more than 0")
    return Plan(
        rules={name: settings.RULES[name] for name in flags.rules},
        transforms={name: settings.TRANSFORMS[name] for name in flags.transforms},
        repetitions=flags.repetitions,
        deadline_secs=flags.deadline_secs,
        folder=arguments.new_folder(parser, flags.out_dir, "runs/rules"),
    )


def _repeat(plan: Plan, kind: str, name: str, setting: settings.Setting) -> list[Outcome]:
    """The outcomes of a setting's runs; none when one of them failed."""
    outcomes = []
    for repetition in range(plan.repetitions):
        run_name = f"{kind}-{name.replace(' ', '-')}-{repetition}"
        try:
            outcomes.append(train(setting, plan.folder / "runs" / run_name, plan.deadline_secs))
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


def _write(folder: pathlib.Path, origin: Mapping[str, object], rows: Mapping[str, Sequence[TrainedRow]]) -> None:
    values = {kind: [report.rounded(row) for row in some] for kind, some in rows.items()}
    folder.joinpath("results.json").write_text(json.dumps({"provenance": origin, **values}, indent=2) + "\n")
    report.write_csv([*rows["rules"], *rows["transforms"]], TrainedRow, folder / "results.csv")
    tables = [rules_markdown(rows["rules"])] if rows["rules"] else []
    tables += [transforms_markdown(rows["transforms"], _BASELINE)] if rows["transforms"] else []
    folder.joinpath("results.md").write_text("\n".join([*tables, origin_sentence(origin) + "\n"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
