"""Check that the workers' shards together hold every record exactly once, for tests of loaders."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource
from tests.data.reading import read_batches, read_shards
from tests.testing.repetitions import IS_FULL, representatives

# An uneven number is enough for a reader; `test_line_source.py` reads with more workers.
NUM_WORKERS = representatives((1, 2, 3, 7), (3,))


def assert_every_record_once(source: DataSource, key: str) -> dict[str, np.ndarray]:
    """Asserts that for each of `NUM_WORKERS` the workers' shards together have as many examples, all different.

    Args:
        source: Dataset with at least 7 training examples, which all differ in `key`.
        key: Name of a tensor of the batch.

    Returns:
        The training examples, shard after shard.
    """
    for count in NUM_WORKERS:
        batch = read_shards(source, count)
        rows = batch[key].reshape(len(batch[key]), -1)
        assert len(np.unique(rows, axis=0)) == len(rows) == source.num_train_examples >= 7
    return batch


def assert_parts_are_test_batches(source: DataSource, *, of_sample: bool = IS_FULL) -> list[dict[str, np.ndarray]]:
    """Asserts that the parts of the test examples hold the batches of `test`, or else of `test_sample`.

    Returns:
        The batches of `test`, each of two examples.
    """
    batches = _assert_parts(source, source.test, num_examples=None, first=0, num_parts=2)
    if of_sample:
        num_examples = max(1, source.num_test_examples // 2)
        sample = functools.partial(source.test_sample, num_examples=num_examples)
        _assert_parts(source, sample, num_examples=num_examples, first=1, num_parts=3)
    return batches


def _assert_parts(
    source: DataSource,
    read: Callable[..., tf.data.Dataset],
    *,
    num_examples: int | None,
    first: int,
    num_parts: int,
) -> list[dict[str, np.ndarray]]:
    batches = read_batches(lambda: read(batch_size=2))
    size = {"batch_size": 2, "num_examples": num_examples, "first_batch": first, "num_parts": num_parts}
    # One pipeline reads all parts, which takes less time to build than one for each.
    parts = read_batches(lambda: tf.data.Dataset.range(num_parts).flat_map(lambda n: source.test_part(part=n, **size)))
    expected = [batch for part in range(num_parts) for batch in batches[first + part :: num_parts]]
    for ours, theirs in zip(parts, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            np.testing.assert_array_equal(ours[name], value, err_msg=name)
    return batches
