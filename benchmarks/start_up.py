"""Measures the time from the command `local` to the first step of its workers.

    python -m benchmarks.start_up
    python -m benchmarks.start_up --models=cnn,resnet --repetitions=9

Each model trains on its built-in data with 1 ps task and 2 workers, in two ways that alternate. A *fresh* launcher is
what a user starts: it imports Python's modules, and its fork server imports TensorFlow. A *preloaded* launcher is
forked from a process that has imported TensorFlow, as experiments and notebooks do that train many times.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import sys
import time
from collections.abc import Sequence

from benchmarks import arguments
from benchmarks.contenders import REPOSITORY
from benchmarks.first_step import first_step_at
from benchmarks.report import Report, ResultColumn, Row
from ps_trainer import component_tables
from ps_trainer.experiments.toolkit.clusters import read_steps
from ps_trainer.launch.command import run_local, shared_server

LAUNCHERS = {"fresh": False, "preloaded": True}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartRow(Row):
    """The starts of one model by one kind of launcher.

    Attributes:
        model: Name of the model.
        launcher: A key of `LAUNCHERS`.
        repetitions: Number of starts.
        first_step_secs: Seconds from the command to the end of each worker's first step, the later one; the median.
        first_step_secs_min: The shortest.
        first_step_secs_max: The longest.
    """

    COLUMNS = (
        ResultColumn("model", "model"),
        ResultColumn("launcher", "launcher"),
        ResultColumn("first step, s", "first_step_secs", ".1f"),
        ResultColumn("shortest", "first_step_secs_min", ".1f"),
        ResultColumn("longest", "first_step_secs_max", ".1f"),
    )

    model: str
    launcher: str
    repetitions: int
    first_step_secs: float
    first_step_secs_min: float
    first_step_secs_max: float


def main(argv: Sequence[str]) -> int:
    """Measures the starts; returns 0."""
    parser = arguments.create_parser("benchmarks.start_up", __doc__)
    known = arguments.choices(component_tables.MODELS.names())
    parser.add_argument("--models", type=known, default="mlp,cnn", help="models to train")
    parser.add_argument("--repetitions", type=arguments.at_least(1), default=5, help="starts of each kind")
    arguments.add_deadline(parser, 120.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    folder = arguments.new_folder(parser, flags.out_dir, "runs/start_up")
    report = Report("benchmarks.start_up", argv, folder)
    shared_server(folder)  # its import of TensorFlow does not count
    secs: dict[tuple[str, str], list[float]] = {key: [] for key in itertools.product(flags.models, LAUNCHERS)}
    for repetition, (model, launcher) in itertools.product(range(flags.repetitions), secs):
        logdir = folder / f"{model}-{launcher}-{repetition}"
        started_at = time.time()
        run_local(
            ["--num_ps=1", "--num_workers=2", f"--model={model}", "--max_steps=20", "--step_log", "--update=sync"],
            logdir,
            flags.deadline_secs,
            cwd=REPOSITORY,
            preloaded=LAUNCHERS[launcher],
        )
        secs[model, launcher].append(first_step_at(read_steps(logdir)) - started_at)
    for (model, launcher), measured in secs.items():
        report.add(
            StartRow(
                model=model,
                launcher=launcher,
                repetitions=len(measured),
                first_step_secs=statistics.median(measured),
                first_step_secs_min=min(measured),
                first_step_secs_max=max(measured),
            )
        )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
