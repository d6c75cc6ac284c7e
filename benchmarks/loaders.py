"""Measures how many examples each loader of `ps_trainer/data/` reads from files per second, in one process.

    python -m benchmarks.loaders --help

After each loader a peer reads the same files with the packages that people use otherwise (`peers/loaders.py`). The
program installs them into a separate folder, `--packages`, so none is a dependency. The table in
`benchmarks/README.md` comes from this program.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import shutil
import statistics
import sys
import time
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from benchmarks import arguments, peer_packages
from benchmarks.loader_files import Write, generated, images, people, people_table, records
from benchmarks.report import Report, ResultColumn, Row
from ps_trainer import component_tables
from ps_trainer.data.detect_format import detect
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoaderCase:
    """Files, and the dataset that reads them.

    Attributes:
        write: Function that writes the files into a new folder.
        dataset: Name of the dataset; None = the dataset and options that `data info` finds.
        options: Options of the dataset, each as `key=value`.
        peer: Package with which the peer reads the files.
    """

    write: Write
    peer: str
    dataset: str | None = None
    options: tuple[str, ...] = ()


_CLICKS = "num_train=60000", "num_test=10"
_DIGITS = "num_train=20000", "num_test=10"
_TEXT = "num_words=100", "num_train=200000", "num_test=10000"
_LABEL = ("label=income",)
CASES = {
    "mnist": LoaderCase(write=generated("glyphs", *_DIGITS), peer="NumPy"),
    "mnist, gz": LoaderCase(write=generated("glyphs", *_DIGITS, is_packed=True), peer="NumPy"),
    "cifar10": LoaderCase(
        write=generated("glyphs", "size=32", "channels=3", "num_train=8000", "num_test=10"), peer="NumPy"
    ),
    "image_folder, PNG 32x32": LoaderCase(write=images(2000, 32), peer="Pillow"),
    "tfrecord, JPEG 64x64": LoaderCase(
        write=records(2000, 64),
        peer="tfrecord, Pillow",
        dataset="tfrecord",
        options=("features=image=image/encoded:image[64x64x3],label=image/class/label:int64",),
    ),
    "libsvm": LoaderCase(write=generated("planted_weights", "num_train=20000", "num_test=10"), peer="scikit-learn"),
    "criteo": LoaderCase(write=generated("planted_clicks", *_CLICKS), peer="pyarrow"),
    "criteo, gz": LoaderCase(write=generated("planted_clicks", *_CLICKS, is_packed=True), peer="pyarrow"),
    "census": LoaderCase(write=people(32_000), peer="pyarrow"),
    "csv": LoaderCase(write=people_table(32_000, "csv"), peer="pyarrow", dataset="csv", options=_LABEL),
    "parquet": LoaderCase(write=people_table(32_000, "parquet"), peer="pyarrow", dataset="parquet", options=_LABEL),
    "movielens": LoaderCase(write=generated("planted_ratings", "num_train=100000", "num_test=10"), peer="pyarrow"),
    "text, characters": LoaderCase(write=generated("markov", *_TEXT), peer="NumPy"),
    "text, words": LoaderCase(write=generated("markov", *_TEXT), peer="gensim", dataset="text", options=("unit=word",)),
    "text_windows": LoaderCase(
        write=generated("markov", *_TEXT), peer="gensim", dataset="text_windows", options=("train_files=train.txt",)
    ),
    "parallel_text": LoaderCase(write=generated("numbers"), peer="Python"),
    "wav": LoaderCase(write=generated("tones", "num_train=512", "num_test=10"), peer="SciPy"),
}
PACKAGES = ("scikit-learn", "gensim", "pyarrow", "pillow", "tfrecord")
"""Packages of the peers, in pip's names; scikit-learn brings SciPy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoaderRow(Row):
    """The result of one loader.

    Attributes:
        loader: Key of `CASES`.
        megabytes: Size of the files.
        examples: Training examples in the files.
        first_batch_secs: Time to the first batch, with the opening of the files and the filling of the shuffle buffer.
        examples_per_sec: Median over the repetitions.
        examples_per_sec_min: The lowest.
        examples_per_sec_max: The highest.
        peer: Package with which the peer read the files.
        peer_examples_per_sec: The same of the peer: median over the repetitions.
        peer_examples_per_sec_min: The lowest.
        peer_examples_per_sec_max: The highest.
    """

    COLUMNS = (
        ResultColumn("files", "loader"),
        ResultColumn("MB", "megabytes", ".1f"),
        ResultColumn("examples", "examples", ","),
        ResultColumn("first batch, s", "first_batch_secs", ".1f"),
        ResultColumn("examples/s", "examples_per_sec", ",.0f"),
        ResultColumn("lowest", "examples_per_sec_min", ",.0f"),
        ResultColumn("highest", "examples_per_sec_max", ",.0f"),
        ResultColumn("peer", "peer"),
        ResultColumn("its examples/s", "peer_examples_per_sec", ",.0f"),
        ResultColumn("ours ÷ its", lambda row: row.examples_per_sec / row.peer_examples_per_sec, ".2f"),
    )

    loader: str
    megabytes: float
    examples: int
    first_batch_secs: float
    examples_per_sec: float
    examples_per_sec_min: float
    examples_per_sec_max: float
    peer: str
    peer_examples_per_sec: float
    peer_examples_per_sec_min: float
    peer_examples_per_sec_max: float


def main(argv: Sequence[str]) -> int:
    """Measures the loaders; returns the exit code.

    Args:
        argv: Arguments, without the program's name.
    """
    parser = arguments.create_parser("benchmarks.loaders", __doc__)
    parser.add_argument("--loaders", help="comma-separated beginnings of names; by default all loaders")
    parser.add_argument("--batch_size", type=arguments.at_least(1), default=128, help="examples per batch")
    parser.add_argument("--seconds", type=arguments.secs, default=3.0, help="length of each repetition")
    parser.add_argument(
        "--repetitions", type=arguments.at_least(1), default=3, help="measurements of each loader, in sequence"
    )
    parser.add_argument("--packages", help="folder with the peers; filled by pip if it is missing; none = in --out_dir")
    arguments.add_deadline(parser, 600.0)
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    names = [name for name in CASES if name.startswith(tuple((flags.loaders or "").split(",")))]
    if not names:
        parser.error(f"--loaders={flags.loaders}: no name starts like this; known: {'; '.join(CASES)}")
    folder = arguments.new_folder(parser, flags.out_dir, "runs/loaders")
    report = Report("benchmarks.loaders", argv, folder)
    packages = pathlib.Path(flags.packages or folder / "packages").resolve()
    peer_packages.install(packages, PACKAGES, flags.deadline_secs)
    report.notes.append(f"Peers: {', '.join(peer_packages.versions(packages, PACKAGES))}.")
    for name in names:
        report.add(measure(name, CASES[name], folder / "files", packages, flags))
    return report.finish()


def measure(
    name: str, case: LoaderCase, folder: pathlib.Path, packages: pathlib.Path, flags: argparse.Namespace
) -> LoaderRow:
    """Writes the files of a loader, reads them, lets the peer read them, and removes them.

    Args:
        name: Key of `CASES`.
        case: The files, and what reads them.
        folder: Folder for the files; it must not exist.
        packages: Folder with the peers.
        flags: Batch size, seconds, repetitions and deadline.
    """
    extent = (flags.batch_size, flags.seconds, flags.repetitions)
    try:
        case.write(folder)
        num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        started_at = time.perf_counter()
        source = create(case, folder)
        first_secs, rates = _rates(source, *extent, started_at)
        peer_args = [name, str(folder), *map(str, extent)]
        printed = peer_packages.run("benchmarks.peers.loaders", peer_args, packages, flags.deadline_secs)
        peer_rates = json.loads(printed)["rates"]
    finally:
        # Removed before the next loader, which writes its files into the same folder.
        shutil.rmtree(folder, ignore_errors=True)
    return LoaderRow(
        loader=name,
        megabytes=num_bytes / 1e6,
        examples=source.num_train_examples,
        first_batch_secs=first_secs,
        examples_per_sec=statistics.median(rates),
        examples_per_sec_min=min(rates),
        examples_per_sec_max=max(rates),
        peer=case.peer,
        peer_examples_per_sec=statistics.median(peer_rates),
        peer_examples_per_sec_min=min(peer_rates),
        peer_examples_per_sec_max=max(peer_rates),
    )


def create(case: LoaderCase, folder: pathlib.Path) -> DataSource:
    """Returns the dataset that reads the files of a case."""
    if case.dataset is not None:
        return component_tables.DATASETS.create(case.dataset, case.options, data_dir=str(folder))
    found = detect(folder)
    if found.dataset is None:
        raise DataError(f"{folder}: {'; '.join(found.remarks)}")
    return component_tables.DATASETS.create(found.dataset, found.options, data_dir=str(found.data_dir))


def _rates(
    source: DataSource, batch_size: int, seconds: float, repetitions: int, started_at: float
) -> tuple[float, list[float]]:
    """Returns the seconds from `started_at` to the first batch, then examples per second of each repetition."""
    # Without a GPU: only the reading counts, not copies to a device.
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        batches = source.train(shard=Shard(0, 1), batch_size=batch_size, seed=0, num_epochs=None)
        iterator = tf.data.make_initializable_iterator(batches)
        read_op = tf.group(*tf.nest.flatten(iterator.get_next()))  # an op: nothing is copied out of the session
        # Loaders of text look words up in tables, which need their own initialisation.
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
