"""Check that the workers' shards together hold every record exactly once, for tests of loaders."""

from __future__ import annotations

import numpy as np

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from tests.data.reading import read_batches, read_column
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
    assert_parts_are_test_batches(source, key)


def assert_parts_are_test_batches(source: DataSource, key: str) -> None:
    """Asserts that the parts of the test examples hold the batches of `test` and of `test_sample`."""
    sample = {"batch_size": 2, "num_examples": max(1, source.num_test_examples // 2)}
    for whole, first, num_parts in (({"batch_size": 2, "num_examples": None}, 0, 2), (sample, 1, 3)):
        test = source.test if whole["num_examples"] is None else source.test_sample
        given = {name: value for name, value in whole.items() if value is not None}
        batches = read_batches(lambda test=test, given=given: test(**given))
        for part in range(num_parts):
            number = np.int64(part)
            chosen = {**whole, "first_batch": first, "part": number, "num_parts": num_parts}
            found = read_batches(lambda chosen=chosen: source.test_part(**chosen))
            expected = batches[first + part :: num_parts]
            for ours, theirs in zip(found, expected, strict=True):
                assert ours.keys() == theirs.keys()
                for name, value in theirs.items():
                    np.testing.assert_array_equal(ours[name], value, err_msg=f"{key}: {name} of part {part}")


def _read(source: DataSource, key: str, shard: Shard) -> np.ndarray:
    size = shard.num_examples(source.num_train_examples)
    return read_column(lambda: source.train(shard=shard, batch_size=size, seed=0, num_epochs=1), key)


def _sorted_rows(values: np.ndarray) -> np.ndarray:
    rows = values.reshape(len(values), -1)
    return rows[np.lexsort(rows.T)]
