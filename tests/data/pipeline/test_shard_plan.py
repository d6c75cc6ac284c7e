"""Small shards: the division of the examples, and the coverage of them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import shard_plan
from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.data.pipeline.shard_plan import ROWS, Coverage, ShardPlan
from tests.data.reading import read_batches

NUM_EXAMPLES = 53
PLANS = [
    ShardPlan(NUM_EXAMPLES, batch_size, num_shards, 2, 7)
    for batch_size, num_shards in [(1, 53), (4, 3), (5, 1), (60, 2), (8, 7)]
]


def _read(plan, leases):
    """(position, labels) of each batch."""
    source = ArraySource(*[{"label": np.arange(plan.num_examples)}] * 2, num_classes=None)

    def batches():
        dataset = source.train_leased(tf.data.Dataset.from_tensor_slices(np.array(leases, np.int64)), plan)
        return dataset.map(lambda position, batch: {"position": position, **batch})

    return [(tuple(batch["position"]), batch["label"].tolist()) for batch in read_batches(batches)]


@pytest.mark.parametrize("plan", PLANS)
def test_all_shards_together_have_every_example_once_in_the_plans_batches(plan):
    for epoch in range(2):
        read = _read(plan, [(epoch, shard, 0) for shard in plan.order(epoch)])
        assert sorted(label for _, labels in read for label in labels) == list(range(NUM_EXAMPLES))
        sizes = {position: len(labels) for position, labels in read}
        assert sizes == {
            (epoch, shard * plan.max_batches + number): size
            for shard in range(plan.num_shards)
            for number, size in enumerate(plan.batch_sizes(shard))
        }


@pytest.mark.parametrize("plan", PLANS)
def test_batches_are_no_larger_than_asked_and_equal_to_within_one(plan):
    for shard in range(plan.num_shards):
        sizes = plan.batch_sizes(shard)
        assert len(sizes) == plan.num_batches(shard) == -(-plan.size(shard) // plan.batch_size)
        assert sum(sizes) == plan.size(shard)
        assert max(sizes) <= plan.batch_size
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("num_examples", "batch_size", "num_workers"), [(60_001, 32, 3), (50_000, 8, 8), (10_007, 10, 2), (1437, 32, 2)]
)
def test_the_default_shards_leave_no_remainder_batch(num_examples, batch_size, num_workers):
    plan = shard_plan.plan(num_examples, batch_size, None, num_workers, 0, seed=0)
    sizes = [size for shard in range(plan.num_shards) for size in plan.batch_sizes(shard)]
    assert sum(sizes) == num_examples
    assert min(sizes) >= batch_size // 2


def test_a_shard_is_finished_in_the_order_of_its_start():
    plan = PLANS[1]
    whole = _read(plan, [(1, 2, 0)])
    assert len(whole) == plan.num_batches(2) == 5
    assert _read(plan, [(1, 2, 3)]) == whole[3:]


def test_order_differs_between_epochs_of_examples_and_of_shards():
    plan = PLANS[1]
    first, second = (_read(plan, [(epoch, 0, 0)]) for epoch in range(2))
    assert [labels for _, labels in first] != [labels for _, labels in second]
    plan = plan._replace(num_shards=20)
    assert plan.order(0) != plan.order(1)
    assert sorted(plan.order(0)) == sorted(plan.order(1)) == list(range(20))


def test_epochs_beyond_the_rows_reuse_the_rows():
    plan = PLANS[1]._replace(num_epochs=None)
    assert plan.rows == ROWS
    assert {position[0] for position, _ in _read(plan, [(ROWS + 3, 0, 0)])} == {3}


def test_the_default_size_is_an_eighth_of_a_workers_share_in_whole_batches():
    plan = shard_plan.plan(1437, 32, None, 2, 0, seed=0)
    assert plan.num_shards == -(-1437 // (32 * (1437 // (32 * 8 * 2))))
    assert shard_plan.plan(1437, 32, None, 2, 100, seed=0).num_shards == 15
    assert shard_plan.plan(10, 32, None, 2, 0, seed=0).num_shards == 1  # less than a batch


def test_coverage_counts_examples_by_how_often_their_batch_was_seen():
    plan = PLANS[1]  # 18 + 18 + 17 examples in 5 + 5 + 5 batches of 3, 4, 3, 4, 4 and 3, 3, 4, 3, 4
    row = np.ones(15, np.int8)
    row[[0, 4, 14]] = 0, 2, 5
    assert plan.coverage(row) == Coverage(never=3, once=53 - 3 - 4 - 4, twice=4, more=4)


def test_a_shard_continues_at_the_first_unseen_batch():
    plan = PLANS[1]
    row = np.zeros(15, np.int8)
    row[5:8] = 1
    assert [plan.first_unseen(shard, row) for shard in range(3)] == [0, 3, 0]
    row[5:10] = 1
    assert plan.first_unseen(1, row) is None
