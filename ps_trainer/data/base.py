"""What a dataset is, and the input pipeline that all datasets share."""

from __future__ import annotations

import abc
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.errors import DataError

PREFETCH_BATCHES = 2
MAX_ARRAY_BYTES = 32 * 2**20


class Shard(NamedTuple):
    """The part of the training examples that one worker reads: `index`, `index + count`, …

    Attributes:
        index: the worker's index, 0 <= index < count.
        count: number of workers.
    """

    index: int
    count: int

    def num_examples(self, total: int) -> int:
        """How many of `total` examples are in this shard."""
        return len(range(self.index, total, self.count))


class DataSource(abc.ABC):
    """Training and test examples, read by `tf.data`, a batch as dict of tensors.

    A dataset class has the constructor `(options, *, data_dir: str | None)`, which finds and checks the
    files and raises DataError, and its options as a dataclass in `Options`. A dataset gives its examples
    by `_records` and turns a batch of them into tensors by `_decode`; what happens between the two is here,
    all of it in TensorFlow's C++: no Python runs per example or per batch.

    The datasets are for graph mode: `tf.data.make_initializable_iterator(source.train(…))`.

    Attributes:
        num_classes: number of classes of "label"; None where the examples have no classes.
        max_shuffled: examples among which the next one is drawn, where a shard has more; None = the whole shard.
    """

    num_classes: int | None = None
    max_shuffled: int | None = None

    @property
    @abc.abstractmethod
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""

    @property
    @abc.abstractmethod
    def num_test_examples(self) -> int:
        """Number of test examples."""

    def train(self, *, shard: Shard, batch_size: int, seed: int, num_epochs: int | None) -> tf.data.Dataset:
        """Shuffled batches of one worker's training examples.

        The shard is cut before shuffling, so workers never read the same example; every epoch has
        another order. An epoch's end is no batch's end: only the last, incomplete batch of all epochs
        together is dropped. The order depends on `seed`, the shard's index and the graph's seed.

        Args:
            shard: this worker's part.
            batch_size: examples per batch.
            seed: of the run; each shard draws its own from it.
            num_epochs: passes over the shard; None = endless.

        Returns:
            Batches with a static batch size: dict of tensors [batch_size, ...].

        Raises:
            DataError: the shard has fewer examples than a batch.
            ValueError: `shard.index` is not in 0 .. `shard.count` - 1.
        """
        if not 0 <= shard.index < shard.count:
            raise ValueError(f"shard index {shard.index} of {shard.count}: must be in 0 .. count - 1")
        self.check_shard(shard, batch_size)
        num_examples = shard.num_examples(self.num_train_examples)
        shard_seed = int(np.random.SeedSequence([seed, shard.index]).generate_state(1)[0])
        records = self._records("train", shard)
        num_shuffled = min(num_examples, self.max_shuffled or num_examples)
        records = records.shuffle(num_shuffled, seed=shard_seed, reshuffle_each_iteration=True)
        return self._batches(records.repeat(num_epochs), batch_size, drop_remainder=True)

    def check_shard(self, shard: Shard, batch_size: int) -> None:
        """Raises DataError where a worker's part has fewer examples than a batch."""
        num_examples = shard.num_examples(self.num_train_examples)
        if num_examples < batch_size:
            raise DataError(
                f"batch_size={batch_size} exceeds the {num_examples} training examples of worker {shard.index}"
                f" (its shard of {self.num_train_examples} examples among {shard.count} workers);"
                " lower --batch_size, start fewer workers, or use a larger dataset"
            )

    def test(self, *, batch_size: int) -> tf.data.Dataset:
        """Every test example exactly once, in file order; the last batch may be smaller.

        Args:
            batch_size: examples per batch.

        Returns:
            Batches: dict of tensors [<= batch_size, ...].
        """
        return self._batches(self._records("test", Shard(0, 1)), batch_size, drop_remainder=False)

    @abc.abstractmethod
    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        """The examples of a shard of "train" or "test", in file order, one by one and as small as they are stored."""

    @abc.abstractmethod
    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """A batch of records as a batch for the model."""

    def _batches(self, records: tf.data.Dataset, batch_size: int, drop_remainder: bool) -> tf.data.Dataset:
        # Decoding after batching: one call for many examples, and images stay bytes until then.
        return records.batch(batch_size, drop_remainder=drop_remainder).map(self._decode).prefetch(PREFETCH_BATCHES)


class ArraySource(DataSource):
    """Examples from NumPy arrays in memory.

    The arrays of a shard become constants of the graph, which is written into checkpoints and events
    files; hence the limit `MAX_ARRAY_BYTES`. Larger data is read from files: see `ps_trainer.data.mnist`.

    Args:
        train: name -> array [examples, ...]; a uint8 "image" [examples, H, W, C] is given to the model
            as float32, multiplied by `image_scale`; other arrays as they are.
        test: the same for the test examples.
        num_classes: number of classes of "label", or None.
        image_scale: factor that brings a pixel into 0..1.

    Raises:
        DataError: arrays of different length, other names in `test`, no example, or too many bytes.
    """

    def __init__(
        self,
        train: Mapping[str, np.ndarray],
        test: Mapping[str, np.ndarray],
        *,
        num_classes: int | None,
        image_scale: float = 1 / 255,
    ):
        if set(train) != set(test):
            raise DataError(f"training arrays are {sorted(train)}, test arrays {sorted(test)}; they must be the same")
        self._arrays = {"train": dict(train), "test": dict(test)}
        self._lengths = {split: _common_length(split, arrays) for split, arrays in self._arrays.items()}
        self._image_scale = image_scale
        self.num_classes = num_classes

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return self._lengths["train"]

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return self._lengths["test"]

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        arrays = self._arrays[split]
        return tf.data.Dataset.from_tensor_slices({k: v[shard.index :: shard.count] for k, v in arrays.items()})

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        if "image" not in batch or batch["image"].dtype != tf.uint8:
            return batch
        return {**batch, "image": scale_image(batch["image"], self._image_scale)}


def folder_of(data_dir: str | None, needs: str) -> pathlib.Path:
    """The folder of a dataset's files.

    Args:
        data_dir: `--data_dir`, or None where it is not given.
        needs: which files the dataset needs there, in words.

    Raises:
        DataError: not given, or no folder.
    """
    if data_dir is None:
        raise DataError(f"--data_dir is not given; {needs}")
    folder = pathlib.Path(data_dir)
    if not folder.is_dir():
        raise DataError(f"--data_dir={data_dir} is not a folder; {needs}")
    return folder


def scale_image(image: tf.Tensor, scale: float) -> tf.Tensor:
    """uint8 pixels, any shape, as float32 multiplied by `scale`."""
    return tf.cast(image, tf.float32) * scale


def _common_length(split: str, arrays: Mapping[str, np.ndarray]) -> int:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise DataError(f"{split} arrays must have the same number of examples, at least 1; got {lengths}")
    num_bytes = sum(array.nbytes for array in arrays.values())
    if num_bytes > MAX_ARRAY_BYTES:
        raise DataError(
            f"{split} arrays have {num_bytes} bytes; arrays in memory may have {MAX_ARRAY_BYTES},"
            " because they become part of the graph; use fewer or smaller examples, or read them from files"
        )
    return next(iter(lengths.values()))
