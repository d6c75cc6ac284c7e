"""Measures how many examples each loader of `ps_trainer/data/` reads per second, in one process, from files.

    python -m benchmarks.loaders --help

The table in `benchmarks/README.md` comes from here.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import statistics
import sys
import time
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from benchmarks import arguments, report
from benchmarks.loader_files import Write, generated, images, people, records
from ps_trainer import registry
from ps_trainer.data.base import DataSource, Shard
from ps_trainer.data.kinds import recognise
from ps_trainer.errors import EXIT_DONE
from ps_trainer.experiments.frame.provenance import origin_sentence, provenance


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Files, and how they are read.

    Attributes:
        write: writes them into a new folder.
        dataset: that reads them; None = what `data info` says, with its options.
        options: of the dataset, `key=value` each.
    """

    write: Write
    dataset: str | None = None
    options: tuple[str, ...] = ()


_CLICKS = "num_train=60000", "num_test=10"
_DIGITS = "num_train=20000", "num_test=10"
_TEXT = "num_words=100", "num_train=200000", "num_test=10000"
CASES = {
    "mnist": Case(write=generated("glyphs", *_DIGITS)),
    "mnist, gz": Case(write=generated("glyphs", *_DIGITS, is_packed=True)),
    "cifar10": Case(write=generated("glyphs", "size=32", "channels=3", "num_train=8000", "num_test=10")),
    "image_folder, PNG 32x32": Case(write=images(2000, 32)),
    "tfrecord, JPEG 64x64": Case(
        write=records(2000, 64),
        dataset="tfrecord",
        options=("features=image=image/encoded:image[64x64x3],label=image/class/label:int64",),
    ),
    "libsvm": Case(write=generated("planted_weights", "num_train=20000", "num_test=10")),
    "criteo": Case(write=generated("planted_clicks", *_CLICKS)),
    "criteo, gz": Case(write=generated("planted_clicks", *_CLICKS, is_packed=True)),
    "census": Case(write=people(32_000)),
    "movielens": Case(write=generated("planted_ratings", "num_train=100000", "num_test=10")),
    "text, characters": Case(write=generated("markov", *_TEXT)),
    "text, words": Case(write=generated("markov", *_TEXT), dataset="text", options=("unit=word",)),
    "text_windows": Case(write=generated("markov", *_TEXT), dataset="text_windows", options=("train_files=train.txt",)),
    "parallel_text": Case(write=generated("numbers")),
    "wav": Case(write=generated("tones", "num_train=512", "num_test=10")),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """The result of one loader.

    Attributes:
        loader: key of `CASES`.
        megabytes: of its files.
        examples: training examples in them.
        first_batch_secs: from nothing to the first batch, with the look at the files and the filling of the buffer
            from which examples are drawn.
        examples_per_sec: median over the repetitions.
        examples_per_sec_min: the lowest.
        examples_per_sec_max: the highest.
    """

    loader: str
    megabytes: float
    examples: int
    first_batch_secs: float
    examples_per_sec: float
    examples_per_sec_min: float
    examples_per_sec_max: float


def main(argv: Sequence[str]) -> int:
    """Measures the loaders; returns the exit code.

    Args:
        argv: arguments, without the program's name.
    """
    parser = arguments.create_parser("benchmarks.loaders", __doc__)
    parser.add_argument("--loaders", help="of the names that start so only, with commas")
    parser.add_argument("--batch_size", type=int, default=128, help="examples per batch")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each repetition")
    parser.add_argument("--repetitions", type=int, default=3, help="of each loader, one after the other")
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    names = [name for name in CASES if name.startswith(tuple((flags.loaders or "").split(",")))]
    if not names:
        parser.error(f"--loaders={flags.loaders}: none starts so; known: {'; '.join(CASES)}")
    folder = arguments.new_folder(parser, flags.out_dir, "runs/loaders")
    folder.mkdir(parents=True)
    origin = provenance(["python", "-m", "benchmarks.loaders", *argv])
    rows = []
    for name in names:
        rows.append(measure(name, CASES[name], folder / "files", flags.batch_size, flags.seconds, flags.repetitions))
        print(_line(rows[-1]), flush=True)
        values = [report.rounded(row) for row in rows]
        folder.joinpath("results.json").write_text(json.dumps({"provenance": origin, "rows": values}, indent=2) + "\n")
        report.write_csv(rows, Row, folder / "results.csv")
    print(f"\n{origin_sentence(origin)}\nresults: {folder}")
    return EXIT_DONE


def measure(name: str, case: Case, folder: pathlib.Path, batch_size: int, seconds: float, repetitions: int) -> Row:
    """Writes the files of a loader, reads them, and removes them."""
    try:
        case.write(folder)
        num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        started_at = time.perf_counter()
        source = create(case, folder)
        first_secs, rates = _rates(source, batch_size, seconds, repetitions, started_at)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Row(
        loader=name,
        megabytes=num_bytes / 1e6,
        examples=source.num_train_examples,
        first_batch_secs=first_secs,
        examples_per_sec=statistics.median(rates),
        examples_per_sec_min=min(rates),
        examples_per_sec_max=max(rates),
    )


def create(case: Case, folder: pathlib.Path) -> DataSource:
    """The dataset that reads the files of a case."""
    if case.dataset is not None:
        return registry.DATASETS.create(case.dataset, case.options, data_dir=str(folder))
    found = recognise(folder)
    return registry.DATASETS.create(found.dataset, found.options, data_dir=str(found.data_dir))


def _rates(
    source: DataSource, batch_size: int, seconds: float, repetitions: int, started_at: float
) -> tuple[float, list[float]]:
    """Seconds from `started_at` to the first batch, then examples per second of each repetition."""
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        batches = source.train(shard=Shard(0, 1), batch_size=batch_size, seed=0, num_epochs=None)
        iterator = tf.data.make_initializable_iterator(batches)
        read_op = tf.group(*tf.nest.flatten(iterator.get_next()))  # an op: nothing is copied out of the session
        session.run([iterator.initializer, tf.tables_initializer()])
        session.run(read_op)
        first_secs, rates = time.perf_counter() - started_at, []
        for _ in range(repetitions):
            began_at, num_batches = time.perf_counter(), 0
            while (elapsed := time.perf_counter() - began_at) < seconds or not num_batches:
                session.run(read_op)
                num_batches += 1
            rates.append(num_batches * batch_size / elapsed)
    return first_secs, rates


def _line(row: Row) -> str:
    """The row in Markdown."""
    return (
        f"| {row.loader} | {row.megabytes:.1f} | {row.examples:,} | {row.first_batch_secs:.1f} |"
        f" {row.examples_per_sec:,.0f} | {row.examples_per_sec_min:,.0f} to {row.examples_per_sec_max:,.0f} |"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
