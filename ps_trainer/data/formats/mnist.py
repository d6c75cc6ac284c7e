"""MNIST, Fashion-MNIST and EMNIST, read from their four IDX files in `--data_dir`."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats import idx
from ps_trainer.data.pipeline.data_folder import folder_of
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.images import scale_image
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from ps_trainer.options import option

NUM_CLASSES = 10

FILE_PREFIX = {"train": "train", "test": "t10k"}
"""First word of MNIST's file names, by split."""

EMNIST_CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 27, "digits": 10, "mnist": 10}
"""Number of classes in each of EMNIST's six versions."""


def _four_files(file_prefix: Mapping[str, str]) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (prefix, kind, dims) for prefix in file_prefix.values() for kind, dims in (("images", 3), ("labels", 1))
    )


FILES = _four_files(FILE_PREFIX)
"""Arguments of `accepted_names` for each of MNIST's four files."""


class Mnist(DataSource):
    """Handwritten digits, 28x28 pixels, from the IDX files in --data_dir: 60,000 to train on, 10,000 to test on.

    Batches: "image" float32 [B, H, W, 1] in 0..1; "label" int64 [B], 0..9. The constructor reads and checks all four
    files. Training reads them again, so that the images do not become part of the graph.

    Args:
        options: Options of the dataset; it has none.
        data_dir: Folder of `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
            `t10k-labels-idx1-ubyte`. Each name may end in `.gz` and may have `.idx` instead of `-idx`.

    Raises:
        DataError: The folder or a file is missing, a file is broken, or a label is above 9. The files differ in the
            number of examples or in the size of the images.
    """

    name = "mnist"
    num_classes = NUM_CLASSES
    file_prefix = FILE_PREFIX

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del options
        folder = _check_folder(self.name, data_dir, self.file_prefix)
        self._files = {
            split: _load_split(folder, prefix, self.num_classes) for split, prefix in self.file_prefix.items()
        }
        train, test = self._files["train"], self._files["test"]
        if train.image_shape != test.image_shape:
            raise DataError(
                f"{train.images} has images of {train.image_shape} pixels, but {test.images} of {test.image_shape};"
                " use files of the same dataset"
            )
        self._image_shape = train.image_shape
        self.image_shape = (*train.image_shape, 1)

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return self._files["train"].num_examples

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return self._files["test"].num_examples

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        files = self._files[split]
        records = {
            "image": _stream(files.images, num_dims=3, record_bytes=math.prod(self._image_shape)),
            "label": _stream(files.labels, num_dims=1, record_bytes=1),
        }
        # Finding the examples of a shard takes reading and unpacking the whole file; the cache does that only once
        # instead of every epoch.
        return tf.data.Dataset.zip(records).shard(shard.count, shard.index).cache()

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        """Returns the images of a file, with label 0."""
        image_shape = idx.read_idx(path, num_dims=3).shape[1:]
        if image_shape != self._image_shape:
            raise DataError(
                f"{path} has images of {image_shape} pixels; they must be {self._image_shape} as in the training file"
            )
        images = _stream(path.resolve(), num_dims=3, record_bytes=math.prod(image_shape))
        return images.map(lambda image: {"image": image, "label": tf.constant(b"\0")})

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # The static batch size in training, where all batches are full; -1 where the last one may be smaller.
        batch_size = batch["label"].shape[0] or -1
        pixels = tf.reshape(tf.io.decode_raw(batch["image"], tf.uint8), [batch_size, *self._image_shape, 1])
        label = tf.reshape(tf.io.decode_raw(batch["label"], tf.uint8), [batch_size])
        return {"image": scale_image(pixels, 1 / 255), "label": tf.cast(label, tf.int64)}


class FashionMnist(Mnist):
    """Articles of clothing, 28x28 pixels, from --data_dir, in files with the names and format of MNIST."""

    name = "fashion_mnist"
    class_names = (
        "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
    )  # fmt: skip


class Emnist(Mnist):
    """Handwritten letters and digits, 28x28 pixels, from the EMNIST files in --data_dir.

    Batches have the form of `mnist`. The files have rows and columns of the images exchanged; this class exchanges them
    back. Labels are those of the files. In `letters` they are 1 for a to 26 for z, so class 0 of its 27 is empty. In
    the other versions they are 0 to 9 for the digits, then the letters that `emnist-<split>-mapping.txt` lists.

    Source: G. Cohen, S. Afshar, J. Tapson, A. van Schaik, "EMNIST: an extension of MNIST to handwritten letters", 2017.

    Args:
        options: Choice of one of the six versions.
        data_dir: Folder of `emnist-<split>-train-images-idx3-ubyte`, `emnist-<split>-train-labels-idx1-ubyte`, and the
            same two with `-test-`; each may end in `.gz`.

    Raises:
        DataError: The folder or a file is missing, a file is broken, or a label is too large. The files differ in the
            number of examples or in the size of the images.
    """

    name = "emnist"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(Mnist.Options):
        """Options of `Emnist`."""

        split: str = option("balanced", "version of EMNIST, which decides the classes", choices=tuple(EMNIST_CLASSES))

    def __init__(self, options: Options, *, data_dir: str | None = None):
        self.num_classes = EMNIST_CLASSES[options.split]
        self.file_prefix = {split: f"emnist-{options.split}-{split}" for split in FILE_PREFIX}
        super().__init__(options, data_dir=data_dir)

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        batch = super()._decode(batch)
        return {**batch, "image": tf.transpose(batch["image"], [0, 2, 1, 3])}


class _SplitFiles(NamedTuple):
    images: pathlib.Path
    labels: pathlib.Path
    num_examples: int
    image_shape: tuple[int, int]


def accepted_names(prefix: str, kind: str, num_dims: int) -> list[str]:
    """Lists the file names that a file such as ("train", "images", 3) may have, in the order of search."""
    stems = [f"{prefix}-{kind}{separator}idx{num_dims}-ubyte" for separator in "-."]
    return [stem + suffix for stem in stems for suffix in ("", ".gz")]


def _check_folder(name: str, data_dir: str | None, file_prefix: Mapping[str, str]) -> pathlib.Path:
    wanted = [" or ".join(accepted_names(*file)) for file in _four_files(file_prefix)]
    needs = f"dataset {name} needs --data_dir=<folder> with four files: " + "; ".join(wanted)
    return folder_of(data_dir, needs)


def _load_split(folder: pathlib.Path, prefix: str, num_classes: int) -> _SplitFiles:
    image_file, label_file = _find(folder, prefix, "images", 3), _find(folder, prefix, "labels", 1)
    image_shape = idx.read_idx(image_file, num_dims=3).shape
    labels = idx.read_idx(label_file, num_dims=1)
    if image_shape[0] != len(labels):
        raise DataError(f"{image_file}: {image_shape[0]} images, but {label_file}: {len(labels)} labels")
    bad = np.flatnonzero(labels >= num_classes)
    if bad.size:
        raise DataError(
            f"{label_file}: byte {idx.header_bytes(1) + bad[0]}: label {labels[bad[0]]} of example {bad[0]}"
            f" is not in 0..{num_classes - 1} ({bad.size} of {len(labels)} labels are not)"
        )
    return _SplitFiles(image_file.resolve(), label_file.resolve(), len(labels), image_shape[1:])


def _find(folder: pathlib.Path, prefix: str, kind: str, num_dims: int) -> pathlib.Path:
    names = accepted_names(prefix, kind, num_dims)
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"--data_dir={folder} has no {names[0]}; accepted names: {', '.join(names)}")


def _stream(file: pathlib.Path, *, num_dims: int, record_bytes: int) -> tf.data.Dataset:
    return tf.data.FixedLengthRecordDataset(
        str(file),
        record_bytes=record_bytes,
        header_bytes=idx.header_bytes(num_dims),
        compression_type="GZIP" if file.suffix == ".gz" else "",
    )
