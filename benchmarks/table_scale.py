"""Measures whether the size of an embedding table matters: to the steps, the start, a save and the memory of the tasks.

    python -m benchmarks.table_scale --help

A model with a large table and one with a small table train in turn, on 4 ps tasks and 2 workers, with the same number
of rows in each batch. Each run has one save beside the steps. A second start then restores the last checkpoint.
README.md describes the results.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks import arguments, save_figures
from benchmarks.contenders import REPOSITORY
from benchmarks.median_bounds import median_bounds
from benchmarks.peak_memory import PeakWatch
from benchmarks.report import Report, ResultColumn, Row
from benchmarks.step_rate_run import Window
from ps_trainer.checkpoints import folder_listing, reader
from ps_trainer.checkpoints.folder_listing import prefix_of
from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit.clusters import read_steps
from ps_trainer.launch.command import run_local
from ps_trainer.metrics.step_record import StepRecord
from ps_trainer.models import layers
from ps_trainer.options import option

NUM_PS = 4
NUM_WORKERS = 2
_DIM = 64
_IDS = 8
_BATCH_SIZE = 64
WARMUP_STEPS = 300
"""Steps of each worker that do not count: caches and connections warm up."""
_CALM_STEPS = 4000
_STEPS_PER_MB = 15
"""A run has `_CALM_STEPS` steps and these for each MB before its save, and as many after the save has begun."""
_MORE_STEPS = 200
"""Global steps after a restore."""


class TableModel:
    """An embedding table, of which a batch looks up 8 random rows per example, and a small dense layer.

    Args:
        options: Size of the table.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `TableModel`."""

        num_rows: int = option(10_000_000, "rows of the table", least=1)

    def __init__(self, options: Options):
        self._num_rows = options.num_rows

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "label" int64 [B], 0 <= label < 64.
            training: Not used; both graphs are the same.
        """
        del training
        # Other rows in each step, as real data have.
        ids = tf.random.uniform([tf.shape(batch["label"])[0], _IDS], maxval=self._num_rows, dtype=tf.int64)
        rows = layers.embedding("table", self._num_rows, _DIM, ids)
        return layers.classifier_output(layers.dense(tf.reduce_mean(rows, axis=1), _DIM, "out"), batch["label"])


class _Run(NamedTuple):
    """One run: when it began, the steps of each worker, the chief first, and the memory of its tasks."""

    started_at: float
    steps: list[list[StepRecord]]
    peaks: PeakWatch

    @property
    def first_step_at(self) -> float:
        """The end of each worker's first step, the later one."""
        return max(steps[0].wall_time for steps in self.steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleRow(Row):
    """One run and its restart.

    Attributes:
        num_rows: Rows of the table.
        repetition: Number of the run, from 1.
        table_mb: Size of the table in MB.
        step_ms: Median step of all workers outside of the save, in milliseconds.
        first_step_secs: Seconds from the start of `local` to the end of each worker's first step, the later one.
        save_secs: Seconds from the step at which the save is due to the checkpoint's final name.
        checkpoint_mb: Size of the checkpoint in MB.
        longest_step: Longest step of a worker that meets the save ÷ `step_ms`.
        longest_step_control: The same for a window of at most the same length before the save.
        kept_rate: Lowest steps/s of a worker during the save ÷ its steps/s outside of it.
        kept_rate_control: The same for the window of `longest_step_control`.
        chief_start_mib: Largest resident memory of the chief until its first step, in MiB.
        chief_steps_mib: The same until its last step.
        chief_mib: The same until its end, with the last save and the evaluation.
        ps_mib: Largest resident memory of a ps task.
        worker_mib: Largest resident memory of the other worker.
        restore_secs: Seconds from the start of `local` to the first step after a restore, of the later worker.
        restore_chief_mib: Largest resident memory of the chief until its first step after a restore.
        restore_ps_mib: Largest resident memory of a ps task in that run.
    """

    COLUMNS = (
        ResultColumn("rows", "num_rows", ",d"),
        ResultColumn("run", "repetition"),
        ResultColumn("MB", "table_mb", ".0f"),
        ResultColumn("median step, ms", "step_ms", ".2f"),
        ResultColumn("first step, s", "first_step_secs", ".1f"),
        ResultColumn("save, s", "save_secs", ".1f"),
        ResultColumn("checkpoint, MB", "checkpoint_mb", ".0f"),
        ResultColumn("longest step ÷ median", "longest_step", ".1f"),
        ResultColumn("without a save", "longest_step_control", ".1f"),
        ResultColumn("rate in a save, %", "kept_rate", ".0f", 0.01),
        ResultColumn("without a save, %", "kept_rate_control", ".0f", 0.01),
        ResultColumn("chief: start, MiB", "chief_start_mib", ".0f"),
        ResultColumn("steps", "chief_steps_mib", ".0f"),
        ResultColumn("end", "chief_mib", ".0f"),
        ResultColumn("ps task, MiB", "ps_mib", ".0f"),
        ResultColumn("other worker, MiB", "worker_mib", ".0f"),
        ResultColumn("restore, s", "restore_secs", ".1f"),
        ResultColumn("chief, MiB", "restore_chief_mib", ".0f"),
        ResultColumn("ps task, MiB", "restore_ps_mib", ".0f"),
    )

    num_rows: int
    repetition: int
    table_mb: float
    step_ms: float
    first_step_secs: float
    save_secs: float
    checkpoint_mb: float
    longest_step: float
    longest_step_control: float
    kept_rate: float
    kept_rate_control: float
    chief_start_mib: float
    chief_steps_mib: float
    chief_mib: float
    ps_mib: float
    worker_mib: float
    restore_secs: float
    restore_chief_mib: float
    restore_ps_mib: float


def main(argv: Sequence[str]) -> int:
    """Runs everything and prints the table; returns 0, or 1 when a run failed."""
    parser = arguments.create_parser("benchmarks.table_scale", __doc__)
    parser.add_argument("--rows", type=arguments.at_least(100), default=10_000_000, help="rows of the large table")
    parser.add_argument("--small_rows", type=arguments.at_least(100), default=100_000, help="rows of the small table")
    parser.add_argument("--repetitions", type=arguments.at_least(1), default=5, help="runs of each size, in turn")
    parser.add_argument(
        "--steps",
        type=arguments.at_least(4 * WARMUP_STEPS),
        help="global steps before the save beside the steps, and after its beginning; by default as many as it takes",
    )
    arguments.add_deadline(parser, 1800.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    out_dir = arguments.new_folder(parser, flags.out_dir, "runs/table_scale")
    report = Report("benchmarks.table_scale", argv, out_dir)
    step_ms: dict[int, list[float]] = {flags.rows: [], flags.small_rows: []}
    for repetition in range(1, flags.repetitions + 1):
        # Each size is first in every second pair, since the machine's speed changes with time.
        for num_rows in list(step_ms)[:: 1 if repetition % 2 else -1]:
            logdir = out_dir / f"{num_rows}-{repetition}"
            try:
                row = measure(num_rows, repetition, logdir, flags.deadline_secs, flags.steps)
            except RunError as error:
                print(f"{logdir.name} failed: {error}", flush=True)
                return report.finish(has_failed=True)
            finally:
                shutil.rmtree(logdir / "checkpoints", ignore_errors=True)  # gigabytes
            report.add(row)
            step_ms[num_rows].append(row.step_ms)
        _note_ratio(report, step_ms[flags.rows], step_ms[flags.small_rows])
    return report.finish()


def measure(
    num_rows: int, repetition: int, logdir: pathlib.Path, deadline_secs: float, num_steps: int | None = None
) -> ScaleRow:
    """Trains with one save beside the steps, and then restores the last checkpoint.

    Args:
        num_rows: Rows of the table.
        repetition: Number of the run, from 1.
        logdir: Folder of the run.
        deadline_secs: Time in seconds that each start may take.
        num_steps: Global steps before the save, and after its beginning; None = enough for it to end beside the steps.

    Raises:
        RunError: A run failed or was too slow.
    """
    table_mb = num_rows * _DIM * 4 / 1e6
    save_at = num_steps or _CALM_STEPS + int(_STEPS_PER_MB * table_mb)
    last = 2 * save_at - 1
    run = _train(num_rows, last, [f"--save_checkpoint_steps={save_at}"], logdir, deadline_secs)
    folder = logdir / "checkpoints"
    beside, newest = folder_listing.read_folder(folder).steps  # the one beside the steps, and that of the end
    save = _window(folder, beside, run.steps[0])
    times = [np.array([step.wall_time for step in worker])[WARMUP_STEPS:] for worker in run.steps]
    figures = save_figures.step_figures(times, save_figures.until_last_step(times, [save]))
    checkpoint_mb = sum(path.stat().st_size for path in reader.Checkpoint(prefix_of(folder, newest)).files) / 1e6
    restored = _train(num_rows, newest + _MORE_STEPS, ["--save_checkpoint_secs=0"], logdir, deadline_secs)
    return ScaleRow(
        num_rows=num_rows,
        repetition=repetition,
        table_mb=table_mb,
        step_ms=figures.step_ms,
        first_step_secs=run.first_step_at - run.started_at,
        save_secs=save.secs,
        checkpoint_mb=checkpoint_mb,
        longest_step=figures.longest_step,
        longest_step_control=figures.longest_step_control,
        kept_rate=figures.lowest_rate,
        kept_rate_control=figures.lowest_rate_control,
        chief_start_mib=run.peaks.mib("worker-0", run.first_step_at),
        chief_steps_mib=run.peaks.mib("worker-0", run.steps[0][-1].wall_time),
        chief_mib=run.peaks.mib("worker-0"),
        ps_mib=run.peaks.mib("ps-"),
        worker_mib=run.peaks.mib("worker-1"),
        restore_secs=restored.first_step_at - restored.started_at,
        restore_chief_mib=restored.peaks.mib("worker-0", restored.first_step_at),
        restore_ps_mib=restored.peaks.mib("ps-"),
    )


def _train(num_rows: int, last: int, flags: Sequence[str], logdir: pathlib.Path, deadline_secs: float) -> _Run:
    """Trains until global step `last`, from the state in the folder if there is one.

    Raises:
        RunError: The run failed or was too slow.
    """
    started_at = time.time()
    with PeakWatch(logdir) as peaks:
        run_local(
            [
                f"--num_ps={NUM_PS}", f"--num_workers={NUM_WORKERS}", "--model=benchmarks.table_scale:TableModel",
                f"--model_option=num_rows={num_rows}", "--dataset=benchmarks.workloads:RandomInput",
                f"--batch_size={_BATCH_SIZE}", "--learning_rate=0.001", f"--max_steps={last}", "--step_log",
                "--save_checkpoint_secs=0", "--keep_checkpoints=2", "--eval_examples=4", *flags,
            ],
            logdir,
            deadline_secs,
            cwd=REPOSITORY,
        )  # fmt: skip
    steps = [step for step in read_steps(logdir) if step.wall_time > started_at]
    return _Run(started_at, [[step for step in steps if step.worker == index] for index in range(NUM_WORKERS)], peaks)


def _window(folder: pathlib.Path, saved: int, steps: Sequence[StepRecord]) -> Window:
    """Returns the time of a save beside the steps, from the chief's step that began it to the index's final name."""
    start = next(step.wall_time for step in steps if step.global_step >= saved)
    # A rename changes the time of the last change of status, and not the time of the content.
    return Window(start, pathlib.Path(f"{prefix_of(folder, saved)}.index").stat().st_ctime)


def _note_ratio(report: Report, large: Sequence[float], small: Sequence[float]) -> None:
    """Notes the median ratio of the steps of a pair of runs, with its interval."""
    ratio = median_bounds([a / b for a, b in zip(large, small, strict=True)])
    report.figures["step_ratio"] = {**ratio._asdict(), "pairs": len(large)}
    report.notes[:] = [
        f"A step with the large table takes {ratio.median:.3f} times as long as one with the small table"
        f" ({ratio.interval_text('.3f')}, pairs: {len(large)})."
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
