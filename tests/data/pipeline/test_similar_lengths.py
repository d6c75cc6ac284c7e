"""Batches of similar length: little padding, every example once, the same order again from any example on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.parallel_text import ParallelText, write
from ps_trainer.data.pipeline import similar_lengths
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.shard_plan import ShardPlan
from tests.data.reading import read_batches

NUM_PAIRS, BATCH = 300, 16
LENGTHS = np.random.RandomState(3).permutation(100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pairs of 1 to 40 words; the first word of a source is its number."""
    folder = tmp_path_factory.mktemp("pairs")
    lengths = np.random.RandomState(3).randint(1, 41, NUM_PAIRS)
    texts = {
        "en": [" ".join([f"n{i}"] + ["w"] * (length - 1)) for i, length in enumerate(lengths)],
        "zh": [" ".join(["v"] * length) for length in lengths],
    }
    write(folder, "train", texts)
    write(folder, "test", {language: lines[:3] for language, lines in texts.items()})
    return folder


def create(folder, **options):
    return ParallelText(ParallelText.Options(**options), data_dir=str(folder))


def numbers(batches):
    return np.concatenate([batch["source"][:, 0] for batch in batches])


def padding_share(batches):
    places = sum(batch["target"].size for batch in batches)
    return sum(np.sum(batch["target"] == 0) for batch in batches) / places


def grouped(start, batch_size=5, num_epochs=2):
    """The lengths of 100 records in the order of reading."""

    def read(first):
        return tf.data.Dataset.from_tensor_slices({"length": LENGTHS}).repeat(num_epochs).skip(first)

    def make():
        sizes = {"batch_size": batch_size, "num_examples": len(LENGTHS)}
        records = similar_lengths.group_records(read, lambda some: some["length"], **sizes, seed=4, start=start)
        return records.batch(num_epochs * len(LENGTHS))

    (batch,) = read_batches(make)
    return batch["length"]


@pytest.mark.parametrize("group", [True, False])
def test_batches_have_little_padding_and_the_width_of_their_longest_text(folder, group):
    source = create(folder, group_lengths=group)
    batches = read_batches(lambda: source.train(shard=Shard(0, 1), batch_size=BATCH, seed=5, num_epochs=1))
    assert len(set(numbers(batches))) == NUM_PAIRS // BATCH * BATCH
    if group:
        assert all(batch[name][:, -1].any() for batch in batches for name in ("source", "target"))
        assert padding_share(batches) < 0.1
    else:
        assert padding_share(batches) > 0.5
        assert {batch["source"].shape for batch in batches} == {(BATCH, 64)}


def test_leased_shards_have_batches_of_the_planned_sizes_and_similar_lengths(folder):
    source = create(folder)
    plan = ShardPlan(NUM_PAIRS, batch_size=BATCH, num_shards=2, num_epochs=1, seed=0)

    def read(first):
        leases = np.array([[0, 0, first], [0, 1, 0]])
        return read_batches(
            lambda: source.train_leased(tf.data.Dataset.from_tensor_slices(leases), plan).map(lambda _, batch: batch)
        )

    batches = read(0)
    assert [len(batch["source"]) for batch in batches] == [*plan.batch_sizes(0), *plan.batch_sizes(1)]
    assert len(set(numbers(batches))) == NUM_PAIRS
    assert padding_share(batches) < 0.2
    np.testing.assert_array_equal(numbers(read(4)), numbers(batches[4:]))


def test_a_batch_has_successive_lengths_of_its_pool_and_the_batches_come_in_random_order(monkeypatch):
    monkeypatch.setattr(similar_lengths, "POOL_BATCHES", 4)
    read = grouped(0)
    for first in range(0, 200, 20):
        pool = np.concatenate([LENGTHS, LENGTHS])[first : first + 20]
        parts = np.sort(read[first : first + 20].reshape(4, 5), axis=1)
        np.testing.assert_array_equal(parts[np.argsort(parts[:, 0])], np.sort(pool).reshape(4, 5))
    places = np.argsort(read.reshape(10, 4, 5).min(axis=2), axis=1)
    assert len({tuple(order) for order in places}) > 3


@pytest.mark.parametrize("start", [40, 57, 200])
def test_continues_with_the_records_that_were_not_read(monkeypatch, start):
    monkeypatch.setattr(similar_lengths, "POOL_BATCHES", 4)
    if start == 200:
        with pytest.raises(ValueError, match="not enough values"):
            grouped(start)
    else:
        np.testing.assert_array_equal(grouped(start), grouped(0)[start:])


def test_a_shard_smaller_than_a_pool_is_grouped_epoch_by_epoch():
    read = grouped(0, batch_size=50)
    np.testing.assert_array_equal(np.sort(read[:100]), np.arange(100))


@pytest.mark.parametrize("num_records", [26, 3])
def test_pools_of_a_leased_shard_keep_all_records_in_the_given_sizes(monkeypatch, num_records):
    monkeypatch.setattr(similar_lengths, "POOL_BATCHES", 3)
    lengths = LENGTHS[:num_records]
    sizes = [3, 4, 4, 4, 3, 4, 4] if num_records == 26 else [3]

    def make():
        records = tf.data.Dataset.from_tensor_slices({"length": lengths})
        seed, counts = tf.constant(7, tf.int64), tf.constant(sizes, tf.int64)
        return similar_lengths.group_shard(records, lambda some: some["length"], sizes=counts, seed=seed).batch(100)

    (batch,) = read_batches(make)
    ends = np.cumsum([0, *sizes])
    for first in range(0, len(sizes), 3):
        last = min(first + 3, len(sizes))
        pool = sorted(lengths[ends[first] : ends[last]])
        parts = [sorted(batch["length"][ends[i] : ends[i + 1]]) for i in range(first, last)]
        assert sorted(sum(parts, [])) == pool
        assert all(part == pool[pool.index(part[0]) :][: len(part)] for part in parts)  # successive lengths
