"""Datasets from what a caller of the API has: arrays, or a function that returns arrays, a `tf.data.Dataset` or feeds.

    data=(features, labels)                  arrays, whose first dimension counts examples; batches are pairs
    data={"image": images, "label": labels}  the same; batches are dicts
    data=input_fn                            a function that returns one of the above, a `tf.data.Dataset` of batches,
                                             or a generator of feeds, one batch each

Examples in arrays are shuffled, and each worker reads its own part of them. A `tf.data.Dataset` or a generator decides
about order and batches itself; each worker reads every n-th batch, unless the function has an argument `shard`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from ps_trainer.api.input_function import EVAL, TRAIN, InputFunction
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import feature_spread
from ps_trainer.data.pipeline.array_source import MAX_ARRAY_BYTES, ArraySource
from ps_trainer.data.pipeline.data_source import PREFETCH_BATCHES, DataSource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import ArgumentError, ArgumentTypeError

_DEFAULT_BATCH_SIZE = TrainConfig().batch_size


class SizedDataset(NamedTuple):
    """A dataset, and the number of examples in each of its batches; None if the run's setting decides."""

    dataset: Any
    batch_size: int | None


def create(data: Any, test_data: Any, batch_size: int | None) -> SizedDataset:
    """Creates the dataset that arrays or functions describe.

    Args:
        data: Arrays or a function.
        test_data: The same for test examples. If None, a function with the argument `mode` gives them; otherwise there
            are none.
        batch_size: Number of examples per batch; None if the caller gave none.

    Raises:
        ArgumentTypeError: The data have a type that is not a dataset.
        ArgumentError: The batches are not of the given size.
        DataError: The arrays do not fit each other, or are too large.
    """
    train = _Data(data, "data")
    if test_data is None and train.function is not None and train.function.takes_mode:
        test_data = data
    test = _Data(test_data, "test_data") if test_data is not None else None
    if train.arrays(TRAIN) is not None:
        tested = test.arrays(EVAL) if test is not None else None
        if test is not None and tested is None:
            raise ArgumentTypeError("data gives arrays, and test_data does not; let it give arrays, too")
        return SizedDataset(_create_array_dataset(train.arrays(TRAIN), tested), None)
    if train.function is None or (test is not None and test.function is None):
        raise ArgumentTypeError("test_data gives arrays, and data does not; let test_data be a function, too")
    if batch_size is None and train.function.takes_batch_size:
        batch_size = _DEFAULT_BATCH_SIZE
    size = train.function.find_batch_size(batch_size)
    return SizedDataset(FunctionDataset(train.function, test.function if test is not None else None), size)


class ArrayDataset(ArraySource):
    """Examples from arrays of any structure; batches have the same structure.

    Args:
        train: Arrays [examples, ...], nested in tuples and dicts.
        test: The same for the test examples; None = there are none.
    """

    def __init__(self, train: Any, test: Any = None):
        self._structure = tf.nest.map_structure(lambda _: 0, train)
        self._has_test = test is not None
        super().__init__(_arrays_by_name(train), _arrays_by_name(train if test is None else test), num_classes=None)

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return super().num_test_examples if self._has_test else 0

    def test(self, *, batch_size: int) -> tf.data.Dataset | None:
        """Returns every test example once; None without test examples."""
        return super().test(batch_size=batch_size) if self._has_test else None

    def _decode(self, batch: dict[str, tf.Tensor]) -> Any:
        return tf.nest.pack_sequence_as(self._structure, [batch[name] for name in sorted(batch)])


class LargeArrayDataset(DataSource):
    """Examples from arrays that are too large for a graph: the graph holds their indices, and Python takes the rows.

    Order and batches are those of `ArrayDataset`.

    Args:
        train: Arrays [examples, ...], nested in tuples and dicts.
        test: The same for the test examples; None = there are none.

    Raises:
        ArgumentError: The arrays of a split differ in length.
    """

    def __init__(self, train: Any, test: Any = None):
        self._structure = tf.nest.map_structure(lambda _: 0, train)
        self._arrays = {"train": tf.nest.flatten(train), "test": tf.nest.flatten(test) if test is not None else []}
        for split, arrays in self._arrays.items():
            if len({len(array) for array in arrays}) > 1:
                raise ArgumentError(
                    f"the {split} arrays have {[len(array) for array in arrays]} examples; give equal numbers"
                )

    @property
    def num_train_examples(self) -> int:
        """Number of training examples."""
        return len(self._arrays["train"][0])

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return len(self._arrays["test"][0]) if self._arrays["test"] else 0

    def test(self, *, batch_size: int) -> tf.data.Dataset | None:
        """Returns every test example once; None without test examples."""
        return super().test(batch_size=batch_size) if self._arrays["test"] else None

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        indices = tf.data.Dataset.range(shard.index, len(self._arrays[split][0]), shard.count)
        return indices.map(lambda index: {split: index})

    def _decode(self, batch: dict[str, tf.Tensor]) -> Any:
        ((split, indices),) = batch.items()
        arrays = self._arrays[split]
        rows = tf.numpy_function(
            lambda chosen: [array[chosen] for array in arrays],
            [indices],
            [tf.as_dtype(array.dtype) for array in arrays],
        )
        for row, array in zip(rows, arrays, strict=True):
            row.set_shape([indices.shape[0], *array.shape[1:]])
        return tf.nest.pack_sequence_as(self._structure, rows)


class FunctionDataset:
    """Batches from an input function.

    Args:
        train: The function, called with mode "train".
        test: Function for test batches, called with mode "eval"; None = there are none.
    """

    def __init__(self, train: InputFunction, test: InputFunction | None):
        self._train = train
        self._test = test

    def train(
        self, *, shard: Shard, batch_size: int, seed: int, num_epochs: int | None, start: int | tf.Tensor = 0
    ) -> tf.data.Dataset:
        """Returns the batches of one worker: those that the function makes for `shard`, or each `shard.count`-th batch.

        Args:
            shard: Part of the examples that the worker reads.
            batch_size: Number of examples per batch.
            seed: Seed of the run.
            num_epochs: Number of passes over the function's dataset; None = endless.
            start: Number of examples to skip.
        """
        batches = self._train.batches(TRAIN, shard=shard, batch_size=batch_size, seed=seed)
        if not self._train.takes_shard:
            batches = batches.shard(shard.count, shard.index)
        return batches.repeat(num_epochs).skip(start // batch_size).prefetch(PREFETCH_BATCHES)

    def test(self, *, batch_size: int) -> tf.data.Dataset | None:
        """Returns the function's test batches, once; None without a function for them."""
        return self._test.batches(EVAL, batch_size=batch_size) if self._test is not None else None


class _Data:
    """Data as the caller gave them.

    Args:
        data: Arrays or a function.
        name: Name of the API's argument, for messages.

    Attributes:
        function: The function; None for arrays.

    Raises:
        ArgumentTypeError: The data are neither.
    """

    def __init__(self, data: Any, name: str):
        if isinstance(data, tf2.data.Dataset):
            raise ArgumentTypeError(
                f"{name} is a tf.data.Dataset, which belongs to one graph, and every task builds its own graph;"
                f" give the function that makes it: {name}=lambda: tf.data.Dataset.from_tensor_slices(…).batch(32)"
            )
        is_function = callable(data) and not isinstance(data, type)
        if not is_function and not _are_arrays(data):
            raise ArgumentTypeError(
                f"{name}={data!r:.80} is of type {type(data).__name__}; give the name of a dataset, an object with the"
                " methods train and test, a tuple or dict of arrays, or a function that returns arrays or a"
                " tf.data.Dataset"
            )
        self.function = InputFunction(data, name) if is_function else None
        self._given = data
        self._made: dict[str, Any] = {}

    def arrays(self, mode: str) -> Any:
        """Returns the arrays with all examples; None if the function returns something else."""
        if self.function is None:
            return _as_arrays(self._given)
        if mode not in self._made:
            with tf.Graph().as_default():
                examples = self.function.call(mode, batch_size=_DEFAULT_BATCH_SIZE)
            self._made[mode] = _as_arrays(examples) if _are_arrays(examples) else None
        return self._made[mode]


def _are_arrays(data: Any) -> bool:
    """Returns whether data are a tuple, list or dict of arrays (or one array), nested in any way."""
    if isinstance(data, (tuple, Mapping)):
        parts = list(data.values()) if isinstance(data, Mapping) else list(data)
        return bool(parts) and all(map(_are_arrays, parts))
    # Also tables of pandas, and TensorFlow's tensors that have a value.
    return hasattr(data, "__array__") and not tf2.is_symbolic_tensor(data) and np.ndim(data) > 0


def _as_arrays(data: Any) -> Any:
    return tf.nest.map_structure(np.asarray, data)


def _create_array_dataset(train: Any, test: Any) -> ArrayDataset | LargeArrayDataset:
    num_bytes = max(
        sum(array.nbytes for array in tf.nest.flatten(split)) for split in (train, test) if split is not None
    )
    dataset = (ArrayDataset if num_bytes <= MAX_ARRAY_BYTES else LargeArrayDataset)(train, test)
    deviations = feature_spread.of_arrays(tf.nest.flatten(train))
    dataset.advice = feature_spread.advice(
        deviations, "divide each feature by its standard deviation before you pass it"
    )
    return dataset


def _arrays_by_name(data: Any) -> dict[str, np.ndarray]:
    # Names in the order of the structure; `ArraySource` gives a meaning to the name "image" only.
    return {f"part_{index:04d}": array for index, array in enumerate(tf.nest.flatten(data))}
