"""Writes the files that `benchmarks.loaders` reads: sets of `data generate`, and formats that no generator writes."""

from __future__ import annotations

import gzip
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats import census
from ps_trainer.data.generators import generate
from ps_trainer.data.generators.glyphs import Glyphs

Write = Callable[[pathlib.Path], None]


def generated(name: str, *options: str, is_packed: bool = False) -> Write:
    """Writes a set of `data generate`.

    Args:
        name: Name of the set.
        *options: `key=value` each.
        is_packed: Whether the files are compressed with gzip.
    """

    def write(folder: pathlib.Path) -> None:
        for path in generate.generate(name, options, folder):
            if is_packed:
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
                path.unlink()

    return write


def people(count: int) -> Write:
    """Writes random people in the form of the census income set."""

    def write(folder: pathlib.Path) -> None:
        folder.mkdir(parents=True)
        lines = [", ".join(row) for row in zip(*_people(count).values(), strict=True)]
        (folder / "adult.data").write_text("\n".join(lines) + "\n")
        (folder / "adult.test").write_text("|1x3 Cross validator\n" + "".join(f"{line}.\n" for line in lines[:10]))

    return write


def people_table(count: int, form: str) -> Write:
    """Writes random people as `train.csv` with a header, or as `train.parquet`; their label is the column `income`.

    Args:
        count: Number of people.
        form: "csv" or "parquet".
    """

    def write(folder: pathlib.Path) -> None:
        folder.mkdir(parents=True)
        columns = _people(count)
        if form == "csv":
            lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
            (folder / "train.csv").write_text("\n".join(lines) + "\n")
            return
        import pyarrow  # only for this form
        from pyarrow import parquet

        numbers = {name: columns[name].astype(np.int64) for name in _NUMBERS}
        parquet.write_table(pyarrow.table({**columns, **numbers}), folder / "train.parquet")

    return write


def records(count: int, size: int) -> Write:
    """Writes JPEG images of printed digits as TFRecord files of tf.train.Example, in the form of ImageNet's."""

    def write(folder: pathlib.Path) -> None:
        folder.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(folder / "train.tfrecord")) as writer:
            for data, label in _encoded(count, size, tf.io.encode_jpeg):
                features = {
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())

    return write


def images(count: int, size: int) -> Write:
    """Writes PNG images of printed digits, in a folder for each digit."""

    def write(folder: pathlib.Path) -> None:
        for number, (data, label) in enumerate(_encoded(count, size, tf.io.encode_png)):
            path = folder / str(label) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    return write


_NUMBERS = [name for name, words in census.COLUMNS.items() if words == census.NUMBER]


def _people(count: int) -> dict[str, np.ndarray]:
    """Returns the columns of random people as texts, by name; the last one, `income`, is the label."""
    random = np.random.RandomState(0)
    columns = {
        name: random.randint(0, 99, count).astype(str) if name in _NUMBERS else random.choice(words.split(), count)
        for name, words in census.COLUMNS.items()
    }
    return columns | {"income": random.choice(["<=50K", ">50K"], count)}


def _encoded(count: int, size: int, encode: Callable[[tf.Tensor], tf.Tensor]) -> list[tuple[bytes, int]]:
    """Returns the encoded images with labels."""
    arrays = Glyphs(Glyphs.Options(size=size, num_train=count, num_test=1)).arrays["train"]
    with tf.Graph().as_default(), tf.Session() as session:
        # One graph with a placeholder: an op for each image would make the graph as large as the data.
        image = tf.placeholder(tf.uint8, [size, size, 3])
        data = encode(image)
        return [
            (session.run(data, {image: one}), int(label))
            for one, label in zip(arrays["image"], arrays["label"], strict=True)
        ]
