"""Trains the models of `models/` in real processes, each to the figure that it must reach.

    python -m benchmarks.models --help

The table in `models/README.md` comes from here.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
import shlex
import signal
import sys
from collections.abc import Sequence

from benchmarks import arguments, report
from benchmarks.contenders import REPOSITORY
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, RunError
from ps_trainer.experiments.frame.provenance import origin_sentence, provenance
from ps_trainer.launch.command import run_local

CLUSTER = ("--num_ps=1", "--num_workers=2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A model, what it is trained on, and what it must reach.

    Attributes:
        flags: after `python -m ps_trainer local --num_ps=1 --num_workers=2 --model=<name>`.
        metric: of the test examples, in summary.json.
        least: the metric must be so much, or more.
        most: the metric must be so much, or less.
        why: where the bound comes from.
    """

    flags: tuple[str, ...]
    metric: str
    least: float = -math.inf
    most: float = math.inf
    why: str

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"≥ {self.least:g}" if self.least > -math.inf else f"≤ {self.most:g}"

    def is_met(self, value: float) -> bool:
        """Whether a value of the metric is as it must be."""
        return self.least <= value <= self.most


TASKS = {
    "lenet": Task(
        flags=(
            "--dataset=digits", "--update=sync", "--optimizer=momentum", "--learning_rate=0.02", "--max_steps=2500",
        ),
        metric="accuracy",
        least=0.98,
        why="the digits",
    ),
    "vgg": Task(
        flags=(
            "--model_option=width=0.125", "--model_option=hidden=128", "--dataset=glyphs", "--update=sync",
            "--optimizer=momentum", "--learning_rate=0.02", "--max_steps=800",
        ),
        metric="loss",
        most=1.15,
        why="half of log(10) = 2.30, the loss of one who knows nothing",
    ),
    "resnet": Task(
        flags=(
            "--dataset=glyphs", "--update=sync", "--optimizer=momentum", "--learning_rate=0.1", "--max_steps=500",
        ),
        metric="accuracy",
        least=0.95,
        why="the glyphs",
    ),
    "logistic_regression": Task(
        flags=(
            "--dataset=planted_weights", "--update=async", "--optimizer=ftrl", "--optimizer_option=l1=2",
            "--learning_rate=0.3", "--batch_size=64", "--max_steps=3000",
        ),
        metric="log_loss",
        most=0.42,
        why="the planted weights themselves have 0.39",
    ),
    "matrix_factorization": Task(
        flags=(
            "--dataset=planted_ratings", "--update=async", "--optimizer=adagrad", "--learning_rate=0.3",
            "--batch_size=128", "--max_steps=4000",
        ),
        metric="squared_error",
        most=0.0529,
        why="an RMSE of 0.23; the noise is 0.2",
    ),
    "word2vec": Task(
        flags=(
            "--dataset=planted_synonyms", "--update=async", "--optimizer=adagrad", "--learning_rate=0.5",
            "--batch_size=64", "--max_steps=3000",
        ),
        metric="recovered",
        least=0.9,
        why="synonyms that are each other's nearest neighbours",
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """The result of one model.

    Attributes:
        model: its name.
        flags: after `--model=<name>`.
        metric: what was measured.
        bound: what it must be.
        value: what it is; None where the run failed.
        is_met: whether it is what it must be.
        global_step: at the end.
        examples_per_sec: of all workers together.
        wall_secs: with the start of the processes.
    """

    model: str
    flags: str
    metric: str
    bound: str
    value: float | None
    is_met: bool
    global_step: int
    examples_per_sec: float
    wall_secs: float


def main(argv: Sequence[str]) -> int:
    """Trains the models.

    Args:
        argv: arguments, without the program's name.

    Returns:
        0, or 1 where a run failed or a model is not what it must be.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models",
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--models", type=arguments.choices(TASKS, all_as="all"), default="all", help="names, or all")
    parser.add_argument("--deadline_secs", type=float, default=900.0, help="after so long a run has failed")
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    folder = arguments.new_folder(parser, flags.out_dir, "runs/models")
    folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, arguments.exit_by_signal)
    origin = provenance(["python", "-m", "benchmarks.models", *argv])
    rows = []
    for name in flags.models:
        rows.append(run(name, TASKS[name], folder / name, flags.deadline_secs))
        print(_line(rows[-1]), flush=True)
        values = [report.rounded(row) for row in rows]
        folder.joinpath("results.json").write_text(json.dumps({"provenance": origin, "rows": values}, indent=2) + "\n")
        report.write_csv(rows, Row, folder / "results.csv")
    print(f"\n{origin_sentence(origin)}\nresults: {folder}")
    return EXIT_DONE if all(row.is_met for row in rows) else EXIT_FAILED


def run(name: str, task: Task, logdir: pathlib.Path, deadline_secs: float) -> Row:
    """Trains one model; a failed run is a row whose bound is not met, and says why."""
    common = {"model": name, "flags": shlex.join(task.flags), "metric": task.metric, "bound": task.bound}
    try:
        wall_secs = run_local([*CLUSTER, f"--model={name}", *task.flags], logdir, deadline_secs, cwd=REPOSITORY)
    except RunError as error:
        print(f"error: {name} failed: {error}", file=sys.stderr, flush=True)
        return Row(**common, value=None, is_met=False, global_step=0, examples_per_sec=0.0, wall_secs=0.0)
    summary = json.loads(logdir.joinpath("summary.json").read_text())
    value = summary["metrics"][task.metric]
    return Row(
        **common,
        value=value,
        is_met=task.is_met(value),
        global_step=summary["global_step"],
        examples_per_sec=summary["examples_per_sec"],
        wall_secs=wall_secs,
    )


def _line(row: Row) -> str:
    """The row in Markdown."""
    value = "failed" if row.value is None else f"{row.value:.4g}{'' if row.is_met else ' (missed)'}"
    return (
        f"| `{row.model}` | {row.metric} {row.bound} | {value} |"
        f" {row.global_step} | {row.examples_per_sec:.0f} | {row.wall_secs:.0f} |"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
