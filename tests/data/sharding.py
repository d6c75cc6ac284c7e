"""Check that the workers' shards together hold every record exactly once, for tests of loaders."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from tests.data.reading import read_batches, read_column, read_shards
from tests.testing.repetitions import IS_FULL, representatives

# An uneven number is enough for a reader; `test_line_source.py` reads with more workers.
NUM_WORKERS = representatives((1, 2, 3, 7), (3,))


def assert_every_record_once(source: DataSource, key: str) -> None:
    """Asserts that for each of `NUM_WORKERS` the workers' shards together are the training examples.

    Args:
        source: Dataset with at least 7 training examples, which all differ in `key`.
        key: Name of a tensor of the batch.
    """
    total = source.num_train_examples
    whole = Shard(0, 1)
    expected = _sorted_rows(read_column(lambda: source.train(shard=whole, batch_size=total, seed=0, num_epochs=1), key))
    assert len(np.unique(expected, axis=0)) == total >= 7
    for count in NUM_WORKERS:
        np.testing.assert_array_equal(_sorted_rows(read_shards(source, count, key)), expected)
    assert_parts_are_test_batches(source, key)


def assert_parts_are_test_batches(source: DataSource, key: str, *, of_sample: bool = IS_FULL) -> None:
    """Asserts that the parts of the test examples hold the batches of `test`, or else of `test_sample`."""
    _assert_parts(source, key, source.test, num_examples=None, first=0, num_parts=2)
    if of_sample:
        num_examples = max(1, source.num_test_examples // 2)
        sample = functools.partial(source.test_sample, num_examples=num_examples)
        _assert_parts(source, key, sample, num_examples=num_examples, first=1, num_parts=3)


def _assert_parts(
    source: DataSource,
    key: str,
    read: Callable[..., tf.data.Dataset],
    *,
    num_examples: int | None,
    first: int,
    num_parts: int,
) -> None:
    batches = read_batches(lambda: read(batch_size=2))
    size = {"batch_size": 2, "num_examples": num_examples, "first_batch": first, "num_parts": num_parts}
    # One pipeline reads all parts, which takes less time to build than one for each.
    parts = read_batches(lambda: tf.data.Dataset.range(num_parts).flat_map(lambda n: source.test_part(part=n, **size)))
    expected = [batch for part in range(num_parts) for batch in batches[first + part :: num_parts]]
    for ours, theirs in zip(parts, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            np.testing.assert_array_equal(ours[name], value, err_msg=f"{key}: {name}")


def _sorted_rows(values: np.ndarray) -> np.ndarray:
    rows = values.reshape(len(values), -1)
    return rows[np.lexsort(rows.T)]
