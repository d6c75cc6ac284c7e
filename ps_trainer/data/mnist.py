"""MNIST and Fashion-MNIST, read from their four IDX files in `--data_dir`."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data import idx
from ps_trainer.data.base import DataSource, Shard, folder_of, scale_image
from ps_trainer.errors import DataError

NUM_CLASSES = 10
_FILE_PREFIX = {"train": "train", "test": "t10k"}


class Mnist(DataSource):
    """Handwritten digits, 28x28 pixels, from the IDX files in --data_dir: 60,000 to train on, 10,000 to test.

    Batches: "image" float32 [B, H, W, 1] in 0..1; "label" int64 [B], 0..9. The constructor reads and checks
    all four files; training reads them again, so that the images are no part of the graph.

    Args:
        options: none to set.
        data_dir: folder of `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`
            and `t10k-labels-idx1-ubyte`; each may end in `.gz`, and `.idx` may stand for `-idx`.

    Raises:
        DataError: no folder, a missing or broken file, a label above 9, or files that do not go together.
    """

    name = "mnist"
    num_classes = NUM_CLASSES

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del options
        folder = _check_folder(self.name, data_dir)
        self._files = {split: _load_split(folder, prefix) for split, prefix in _FILE_PREFIX.items()}
        train, test = self._files["train"], self._files["test"]
        if train.image_shape != test.image_shape:
            raise DataError(
                f"{train.images}: images of {train.image_shape} pixels, but {test.images}: {test.image_shape};"
                " the files are not of one dataset"
            )
        self._image_shape = train.image_shape

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
        # Cached, because a shard is found by reading, and unpacking, the whole file: once instead of every epoch.
        return tf.data.Dataset.zip(records).shard(shard.count, shard.index).cache()

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # Static where batches are always full; -1 where the last one may be smaller.
        batch_size = batch["label"].shape[0] or -1
        pixels = tf.reshape(tf.io.decode_raw(batch["image"], tf.uint8), [batch_size, *self._image_shape, 1])
        label = tf.reshape(tf.io.decode_raw(batch["label"], tf.uint8), [batch_size])
        return {"image": scale_image(pixels, 1 / 255), "label": tf.cast(label, tf.int64)}


class FashionMnist(Mnist):
    """Articles of clothing, 28x28 pixels, in files named and laid out like those of MNIST, from --data_dir."""

    name = "fashion_mnist"


class _SplitFiles(NamedTuple):
    images: pathlib.Path
    labels: pathlib.Path
    num_examples: int
    image_shape: tuple[int, int]


def accepted_names(prefix: str, kind: str, num_dims: int) -> list[str]:
    """The file names under which e.g. ("train", "images", 3) is looked for, in this order."""
    stems = [f"{prefix}-{kind}{separator}idx{num_dims}-ubyte" for separator in "-."]
    return [stem + suffix for stem in stems for suffix in ("", ".gz")]


def _check_folder(name: str, data_dir: str | None) -> pathlib.Path:
    wanted = [
        " or ".join(accepted_names(prefix, kind, num_dims))
        for prefix in _FILE_PREFIX.values()
        for kind, num_dims in (("images", 3), ("labels", 1))
    ]
    needs = f"dataset {name} needs --data_dir=<folder> with four files: " + "; ".join(wanted)
    return folder_of(data_dir, needs)


def _load_split(folder: pathlib.Path, prefix: str) -> _SplitFiles:
    image_file, label_file = _find(folder, prefix, "images", 3), _find(folder, prefix, "labels", 1)
    image_shape = idx.read_idx(image_file, num_dims=3).shape
    labels = idx.read_idx(label_file, num_dims=1)
    if image_shape[0] != len(labels):
        raise DataError(f"{image_file}: {image_shape[0]} images, but {label_file}: {len(labels)} labels")
    bad = np.flatnonzero(labels >= NUM_CLASSES)
    if bad.size:
        raise DataError(
            f"{label_file}: byte {idx.header_bytes(1) + bad[0]}: label {labels[bad[0]]} of example {bad[0]}"
            f" is not in 0..{NUM_CLASSES - 1} ({bad.size} of {len(labels)} labels are not)"
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
