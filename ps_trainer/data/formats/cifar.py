"""CIFAR-10 and CIFAR-100, read from their binary files in `--data_dir`.

A file consists of records, with nothing before, between or after them:

    CIFAR-10     label, 1 byte                              1,024 red, 1,024 green, 1,024 blue pixels, row by row
    CIFAR-100    coarse label, 1 byte; fine label, 1 byte   the same

Source: "Binary version" on the page of the CIFAR-10 and CIFAR-100 datasets, A. Krizhevsky.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_folder import folder_of
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.images import scale_image
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from ps_trainer.options import option

SIZE, CHANNELS = 32, 3
PIXEL_BYTES = SIZE * SIZE * CHANNELS


class Cifar10(DataSource):
    """Photographs of 10 kinds of things, 32x32 pixels, from binary files in --data_dir.

    50,000 examples to train on, 10,000 to test on. Batches: "image" float32 [B, 32, 32, 3] in 0..1; "label" int64 [B],
    0..9. The constructor reads and checks all files. Training reads them again, so that the images do not become part
    of the graph.

    Args:
        options: Options of the dataset; it has none.
        data_dir: Folder of `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`, or the folder above it, if it
            has its name of the archive, `cifar-10-batches-bin`.

    Raises:
        DataError: The folder or a file is missing, a file is broken, or a label is above 9.
    """

    name = "cifar10"
    num_classes = 10
    class_names: tuple[str, ...] | None = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip
    folder_name = "cifar-10-batches-bin"
    file_names = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
    label_bytes = 1
    label_at = 0
    image_shape = (SIZE, SIZE, CHANNELS)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del options
        folder = self._find_folder(data_dir)
        self._files = {split: [folder / name for name in names] for split, names in self.file_names.items()}
        self._lengths = {split: sum(map(self._check, files)) for split, files in self._files.items()}

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return self._lengths["train"]

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return self._lengths["test"]

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        # Finding the examples of a shard takes reading all files; the cache does that once instead of every epoch.
        return self._stream(self._files[split]).shard(shard.count, shard.index).cache()

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        self._check(path)
        return self._stream([path])

    def _stream(self, files: Sequence[pathlib.Path]) -> tf.data.Dataset:
        names = [str(file.resolve()) for file in files]
        records = tf.data.FixedLengthRecordDataset(names, record_bytes=self.label_bytes + PIXEL_BYTES)
        return records.map(lambda record: {"record": record})

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # The static batch size in training, where all batches are full; -1 where the last one may be smaller.
        batch_size = batch["record"].shape[0] or -1
        data = tf.reshape(tf.io.decode_raw(batch["record"], tf.uint8), [batch_size, self.label_bytes + PIXEL_BYTES])
        planes = tf.reshape(data[:, self.label_bytes :], [batch_size, CHANNELS, SIZE, SIZE])
        # A record holds one colour after the other; images have the colours last.
        image = scale_image(tf.transpose(planes, [0, 2, 3, 1]), 1 / 255)
        return {"image": image, "label": tf.cast(data[:, self.label_at], tf.int64)}

    def _find_folder(self, data_dir: str | None) -> pathlib.Path:
        needs = f"dataset {self.name} needs --data_dir=<folder> with {', '.join(_all(self.file_names))}"
        folder = folder_of(data_dir, needs)
        if (folder / self.folder_name).is_dir():
            folder = folder / self.folder_name
        missing = [name for name in _all(self.file_names) if not (folder / name).is_file()]
        if missing:
            raise DataError(f"{folder} has no {', '.join(missing)}; {needs}")
        return folder

    def _check(self, file: pathlib.Path) -> int:
        """Checks the size of a file and all its labels, and returns the number of examples."""
        record_bytes = self.label_bytes + PIXEL_BYTES
        try:
            data = np.fromfile(file, np.uint8)
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
        if not data.size or data.size % record_bytes:
            last = data.size - data.size % record_bytes
            raise DataError(
                f"{file}: byte {last}: the file ends after {data.size} bytes, which is not a whole number of records of"
                f" {record_bytes} bytes; it is truncated, or not of {self.name}: download it again"
            )
        labels = data.reshape(-1, record_bytes)[:, self.label_at]
        bad = np.flatnonzero(labels >= self.num_classes)
        if bad.size:
            raise DataError(
                f"{file}: byte {bad[0] * record_bytes + self.label_at}: label {labels[bad[0]]} of record {bad[0]} is"
                f" not in 0..{self.num_classes - 1} ({bad.size} of {len(labels)} labels are not); is it of {self.name}?"
            )
        return len(labels)


class Cifar100(Cifar10):
    """Photographs of 100 kinds of things in 20 groups, 32x32 pixels, from binary files in --data_dir.

    Two things differ from `cifar10`: labels are 0..99, or 0..19 for the groups, and the files are `train.bin` and
    `test.bin`, in the archive's folder `cifar-100-binary`.
    """

    name = "cifar100"
    num_classes = 100
    class_names = None
    folder_name = "cifar-100-binary"
    file_names = {"train": ("train.bin",), "test": ("test.bin",)}
    label_bytes = 2
    label_at = 1

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(Cifar10.Options):
        """Options of `Cifar100`."""

        coarse: bool = option(False, "use the 20 groups as labels instead of the 100 kinds")

    def __init__(self, options: Options, *, data_dir: str | None = None):
        if options.coarse:
            self.num_classes, self.label_at = 20, 0
        super().__init__(options, data_dir=data_dir)


def write(path: pathlib.Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Writes a file of records.

    Args:
        path: Path of the file.
        images: uint8 [n, 32, 32, 3], the pixels.
        labels: [n, 1] for CIFAR-10; [n, 2], coarse and fine, for CIFAR-100.
    """
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), PIXEL_BYTES)
    path.write_bytes(np.concatenate([labels.astype(np.uint8), planes], axis=1).tobytes())


def _all(file_names: Mapping[str, Sequence[str]]) -> list[str]:
    return [name for names in file_names.values() for name in names]
