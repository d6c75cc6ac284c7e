"""Step rates of `ps_trainer` and of the hand-written TF1 script, side by side.

    python -m benchmarks.step_rate --help

Every run is a real cluster of processes on this machine. Within a cell (workload, mode, number of ps) the
contenders take turns, so that a slow minute of the machine affects all of them. With `--rules` the contenders are
update rules. README.md describes the results.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks import arguments, peer_contenders, settings, step_rate_history
from benchmarks.contenders import CONTENDERS, MODES, PEERS_MODE, RULES_MODE, SIZES, Cell, Contender, rule_contenders
from benchmarks.peer_workloads import PEER_WORKLOADS
from benchmarks.report import Report
from benchmarks.step_rate_rows import rows
from benchmarks.step_rate_run import Measurement, RunTiming, measure
from ps_trainer.errors import RunError

_QUICK = ["--ps=1", "--repetitions=1", "--seconds=4"]

# What is fixed under a flag that changes the comparison.
_FIXED = {"peers": ("rules", "modes", "contenders"), "rules": ("workloads", "modes", "ps", "workers", "contenders")}

# Rules that take turns with one `async`: fewer cost more time; more run longer after the `async`.
_RULES_PER_ASYNC = 3


class Match(NamedTuple):
    """A cell, and the contenders that take turns in it.

    Attributes:
        name: Name that is unique in the plan.
        cell: Workload, mode and size of the cluster.
        contenders: Contenders by name.
    """

    name: str
    cell: Cell
    contenders: Mapping[str, Contender]


class StepRatePlan(NamedTuple):
    """Plan of the benchmark.

    Attributes:
        matches: Matches in the order of the runs.
        repetitions: Number of runs per cell and contender.
        timing: Times of each run.
        folder: Folder for results, logs and reports.
        history: File of the history; None = none.
        notes: Sentences below the table.
    """

    matches: Sequence[Match]
    repetitions: int
    timing: RunTiming
    folder: pathlib.Path
    history: pathlib.Path | None = None
    notes: Sequence[str] = ()


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark.

    Args:
        argv: Arguments, without the program's name.

    Returns:
        0, or 1 when a run failed: a cell and contender with a failed run has no row.
    """
    plan = parse_plan(argv)
    report = Report("benchmarks.step_rate", argv, plan.folder)
    report.notes += plan.notes
    plan.folder.joinpath("provenance.json").write_text(json.dumps(report.origin, indent=2) + "\n")
    return run(plan, report)


def run(plan: StepRatePlan, report: Report) -> int:
    """Runs a plan; prints each cell's rows as JSON lines when the cell is done, and the table at the end.

    Returns:
        0, or 1 when a run failed.
    """
    has_failed = False
    for match in plan.matches:
        measurements = _run_match(plan, match)
        has_failed |= len(measurements) < len(match.contenders)
        for row in rows(match.cell, measurements):
            report.add(row)
            with plan.folder.joinpath("results.jsonl").open("a") as file:
                file.write(row.line() + "\n")
            if plan.history is not None:
                step_rate_history.add(plan.history, report.origin, row)
    exit_code = report.finish(has_failed=has_failed)
    if has_failed:
        print("error: the failed runs, which are reported above, have no row", file=sys.stderr)
    return exit_code


def parse_plan(argv: Sequence[str]) -> StepRatePlan:
    """Returns the plan that the flags describe; ends the program on a wrong flag."""
    argv = list(argv)
    given = {argument.partition("=")[0] for argument in argv}
    if "--quick" in argv:
        argv = [*_QUICK, *argv]  # what the user gives comes later, and wins
    parser = _parser()
    flags = parser.parse_args(argv)
    if flags.warmup_secs < 0:
        parser.error(f"--warmup_secs={flags.warmup_secs:g} must be at least 0")
    folder = arguments.new_folder(parser, flags.out_dir, "runs/bench")
    if flags.peers and (commands := peer_contenders.missing(flags.peers)):
        parser.error(f"--peers: first run {'; '.join(commands)} (or name other contenders)")
    for mode, fixed in _FIXED.items():
        if getattr(flags, mode) and (unused := [f"--{name}" for name in fixed if f"--{name}" in given]):
            parser.error(f"--{mode}: {', '.join(unused)} would have no effect beside it; leave out one of them")
    if not flags.peers and (unknown := [name for name in flags.workloads if name not in SIZES]):
        parser.error(f"--workloads: {', '.join(unknown)} needs --peers; without it: {', '.join(SIZES)}")
    matches = _peer_matches(flags) if flags.peers else _rule_matches(flags.rules) if flags.rules else _matches(flags)
    left_out = peer_contenders.left_out(flags.workloads, flags.peers)
    if idle := [name for name in flags.peers if all(name not in match.contenders for match in matches)]:
        parser.error(f"--peers: {', '.join(idle)} can train none of --workloads={','.join(flags.workloads)}")
    if not matches:
        parser.error(f"--contenders={','.join(flags.contenders)} has none for --modes={','.join(flags.modes)}")
    return StepRatePlan(
        matches=matches,
        repetitions=flags.repetitions,
        timing=RunTiming(flags.warmup_secs, flags.seconds, flags.warmup_secs + flags.seconds + flags.deadline_secs),
        folder=folder,
        history=pathlib.Path(flags.history) if flags.history else None,
        notes=[f"Left out, as they do not train the workload: {', '.join(left_out)}."] if left_out else [],
    )


def _parser() -> argparse.ArgumentParser:
    parser = arguments.create_parser("benchmarks.step_rate", __doc__)
    parser.add_argument(
        "--workloads",
        type=arguments.choices({**SIZES, **PEER_WORKLOADS}),
        default="deep,wide",
        help="models to train",
    )
    parser.add_argument("--modes", type=arguments.choices(MODES), default="async,sync", help="update rules")
    parser.add_argument("--ps", type=arguments.counts, default="1,2", help="numbers of ps tasks")
    parser.add_argument("--workers", type=arguments.counts, default="2", help="numbers of workers")
    parser.add_argument(
        "--contenders", type=arguments.choices(CONTENDERS), default=",".join(CONTENDERS), help="contenders"
    )
    parser.add_argument(
        "--repetitions", type=arguments.at_least(1), default=3, help="runs of each contender in each cell"
    )
    parser.add_argument("--seconds", type=arguments.secs, default=6.0, help="shortest measured window")
    parser.add_argument(
        "--warmup_secs", type=float, default=2.0, help="time after the last worker's first step that does not count"
    )
    parser.add_argument(
        "--deadline_secs",
        type=float,
        default=90.0,
        help="time limit of a run in addition to --warmup_secs and --seconds",
    )
    parser.add_argument(
        "--rules",
        type=arguments.choices(settings.RULES, all_as="all"),
        default="",
        help="compare update rules with async instead, on deep with 1 ps, 2 workers, packed: names, or all",
    )
    parser.add_argument(
        "--peers",
        type=arguments.choices(peer_contenders.PEER_CONTENDERS),
        default=[],
        help=f"compare other systems on --workloads instead; usual: {','.join(peer_contenders.DEFAULT)}",
    )
    parser.add_argument("--history", help="CSV file to which the result of this commit is added")
    arguments.add_out_dir(parser)
    parser.add_argument("--quick", action="store_true", help=f"the same as {' '.join(_QUICK)}")
    return parser


def _matches(flags: argparse.Namespace) -> list[Match]:
    in_mode = {
        mode: {name: CONTENDERS[name] for name in flags.contenders if mode in CONTENDERS[name].modes} for mode in MODES
    }
    return [
        Match(f"{workload}-{mode}-{num_ps}ps-{num_workers}w", Cell(workload, mode, num_ps, num_workers), in_mode[mode])
        for workload in flags.workloads
        for mode in flags.modes
        if in_mode[mode]
        for num_ps in flags.ps
        for num_workers in flags.workers
    ]


def _rule_matches(rules: Sequence[str]) -> list[Match]:
    groups = rule_contenders(rules, _RULES_PER_ASYNC)
    return [
        Match(f"rules{number}", Cell(workload, RULES_MODE, num_ps=1, num_workers=2), contenders)
        for number, (workload, contenders) in enumerate(groups)
    ]


def _peer_matches(flags: argparse.Namespace) -> list[Match]:
    return [
        Match(
            f"peers-{workload}-{num_ps}ps-{num_workers}w", Cell(workload, PEERS_MODE, num_ps, num_workers), contenders
        )
        for workload in flags.workloads
        if (contenders := peer_contenders.of_workload(workload, flags.peers))
        for num_ps in flags.ps
        for num_workers in flags.workers
    ]


def _run_match(plan: StepRatePlan, match: Match) -> dict[str, list[Measurement]]:
    """Returns the measurements of the contenders whose runs all succeeded; a failed run ends a contender's turns."""
    cell = match.cell
    measurements: dict[str, list[Measurement]] = {contender: [] for contender in match.contenders}
    for repetition in range(plan.repetitions):
        # A copy, because a failed contender is removed inside.
        for contender in list(measurements):
            name = f"{match.name}-{contender}-{repetition}"
            result = _measure(match.contenders[contender], cell, plan, name)
            if result is None:
                del measurements[contender]
                continue
            measurements[contender].append(result)
            print(f"{name}: {result.steps_per_sec:.1f} steps/s", file=sys.stderr, flush=True)
            with plan.folder.joinpath("runs.jsonl").open("a") as file:
                record = {**cell._asdict(), "who": contender, "repetition": repetition, **result._asdict()}
                file.write(json.dumps(record) + "\n")
    return measurements


def _measure(contender: Contender, cell: Cell, plan: StepRatePlan, name: str) -> Measurement | None:
    """Returns the measurement of a run, or None if it failed as often as `Contender.attempts` allows."""
    for attempt in range(contender.attempts):
        folder = plan.folder / "runs" / (f"{name}-again" if attempt else name)
        try:
            return measure(contender, cell, plan.timing, folder)
        except RunError as error:
            is_last = attempt == contender.attempts - 1
            print(
                f"error: {name} failed{'' if is_last else ', and is made again'}: {error}", file=sys.stderr, flush=True
            )
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
