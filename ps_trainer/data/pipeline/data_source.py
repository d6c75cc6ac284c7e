"""What a dataset is, and the input pipeline that all datasets share."""

from __future__ import annotations

import abc
import pathlib
import re
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import shuffled_epochs
from ps_trainer.data.pipeline.shard_plan import ShardPlan
from ps_trainer.errors import DataError

NUM_PLACES = "num_places"
"""In batches of `DataSource.read`, int [B]: places of an example that the file fills; `num_places`, but for its end."""

IS_CUT = "is_cut"
"""In batches of `DataSource.read`, bool [B]: whether an example is too long, and its end is left out."""

PREFETCH_BATCHES = 2
MAX_ARRAY_BYTES = 32 * 2**20


class Shard(NamedTuple):
    """The part of the training examples that one worker reads: `index`, `index + count` and so on.

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
        vocab_size: number of ids that words or characters have; None where the examples have none.
        max_shuffled: examples among which the next one is drawn, where a shard has more; None = the whole shard.
        num_places: places of an example that is a piece of a longer text, each of which a model may tell something of.
    """

    num_classes: int | None = None
    vocab_size: int | None = None
    max_shuffled: int | None = None
    num_places: int | None = None

    @property
    @abc.abstractmethod
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""

    @property
    @abc.abstractmethod
    def num_test_examples(self) -> int:
        """Number of test examples."""

    def train(
        self, *, shard: Shard, batch_size: int, seed: int, num_epochs: int | None, start: int | tf.Tensor = 0
    ) -> tf.data.Dataset:
        """Shuffled batches of one worker's training examples.

        The shard is cut before shuffling, so workers never read the same example; every epoch has
        another order. An epoch's end is no batch's end: only the last, incomplete batch of all epochs
        together is dropped. The order depends on `seed`, the shard's index and the graph's seed.

        Args:
            shard: this worker's part.
            batch_size: examples per batch.
            seed: of the run; each shard draws its own from it.
            num_epochs: passes over the shard; None = endless.
            start: examples to pass over, counted over all epochs: those that the worker has read before. int64 scalar.

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
        records = shuffled_epochs.shuffled(
            self._records("train", shard),
            num_examples=num_examples,
            num_shuffled=min(num_examples, self.max_shuffled or num_examples),
            seed=shard_seed,
            num_epochs=num_epochs,
            start=start,
        )
        return self._batches(records, batch_size, drop_remainder=True)

    def train_leased(self, leases: tf.data.Dataset, plan: ShardPlan) -> tf.data.Dataset:
        """Batches of the shards that a worker is given one after the other, instead of one shard for the whole run.

        The order within a shard depends on epoch, shard and `plan.seed` only, so that a shard which one worker has
        begun can be finished by another.

        Args:
            leases: int64 [3] each: epoch, shard, and the batch of the shard to begin with.
            plan: how the examples are cut; `plan.num_examples` are `num_train_examples`.

        Returns:
            (position, batch): int64 [2], the batch's place in the counts (`runtime/shard_leases.py`), and a dict of
            tensors [<= batch_size, ...].
        """
        records = self._records("train", Shard(0, 1))
        base_seed = int(np.random.SeedSequence([plan.seed, plan.num_shards]).generate_state(1)[0])

        def read(lease: tf.Tensor) -> tf.data.Dataset:
            epoch, shard, first = tf.unstack(lease)
            size = (plan.num_examples - shard + plan.num_shards - 1) // plan.num_shards
            num_batches = -(-size // plan.batch_size)
            own = records.shard(plan.num_shards, shard)
            num_shuffled = tf.minimum(size, self.max_shuffled or plan.num_examples)
            shard_seed = base_seed + epoch * plan.num_shards + shard
            own = own.shuffle(num_shuffled, seed=shard_seed, reshuffle_each_iteration=False)
            ends = size * tf.range(num_batches + 1) // num_batches
            numbered = self._load(own).batch(plan.batch_size).rebatch(ends[1:] - ends[:-1]).enumerate()
            # Not `skip`, which crashes TensorFlow 2.21 here.
            numbered = numbered.filter(lambda number, batch: number >= first)
            place = shard * plan.max_batches
            return numbered.map(lambda number, batch: (tf.stack([epoch % plan.rows, place + number]), batch))

        positioned = leases.flat_map(read).map(lambda position, batch: (position, self._decode(batch)))
        return positioned.prefetch(PREFETCH_BATCHES)

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
        return self.in_order("test", batch_size=batch_size)

    def in_order(self, split: str, *, batch_size: int) -> tf.data.Dataset:
        """Every example of "train" or "test" exactly once, in file order; the last batch may be smaller."""
        return self._batches(self._records(split, Shard(0, 1)), batch_size, drop_remainder=False)

    def read(self, path: pathlib.Path, batch_size: int) -> tf.data.Dataset:
        """Every example of another file of this dataset's format, in file order; the last batch may be smaller.

        Args:
            path: of the file.
            batch_size: examples per batch.

        Returns:
            Batches as `test` gives them. Where a file of the format says nothing of labels, they are 0. What an example
            does not fill, or does not hold, is told beside them: `NUM_PLACES`, `IS_CUT`.

        Raises:
            DataError: the file cannot be read, or the examples of this dataset do not come from one file each.
        """
        return self._batches(self._read_file(path), batch_size, drop_remainder=False)

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        """The examples of a file, as `_records` gives them."""
        raise self._no_single_file(path)

    def _no_single_file(self, path: pathlib.Path) -> DataError:
        return DataError(
            f"{path}: dataset {type(self).__name__} does not read single files; put it where --data_dir has its test"
            " examples"
        )

    @abc.abstractmethod
    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        """The examples of a shard of "train" or "test", in file order, one by one and as small as they are stored."""

    def _load(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """Shuffled records, each with what must be read or decoded one by one, such as the image that it names."""
        return records

    @abc.abstractmethod
    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """A batch of records as a batch for the model."""

    def _batches(self, records: tf.data.Dataset, batch_size: int, *, drop_remainder: bool) -> tf.data.Dataset:
        # Decoding after batching: one call for many examples, and images stay bytes until then.
        return (
            self._load(records)
            .batch(batch_size, drop_remainder=drop_remainder)
            .map(self._decode)
            .prefetch(PREFETCH_BATCHES)
        )


class ArraySource(DataSource):
    """Examples from NumPy arrays in memory.

    The arrays of a shard become constants of the graph, which is written into checkpoints and events
    files; hence the limit `MAX_ARRAY_BYTES`. Larger data is read from files: see `ps_trainer.data.formats.mnist`.

    Args:
        train: name -> array [examples, ...]; a uint8 "image" [examples, H, W, C] is given to the model
            as float32, multiplied by `image_scale`; other arrays as they are.
        test: the same for the test examples.
        num_classes: number of classes of "label", or None.
        image_scale: factor that brings a pixel into 0..1.

    Attributes:
        arrays: "train" and "test" -> the arrays given.

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
        self.arrays = {"train": dict(train), "test": dict(test)}
        self._lengths = {split: _common_length(split, arrays) for split, arrays in self.arrays.items()}
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
        arrays = self.arrays[split]
        return tf.data.Dataset.from_tensor_slices({k: v[shard.index :: shard.count] for k, v in arrays.items()})

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        """Of a NumPy archive (.npz) with the arrays of the training examples; "label" may be left out."""
        return tf.data.Dataset.from_tensor_slices(_load_archive(path, self.arrays["train"]))

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


def problem_of(error: tf.errors.OpError) -> str:
    """What the loader says of a broken record, where `error` comes of one; else what TensorFlow says."""
    said = re.search(r"assertion failed: \[(.*)\]$", error.message, re.MULTILINE)
    return said[1] if said else error.message


def scale_image(image: tf.Tensor, scale: float) -> tf.Tensor:
    """uint8 pixels, any shape, as float32 multiplied by `scale`."""
    return tf.cast(image, tf.float32) * scale


def _load_archive(path: pathlib.Path, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, of the types and shapes of `like`; zeros where it has no "label"."""
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in like if name in file.files or name != "label"}
    except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: should be a NumPy archive (.npz) with {', '.join(like)}: {error}") from error
    for name, array in arrays.items():
        if array.dtype != like[name].dtype or array.shape[1:] != like[name].shape[1:]:
            wanted, got = (f"{one.dtype} [examples, {str(one.shape[1:])[1:-1]}]" for one in (like[name], array))
            raise DataError(f"{path}: array {name!r} is {got}, wanted {wanted}")
    if "label" in like and "label" not in arrays:
        length = len(next(iter(arrays.values()), []))
        arrays["label"] = np.zeros([length, *like["label"].shape[1:]], like["label"].dtype)
    _common_length(str(path), arrays)
    return arrays


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
