"""Measures how much a save of 300 MB holds up training.

    python -m benchmarks.saving --help

README.md describes the results.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks import arguments, save_figures
from benchmarks.contenders import REPOSITORY
from benchmarks.median_bounds import median_bounds
from benchmarks.report import Report, ResultColumn, Row
from benchmarks.step_rate_run import Window
from ps_trainer.checkpoints import folder_listing
from ps_trainer.checkpoints.folder_listing import prefix_of
from ps_trainer.errors import RunError
from ps_trainer.experiments.harness.cpu import CpuWatch
from ps_trainer.experiments.toolkit.clusters import read_steps
from ps_trainer.launch.command import run_local
from ps_trainer.metrics.step_record import StepRecord
from ps_trainer.models import layers

NUM_WORKERS = 2
WARMUP_SHARE = 0.3
"""Part of the steps before the first measured save in which steps do not count: caches and connections warm up."""
_WIDTH = 2048


class LargeDense:
    """18 dense layers 2048x2048: 75 million parameters, 302 MB."""

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "features" float32 [B, 2048]; "label" int64 [B], 0 <= label < 2048.
            training: Not used; both graphs are the same.
        """
        del training
        x = batch["features"]
        for index in range(18):
            x = layers.dense(x, _WIDTH, f"layer{index}", activation=tf.nn.relu if index < 17 else None)
        return layers.classifier_output(x, batch["label"])


class LargeTable:
    """An embedding table 1,180,000x64: 302 MB, of which a batch looks up 8 rows per example."""

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch, as `LargeDense.build` does."""
        del training
        num_rows = 1_180_000
        # Other rows in each step, as real data have.
        ids = tf.random.uniform([tf.shape(batch["label"])[0], 8], maxval=num_rows, dtype=tf.int64)
        rows = layers.embedding("table", num_rows, 64, ids)
        return layers.classifier_output(layers.dense(tf.reduce_mean(rows, axis=1), 64, "out"), batch["label"] % 64)


class Workload(NamedTuple):
    """A model whose checkpoint has 300 MB.

    Attributes:
        flags: Flags of `local`.
        steps: Number of global steps between two saves, by update rule.
    """

    flags: tuple[str, ...]
    steps: Mapping[str, int]


_INPUT = ("--dataset=benchmarks.workloads:RandomInput", f"--dataset_option=width={_WIDTH}", "--learning_rate=0.001")
_TABLE = ("--model=benchmarks.saving:LargeTable", *_INPUT, "--batch_size=64")
WORKLOADS = {
    "dense": Workload(("--model=benchmarks.saving:LargeDense", *_INPUT, "--batch_size=4"), {"sync": 12, "async": 24}),
    "table": Workload(_TABLE, {"sync": 6000, "async": 14000}),
    # The delay comes on top of what a step takes, so it hides nothing of a save.
    "paced": Workload((*_TABLE, "--straggler=det:mean_ms=50,jitter=0"), {"sync": 300, "async": 600}),
}
UPDATES = ("sync", "async")
PACES = {"apart": 1.0, "close": 0.4}
"""Share of `Workload.steps` between two saves; the second one is about as short as a save takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavingRow(Row):
    """One run with several saves.

    Attributes:
        workload: Key of `WORKLOADS`.
        update: Update rule.
        pace: Key of `PACES`.
        repetition: Number of the run, from 1.
        num_saves: Number of measured saves.
        save_secs: Median seconds from the step at which a save is due to the checkpoint's final name.
        step_ms: Median step of all workers outside of saves, in milliseconds.
        longest_step: Longest step of a worker that meets a save ÷ `step_ms`.
        longest_step_control: The same for windows of at most the same length before the saves; NaN without any.
        slow_share: Share of the steps that meet a save and are longer than 1.5 × `step_ms`.
        slow_share_control: The same for the windows of `longest_step_control`.
        lowest_rate: Lowest steps/s of a worker during a save ÷ its steps/s outside of saves.
        lowest_rate_control: The same for the windows of `longest_step_control`.
        chief_mib: Largest memory of the chief so far, from summary.json; None if it has none.
        held_up_ms: Longest time for which a save held up the chief, from summary.json; None if it has none.
        save_cpu_secs: Processor seconds of all tasks during a save, minus those that its steps would need outside of
            saves; median of the saves.
        idle: Share of the cores' time that was idle outside of saves.
        allowed_rate: Steps/s that the cores allow during such a save ÷ steps/s outside, if the save takes its time
            from idle cores first; lowest of the saves.
    """

    COLUMNS = (
        ResultColumn("workload", "workload"),
        ResultColumn("update", "update"),
        ResultColumn("saves are", "pace"),
        ResultColumn("run", "repetition"),
        ResultColumn("saves", "num_saves"),
        ResultColumn("s a save", "save_secs", ".2f"),
        ResultColumn("median step, ms", "step_ms", ".1f"),
        ResultColumn("longest step ÷ median", "longest_step", ".2f"),
        ResultColumn("without a save", "longest_step_control", ".2f"),
        ResultColumn("slow steps, %", "slow_share", ".1f", 0.01),
        ResultColumn("without a save, %", "slow_share_control", ".1f", 0.01),
        ResultColumn("lowest rate, %", lambda row: 100 * row.lowest_rate, ".0f"),
        ResultColumn("without a save, %", lambda row: 100 * row.lowest_rate_control, ".0f"),
        ResultColumn("CPU of a save, s", "save_cpu_secs", ".1f"),
        ResultColumn("idle cores, %", lambda row: 100 * row.idle, ".0f"),
        ResultColumn("rate that the cores allow, %", lambda row: 100 * row.allowed_rate, ".0f"),
        ResultColumn("chief held up, ms", "held_up_ms", ".0f"),
        ResultColumn("chief's memory, MiB", "chief_mib", ".0f"),
    )

    workload: str
    update: str
    pace: str
    repetition: int
    num_saves: int
    save_secs: float
    step_ms: float
    longest_step: float
    longest_step_control: float
    slow_share: float
    slow_share_control: float
    lowest_rate: float
    lowest_rate_control: float
    chief_mib: float | None
    held_up_ms: float | None
    save_cpu_secs: float
    idle: float
    allowed_rate: float


def main(argv: Sequence[str]) -> int:
    """Runs everything and prints the table; returns 0, or 1 when a run failed."""
    parser = arguments.create_parser("benchmarks.saving", __doc__)
    parser.add_argument("--workloads", type=arguments.choices(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--updates", type=arguments.choices(UPDATES), default=list(UPDATES))
    parser.add_argument("--paces", type=arguments.choices(PACES), default=["apart"])
    parser.add_argument("--saves", type=arguments.at_least(1), default=4, help="measured saves in a run")
    parser.add_argument("--repetitions", type=arguments.at_least(1), default=3, help="runs of each kind, in turn")
    arguments.add_deadline(parser, 400.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    out_dir = arguments.new_folder(parser, flags.out_dir, "runs/saving")
    report = Report("benchmarks.saving", argv, out_dir)
    has_failed = False
    rows: list[SavingRow] = []
    runs = itertools.product(range(1, flags.repetitions + 1), flags.workloads, flags.updates, flags.paces)
    for repetition, workload, update, pace in runs:
        logdir = out_dir / f"{workload}-{update}-{pace}-{repetition}"
        try:
            rows.append(_measure(workload, update, pace, repetition, flags.saves, logdir, flags.deadline_secs))
            report.notes[:] = _notes(rows)
            report.add(rows[-1])
        except RunError as error:
            print(f"{logdir.name} failed: {error}", flush=True)
            has_failed = True
        shutil.rmtree(logdir / "checkpoints", ignore_errors=True)  # gigabytes
    return report.finish(has_failed=has_failed)


def _measure(
    workload: str, update: str, pace: str, repetition: int, num_saves: int, logdir: pathlib.Path, deadline_secs: float
) -> SavingRow:
    """Trains once and measures its saves.

    Raises:
        RunError: The run failed.
    """
    between = int(WORKLOADS[workload].steps[update] * PACES[pace])
    # The last measured save has a whole interval, so that it ends beside the steps.
    last = (num_saves + 1) * between - 1
    with CpuWatch(sample_secs=0.2, has_delays=False, has_self=False) as cpu:
        run_local(
            [
                "--num_ps=1", f"--num_workers={NUM_WORKERS}", f"--update={update}", *WORKLOADS[workload].flags,
                f"--max_steps={last}", "--save_checkpoint_secs=0", f"--save_checkpoint_steps={between}",
                f"--keep_checkpoints={num_saves + 2}", "--step_log", "--eval_examples=4",
            ],
            logdir,
            deadline_secs,
            cwd=REPOSITORY,
        )  # fmt: skip
    ends = [[(step.wall_time, step.global_step) for step in steps] for steps in read_by_worker(logdir)]
    saves = _find_saves(logdir / "checkpoints", ends[0], last)
    begin = next(time for time, step in ends[0] if step >= WARMUP_SHARE * between)
    times = [np.array([time for time, _ in worker if time >= begin]) for worker in ends]
    beside = save_figures.until_last_step(times, saves)
    reported = json.loads((logdir / "summary.json").read_text()).get("saves", {})
    return SavingRow(
        workload=workload,
        update=update,
        pace=pace,
        repetition=repetition,
        num_saves=len(saves),
        save_secs=statistics.median(window.secs for window in saves),
        chief_mib=reported["chief_memory_bytes"] / 2**20 if reported else None,
        held_up_ms=1000 * reported["longest_held_up_secs"] if reported else None,
        **save_figures.step_figures(times, beside)._asdict(),
        **save_figures.cpu_figures(cpu, times, beside, begin)._asdict(),
    )


def _notes(rows: Sequence[SavingRow]) -> list[str]:
    """Compares the saves of each kind of run with the times without a save of the same runs."""
    kinds: dict[tuple[str, str, str], list[SavingRow]] = {}
    for row in rows:
        if not math.isnan(row.longest_step_control):
            kinds.setdefault((row.workload, row.update, row.pace), []).append(row)
    notes = []
    for kind, runs in kinds.items():
        longest = _median_text([row.longest_step / row.longest_step_control for row in runs])
        slow = _median_text([100 * (row.slow_share - row.slow_share_control) for row in runs])
        notes.append(
            f"{', '.join(kind)}: the longest step of a save is {longest} times the longest one without a save. The"
            f" share of steps above {save_figures.SLOW} × the median is {slow} percentage points higher."
        )
    return notes


def _median_text(values: Sequence[float]) -> str:
    bounds = median_bounds(values)
    return f"{bounds.median:.2f} ({bounds.interval_text('.2f')}, runs: {len(values)})"


def read_by_worker(logdir: pathlib.Path) -> list[list[StepRecord]]:
    """Reads the step log of each worker, the chief first."""
    steps = read_steps(logdir)
    return [[step for step in steps if step.worker == worker] for worker in range(NUM_WORKERS)]


def _find_saves(folder: pathlib.Path, ends: Sequence[tuple[float, int]], last: int) -> list[Window]:
    """Finds the time of each save: from the chief's step whose state it holds until its index has its final name."""
    windows = []
    for step in folder_listing.read_folder(folder).steps:
        if 0 < step < last:
            start = next(time for time, reached in ends if reached >= step)
            # A rename changes the time of the last change of status, and not the time of the content.
            windows.append(Window(start, pathlib.Path(f"{prefix_of(folder, step)}.index").stat().st_ctime))
    return windows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
