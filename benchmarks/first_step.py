"""Measures how long training on a large text takes to its first step, and how much memory a worker needs.

    python -m benchmarks.first_step --megabytes=300

The program writes a text of words whose frequencies follow Zipf's law. `local` then trains word2vec on it with 1 ps
task and 2 workers. At the first start the cache is empty, so one worker counts the words of the whole text. The second
start has these counts. A time includes the start of all processes and the import of TensorFlow. Memory is the largest
resident memory of a worker at any time, with the pages that it shares with other processes.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import time
from collections.abc import Sequence

import numpy as np

from benchmarks import arguments
from benchmarks.contenders import REPOSITORY
from benchmarks.peak_memory import PeakWatch
from benchmarks.report import Report, ResultColumn, Row
from ps_trainer.data.pipeline.facts_cache import VARIABLE
from ps_trainer.experiments.toolkit.clusters import read_steps
from ps_trainer.launch.command import run_local
from ps_trainer.metrics.step_record import StepRecord

NUM_WORDS = 100_000
_BLOCK = 200_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstStepRow(Row):
    """One start.

    Attributes:
        cache: "empty" or "filled".
        megabytes: Size of the text.
        first_step_secs: Seconds from the start of `local` to the end of each worker's first step, the later one.
        worker_peak_mib: Largest resident memory of a worker.
    """

    COLUMNS = (
        ResultColumn("cache", "cache"),
        ResultColumn("MB", "megabytes", ".0f"),
        ResultColumn("first step, s", "first_step_secs", ".1f"),
        ResultColumn("peak of a worker, MiB", "worker_peak_mib", ".0f"),
    )

    cache: str
    megabytes: float
    first_step_secs: float
    worker_peak_mib: float


def main(argv: Sequence[str]) -> int:
    """Measures the two starts; returns 0."""
    parser = arguments.create_parser("benchmarks.first_step", __doc__)
    parser.add_argument("--megabytes", type=arguments.at_least(1), default=300, help="size of the text")
    parser.add_argument("--max_vocab", type=arguments.at_least(2), default=30_000, help="size of the vocabulary")
    arguments.add_deadline(parser, 300.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    folder = arguments.new_folder(parser, flags.out_dir, "runs/first_step")
    report = Report("benchmarks.first_step", argv, folder)
    text = folder / "data" / "train.txt"
    num_bytes = write_text(text, flags.megabytes * 10**6)
    try:
        for cache in ("empty", "filled"):
            secs, peak = start(text, folder, folder / cache, flags.max_vocab, flags.deadline_secs)
            row = FirstStepRow(cache=cache, megabytes=num_bytes / 1e6, first_step_secs=secs, worker_peak_mib=peak)
            report.add(row)
    finally:
        text.unlink()
    return report.finish()


def write_text(path: pathlib.Path, least_bytes: int) -> int:
    """Writes lines of random words, the frequency of the n-th word in proportion to 1 / n; returns the size."""
    path.parent.mkdir(parents=True)
    random = np.random.RandomState(0)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    words = np.array(
        [letters[random.randint(26, size=2 + random.poisson(4))].tobytes().decode() for _ in range(NUM_WORDS)]
    )
    ends = np.cumsum(1 / np.arange(1, NUM_WORDS + 1))
    with path.open("w") as file:
        while file.tell() < least_bytes:
            drawn = words[np.searchsorted(ends, random.random_sample(_BLOCK) * ends[-1])]
            file.writelines(f"{' '.join(line)}\n" for line in drawn.reshape(-1, 20))
    return path.stat().st_size


def start(
    text: pathlib.Path, folder: pathlib.Path, logdir: pathlib.Path, max_vocab: int, deadline_secs: float
) -> tuple[float, float]:
    """Trains for some steps.

    Returns:
        Seconds to the first step of the later worker, and the largest resident memory of a worker in MiB.

    Raises:
        RunError: The run failed or was too slow.
    """
    flags = [
        "--num_ps=1", "--num_workers=2", "--model=word2vec", "--dataset=text_windows", "--step_log", "--update=sync",
        f"--data_dir={text.parent}", f"--dataset_option=train_files={text.name}", "--max_steps=50",
        f"--dataset_option=max_vocab={max_vocab}",
    ]  # fmt: skip
    started_at = time.time()
    with PeakWatch(logdir) as peak:
        run_local(flags, logdir, deadline_secs, cwd=REPOSITORY, environ=os.environ | {VARIABLE: str(folder / "cache")})
    return first_step_at(read_steps(logdir)) - started_at, peak.mib("worker-")


def first_step_at(steps: Sequence[StepRecord]) -> float:
    """Returns the end of each worker's first step, the later one, in seconds since the epoch."""
    return max({step.worker: step.wall_time for step in reversed(steps)}.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
