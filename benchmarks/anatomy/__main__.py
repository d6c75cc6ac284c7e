"""The work of one step of each update rule and path: calls, RPCs, messages, copies and ops, with bytes and CPU time.

    python -m benchmarks.anatomy --help

A path is an update rule, a layout and a workload, with `/colocated` if the workers hold the parameters. Each path is
traced on a cluster of threads in this process, which gives the counts. Then it runs as processes, which gives the CPU
time of workers and ps tasks, and beside it what bounds it: bare TensorFlow ops between the same tasks, and plain
sockets. Counts and CPU time are of calls with the same number of steps. README.md describes the results.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from benchmarks import arguments, contenders, settings
from benchmarks.anatomy.rows import AnatomyRow, cpu_rows, share_rows, step_rows
from benchmarks.contenders import PEERS_MODE, RULES_MODE, Cell, Contender, PsTrainer
from benchmarks.peer_contenders import BARE_OPS, BARE_OPS_COLOCATED, BARE_OPS_LOOP, PEER_CONTENDERS, RAW_SOCKET, Module
from benchmarks.peer_workloads import PEER_WORKLOADS
from benchmarks.report import Report
from benchmarks.step_rate_run import RunTiming, measure
from ps_trainer.config import COLOCATED, PLACEMENTS, TrainConfig
from ps_trainer.errors import PsTrainerError
from ps_trainer.runtime import environment

LAYOUTS = ("packed", "per_variable")
DEFAULT_PATHS = (
    "async/packed/deep",
    "sync/packed/deep",
    "all_reduce/packed/deep",
    "async/per_variable/deep",
    "async/packed/table",
    "async/packed/deep/colocated",
    "sync/packed/deep/colocated",
)
LIMITS: Mapping[str, Contender] = {
    "bare ops": PEER_CONTENDERS[BARE_OPS],
    "bare ops in a loop": PEER_CONTENDERS[BARE_OPS_LOOP],
    "bare ops, no arithmetic": Module(BARE_OPS, "bare_ops", flags=["--no-compute"]),
    "bare ops, colocated": PEER_CONTENDERS[BARE_OPS_COLOCATED],
    "raw socket": PEER_CONTENDERS[RAW_SOCKET],
}
WORKLOADS = sorted({*contenders.RULE_SIZES, *PEER_WORKLOADS})


class AnatomyPath(NamedTuple):
    """A way of a step through the program."""

    rule: str
    layout: str
    workload: str
    placement: str = ""  # or `COLOCATED`

    def __str__(self) -> str:
        return "/".join(filter(None, self))

    @property
    def is_of_peers(self) -> bool:
        """Whether peers and bare ops train this workload as well."""
        return self.workload in PEER_WORKLOADS

    @property
    def is_colocated(self) -> bool:
        """Whether the workers hold the parameters."""
        return self.placement == COLOCATED

    def config(self, steps_per_call: int = 0) -> TrainConfig:
        """Returns the settings of an endless run that nothing but its steps disturbs."""
        return TrainConfig(
            **(contenders.peer_settings if self.is_of_peers else contenders.training_settings)(self.workload),
            update=self.rule,
            update_option=settings.RULES[self.rule].options,
            layout=self.layout,
            placement=self.placement or PLACEMENTS[0],
            max_steps=contenders.ENDLESS_STEPS,
            report_secs=contenders.NEVER_SECS,
            steps_per_call=steps_per_call,
            save_checkpoint_secs=contenders.NEVER_SECS,
        )


def main(argv: Sequence[str]) -> int:
    """Prints the anatomy of each path; returns 0, or 1 when a path failed."""
    parser = _parser()
    flags = parser.parse_args(argv)
    folder = arguments.new_folder(parser, flags.out_dir, "runs/anatomy")
    report = Report("benchmarks.anatomy", argv, folder)
    has_failed = False
    limits: dict[str, list[AnatomyRow]] = {}
    for path in flags.paths:
        try:
            _add_path(report, path, flags, folder, limits)
        except PsTrainerError as error:
            has_failed = True
            print(f"error: {path} failed: {error}", file=sys.stderr, flush=True)
    return report.finish(has_failed=has_failed)


def _add_path(
    report: Report,
    path: AnatomyPath,
    flags: argparse.Namespace,
    folder: pathlib.Path,
    limits: dict[str, list[AnatomyRow]],
) -> None:
    """Adds the rows of a path; `limits` keeps the rows of each workload's limits."""
    environment.prepare(is_ps=False)
    from benchmarks.anatomy import traced_cluster  # loads TensorFlow, which reads the environment

    # The first worker holds all of few parameters, and sends nothing then.
    num_ps, worker = (0, flags.workers - 1) if path.is_colocated else (flags.ps, 0)
    step = traced_cluster.trace(path.config(flags.steps_per_call), num_ps, flags.workers, worker)
    for row in step_rows(str(path), step):
        report.add(row)
    if not flags.cpu_secs:
        return
    timing = RunTiming(1.0, flags.cpu_secs, flags.cpu_secs + flags.deadline_secs)
    cell = Cell(path.workload, PEERS_MODE if path.is_of_peers else RULES_MODE, flags.ps, flags.workers)

    def rows_of(contender: Contender, name: str, steps_per_call: int | None = None) -> list[AnatomyRow]:
        run_folder = folder / "runs" / name.replace("/", "-")
        return cpu_rows(name, measure(contender, cell, timing, run_folder, has_threads=True), steps_per_call)

    if path.is_of_peers and path.workload not in limits:
        # Beside the first path of a workload, so that they run within a minute of each other.
        limits[path.workload] = [
            row for who, contender in LIMITS.items() for row in rows_of(contender, f"{who}/{path.workload}")
        ]
        for row in limits[path.workload]:
            report.add(row)
    options = settings.RULES[path.rule].options
    contender = PsTrainer(
        path.layout,
        path.rule,
        options,
        flags=[f"--steps_per_call={flags.steps_per_call}"],
        is_colocated=path.is_colocated,
    )
    own = rows_of(contender, str(path), step.steps_per_call)
    for row in [*own, *share_rows(str(path), own, limits.get(path.workload, []))]:
        report.add(row)


def _parser() -> argparse.ArgumentParser:
    parser = arguments.create_parser("benchmarks.anatomy", __doc__)
    parser.add_argument(
        "--paths",
        type=_paths,
        default=",".join(DEFAULT_PATHS),
        help=f"comma-separated rule/layout/workload or rule/layout/workload/{COLOCATED}; layouts: {', '.join(LAYOUTS)};"
        f" workloads: {', '.join(WORKLOADS)}; all = every rule, packed",
    )
    parser.add_argument("--ps", type=arguments.at_least(1), default=1, help="ps tasks; colocated paths have none")
    parser.add_argument("--workers", type=arguments.at_least(1), default=2, help="workers")
    parser.add_argument(
        "--cpu_secs",
        type=arguments.not_negative,
        default=3.0,
        help="measured window of the run with processes; 0 = no such run",
    )
    parser.add_argument(
        "--steps_per_call",
        type=arguments.at_least(0),
        default=0,
        help="steps in a call, for counts and CPU time; 0 = as a training makes them by default, up to 50; 1 = as bare"
        " ops, so that only the work of a step differs",
    )
    arguments.add_deadline(parser, 90.0)
    arguments.add_out_dir(parser)
    return parser


def _paths(text: str) -> list[AnatomyPath]:
    if text == "all":
        return [
            AnatomyPath(rule, "packed", contenders.TABLE_WORKLOAD if setting.needs_table else "deep")
            for rule, setting in settings.RULES.items()
        ]
    return [_path(name) for name in dict.fromkeys(text.split(","))]


def _path(name: str) -> AnatomyPath:
    parts = name.split("/")
    known_parts: list[Collection[str]] = [list(settings.RULES), LAYOUTS, WORKLOADS, [COLOCATED]]
    if not len(known_parts) - 1 <= len(parts) <= len(known_parts):
        raise argparse.ArgumentTypeError(f"{name!r} is not rule/layout/workload, such as {DEFAULT_PATHS[0]}")
    for part, known in zip(parts, known_parts, strict=False):
        if part not in known:
            raise argparse.ArgumentTypeError(f"unknown {part!r} in {name!r}; known: {', '.join(known)}")
    path = AnatomyPath(*parts)
    has_table = contenders.has_table(path.workload)
    fitting = ", ".join(workload for workload in WORKLOADS if contenders.has_table(workload) != has_table)
    if has_table and path.rule in settings.WITHOUT_TABLES:
        raise argparse.ArgumentTypeError(
            f"{path.rule} cannot train the embedding table of {path.workload!r} in {name!r}; workloads without one:"
            f" {fitting}"
        )
    if not has_table and settings.RULES[path.rule].needs_table:
        raise argparse.ArgumentTypeError(
            f"{path.rule} needs an embedding table, and {path.workload!r} in {name!r} has none; workloads with one:"
            f" {fitting}"
        )
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
