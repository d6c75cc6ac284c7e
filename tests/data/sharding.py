"""Check that the workers' shards together hold every record exactly once, for tests of loaders."""

from __future__ import annotations

import numpy as np

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from tests.data.reading import read_column
from tests.testing.repetitions import representatives

# An uneven number is enough for a reader; `test_line_source.py` reads with more workers.
NUM_WORKERS = representatives((1, 2, 3, 7), (3,))


def assert_every_record_once(source: DataSource, key: str) -> None:
    """Asserts that for each of `NUM_WORKERS` the workers' shards together are the training examples.

    Args:
        source: Dataset with at least 7 training examples, which all differ in `key`.
        key: Name of a tensor of the batch.
    """
    total = source.num_train_examples
    expected = _sorted_rows(read_column(lambda: source.in_order("train", batch_size=total), key))
    assert len(np.unique(expected, axis=0)) == total >= 7
    for count in NUM_WORKERS:
        shards = [_read(source, key, Shard(index, count)) for index in range(count)]
        np.testing.assert_array_equal(_sorted_rows(np.concatenate(shards)), expected)


def _read(source: DataSource, key: str, shard: Shard) -> np.ndarray:
    size = shard.num_examples(source.num_train_examples)
    return read_column(lambda: source.train(shard=shard, batch_size=size, seed=0, num_epochs=1), key)


def _sorted_rows(values: np.ndarray) -> np.ndarray:
    rows = values.reshape(len(values), -1)
    return rows[np.lexsort(rows.T)]
