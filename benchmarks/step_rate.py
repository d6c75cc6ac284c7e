"""Step rates of `ps_trainer` and of the hand-written TF1 script, side by side.

    python -m benchmarks.step_rate --help

Every run is a real cluster of processes on this machine. Within a cell (workload, mode, number of ps) the
contenders take turns, so that a slow minute of the machine meets all of them. With `--rules` the contenders are
update rules. See README.md.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks import arguments, report, settings, sizes
from benchmarks.contenders import CONTENDERS, MODES, RULES_MODE, Cell, Contender, rule_contenders
from benchmarks.measure import Measurement, Timing, measure
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, RunError
from ps_trainer.experiments.frame.provenance import provenance

_QUICK = ["--ps=1", "--repetitions=1", "--seconds=4"]


# Rules in turn with one `async`: fewer cost more time, more lie further apart from it.
_RULES_PER_ASYNC = 3


class Match(NamedTuple):
    """A cell, and the contenders that take turns in it.

    Attributes:
        name: unique in the plan.
        cell: what is run.
        contenders: by name.
    """

    name: str
    cell: Cell
    contenders: Mapping[str, Contender]


class Plan(NamedTuple):
    """What to run.

    Attributes:
        matches: in this order.
        repetitions: runs per cell and contender.
        timing: of each run.
        folder: where results, logs and reports go.
    """

    matches: Sequence[Match]
    repetitions: int
    timing: Timing
    folder: pathlib.Path


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark.

    Args:
        argv: arguments, without the program's name.

    Returns:
        0, or 1 when a run failed: a cell and contender with a failed run has no row.
    """
    plan = parse_plan(argv)
    plan.folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, arguments.exit_by_signal)
    origin = provenance(["python", "-m", "benchmarks.step_rate", *argv])
    plan.folder.joinpath("provenance.json").write_text(json.dumps(origin, indent=2) + "\n")
    for name, value in origin.items():
        print(f"{name}: {value}")
    print(f"results: {plan.folder}", flush=True)
    return run(plan)


def run(plan: Plan) -> int:
    """Runs a plan; prints each cell's rows as JSON lines when it is through, and at the end the table.

    Returns:
        0, or 1 when a run failed.
    """
    all_rows: list[report.Row] = []
    has_failed = False
    for match in plan.matches:
        measurements = _run_match(plan, match)
        has_failed |= len(measurements) < len(match.contenders)
        cell_rows = report.rows(match.cell, measurements)
        for row in cell_rows:
            print(report.to_json(row), flush=True)
        all_rows += cell_rows
        report.write_results(all_rows, plan.folder)
    report.print_table(all_rows, sys.stdout)
    if has_failed:
        print("error: some runs failed, see above; they have no row", file=sys.stderr)
    return EXIT_FAILED if has_failed else EXIT_DONE


def parse_plan(argv: Sequence[str]) -> Plan:
    """The plan that the flags describe; ends the program on a wrong flag."""
    argv = list(argv)
    if "--quick" in argv:
        argv = [*_QUICK, *argv]  # what the user gives comes later, and wins
    parser = _parser()
    flags = parser.parse_args(argv)
    for name in ("ps", "workers"):
        if min(getattr(flags, name), default=0) < 1:
            parser.error(f"--{name}={getattr(flags, name)}: give numbers of at least 1")
    if flags.repetitions < 1 or flags.seconds <= 0 or flags.warmup_secs < 0:
        parser.error("--repetitions must be at least 1, --seconds more than 0, --warmup_secs not less than 0")
    folder = arguments.new_folder(parser, flags.out_dir, "runs/bench")
    return Plan(
        matches=_rule_matches(flags.rules) if flags.rules else _matches(flags),
        repetitions=flags.repetitions,
        timing=Timing(flags.warmup_secs, flags.seconds, flags.warmup_secs + flags.seconds + flags.deadline_secs),
        folder=folder,
    )


def _parser() -> argparse.ArgumentParser:
    parser = arguments.create_parser("benchmarks.step_rate", __doc__)
    parser.add_argument("--workloads", type=arguments.choices(sizes.SIZES), default="deep,wide", help="models to train")
    parser.add_argument("--modes", type=arguments.choices(MODES), default="async,sync", help="update rules")
    parser.add_argument("--ps", type=arguments.numbers, default="1,2", help="numbers of ps tasks")
    parser.add_argument("--workers", type=arguments.numbers, default="2", help="numbers of workers")
    parser.add_argument(
        "--who", type=arguments.choices(CONTENDERS), default=",".join(CONTENDERS), help="who takes part"
    )
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each contender in each cell")
    parser.add_argument("--seconds", type=float, default=6.0, help="least length of the measured window")
    parser.add_argument("--warmup_secs", type=float, default=2.0, help="left out after the last worker has begun")
    parser.add_argument("--deadline_secs", type=float, default=90.0, help="what a run may take beside these two")
    parser.add_argument(
        "--rules",
        type=arguments.choices(settings.RULES, all_as="all"),
        default="",
        help="in place of all this: update rules beside async; deep, 1 ps, 2 workers, packed; names, or all",
    )
    arguments.add_out_dir(parser)
    parser.add_argument("--quick", action="store_true", help=f"the same as {' '.join(_QUICK)}")
    return parser


def _matches(flags: argparse.Namespace) -> list[Match]:
    contenders = {who: CONTENDERS[who] for who in flags.who}
    return [
        Match(f"{workload}-{mode}-{num_ps}ps-{num_workers}w", Cell(workload, mode, num_ps, num_workers), contenders)
        for workload in flags.workloads
        for mode in flags.modes
        for num_ps in flags.ps
        for num_workers in flags.workers
    ]


def _rule_matches(rules: Sequence[str]) -> list[Match]:
    groups = rule_contenders(rules, _RULES_PER_ASYNC)
    return [
        Match(f"rules{number}", Cell(workload, RULES_MODE, num_ps=1, num_workers=2), contenders)
        for number, (workload, contenders) in enumerate(groups)
    ]


def _run_match(plan: Plan, match: Match) -> dict[str, list[Measurement]]:
    """Measurements of the contenders whose runs all succeeded; after a failed run a contender has no more turns."""
    cell = match.cell
    measurements: dict[str, list[Measurement]] = {who: [] for who in match.contenders}
    for repetition in range(plan.repetitions):
        for who in list(measurements):
            name = f"{match.name}-{who}-{repetition}"
            try:
                result = measure(match.contenders[who], cell, plan.timing, plan.folder / "runs" / name)
            except RunError as error:
                print(f"error: {name} failed: {error}", file=sys.stderr, flush=True)
                del measurements[who]
                continue
            measurements[who].append(result)
            print(f"{name}: {result.steps_per_sec:.1f} steps/s", file=sys.stderr, flush=True)
            with plan.folder.joinpath("runs.jsonl").open("a") as file:
                record = {**cell._asdict(), "who": who, "repetition": repetition, **result._asdict()}
                file.write(json.dumps(record) + "\n")
    return measurements


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
