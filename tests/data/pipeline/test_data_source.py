"""The shared input pipeline: sharding, shuffling, batching."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from tests.data.reading import numbered_columns, read_batches, read_column

NUM_TRAIN, NUM_TEST = 25, 7


@pytest.fixture
def source():
    return ArraySource(numbered_columns(NUM_TRAIN), numbered_columns(NUM_TEST), num_classes=NUM_TRAIN)


def _epoch(source, index, count, *, seed=0, num_epochs=1):
    """Labels in the order of reading, in batches of one, so that no label is dropped."""
    shard = Shard(index, count)
    return read_column(lambda: source.train(shard=shard, batch_size=1, seed=seed, num_epochs=num_epochs), "label")


def test_shards_are_disjoint_and_cover_every_example(source):
    shards = [_epoch(source, index, 3) for index in range(3)]
    assert [len(shard) for shard in shards] == [9, 8, 8]
    assert sorted(np.concatenate(shards)) == list(range(NUM_TRAIN))


def test_shard_holds_every_count_th_example_from_its_index(source):
    assert sorted(_epoch(source, 1, 3)) == list(range(1, NUM_TRAIN, 3))
    assert Shard(1, 3).num_examples(NUM_TRAIN) == len(range(1, NUM_TRAIN, 3))


def test_order_is_the_same_for_the_same_seed(source):
    np.testing.assert_array_equal(_epoch(source, 0, 1, seed=4), _epoch(source, 0, 1, seed=4))


def test_order_differs_between_seeds_and_from_the_file(source):
    first, second = _epoch(source, 0, 1, seed=4), _epoch(source, 0, 1, seed=5)
    assert list(first) != list(second)
    assert list(first) != sorted(first)


def test_order_within_the_shard_differs_between_workers():
    source = ArraySource(numbered_columns(40), numbered_columns(1), num_classes=40)
    positions = [(_epoch(source, index, 2) - index) // 2 for index in range(2)]
    assert sorted(positions[0]) == sorted(positions[1])
    assert list(positions[0]) != list(positions[1])


def test_every_epoch_has_another_order_and_every_example_once(source):
    epochs = _epoch(source, 0, 1, num_epochs=3).reshape(3, NUM_TRAIN)
    assert all(sorted(epoch) == list(range(NUM_TRAIN)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("graph_seed", [None, 11])
@pytest.mark.parametrize("max_shuffled", [None, 7])
def test_the_order_equals_shuffle_and_repeat(source, max_shuffled, graph_seed):
    source.max_shuffled = max_shuffled

    def plain():
        tf.set_random_seed(graph_seed)
        shard_seed = int(np.random.SeedSequence([4, 1]).generate_state(1)[0])
        records = tf.data.Dataset.range(1, NUM_TRAIN, 3)
        records = records.shuffle(max_shuffled or 8, seed=shard_seed).repeat(3).batch(1)
        return records.map(lambda label: {"label": label})

    def ours():
        tf.set_random_seed(graph_seed)
        return source.train(shard=Shard(1, 3), batch_size=1, seed=4, num_epochs=3)

    np.testing.assert_array_equal(read_column(ours, "label"), read_column(plain, "label"))


@pytest.mark.parametrize("max_shuffled", [None, 7])
def test_continues_after_the_examples_that_were_read_before(source, max_shuffled):
    source.max_shuffled = max_shuffled

    def read(start):
        dataset = lambda: source.train(shard=Shard(0, 1), batch_size=1, seed=0, num_epochs=3, start=start)  # noqa: E731
        return [batch["label"][0] for batch in read_batches(dataset)]

    whole = read(0)
    for start in (1, NUM_TRAIN - 1, NUM_TRAIN, NUM_TRAIN + 6, 3 * NUM_TRAIN - 1, 3 * NUM_TRAIN, 1000):
        assert read(start) == whole[start:], start


def test_another_batch_size_continues_with_the_same_examples(source):
    def read(batch_size, start):
        return read_column(
            lambda: source.train(shard=Shard(0, 1), batch_size=batch_size, seed=0, num_epochs=2, start=start), "label"
        )

    whole = read(1, 0)
    np.testing.assert_array_equal(np.concatenate([read(5, 0)[:20], read(10, 20)]), whole)


def test_an_epoch_that_was_read_before_is_not_read_again():
    """A broken record shows whether it is read."""
    arrays = {"label": np.arange(4)}

    class Guarded(ArraySource):
        def _records(self, split, shard):
            def read(example):
                with tf.control_dependencies([tf.assert_equal(reads.assign_add(1) <= 4, True)]):
                    return {"label": tf.identity(example["label"])}

            return super()._records(split, shard).map(read)

    guarded = Guarded(arrays, arrays, num_classes=None)
    with tf.Graph().as_default():
        reads = tf.Variable(0, use_resource=True)
        dataset = guarded.train(shard=Shard(0, 1), batch_size=1, seed=0, num_epochs=9, start=8 * 4)
        iterator = tf.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        with tf.Session() as session:
            session.run(reads.initializer)
            session.run(iterator.initializer)
            assert sorted(session.run(batch)["label"][0] for _ in range(4)) == [0, 1, 2, 3]
            assert session.run(reads) == 4


def test_batches_are_full_and_run_across_the_end_of_an_epoch(source):
    batches = read_batches(lambda: source.train(shard=Shard(0, 1), batch_size=10, seed=0, num_epochs=2))
    assert [len(batch["label"]) for batch in batches] == [10] * (2 * NUM_TRAIN // 10)


def test_training_without_num_epochs_does_not_end(source):
    count = 3 * NUM_TRAIN
    batches = read_batches(lambda: source.train(shard=Shard(0, 1), batch_size=1, seed=0, num_epochs=None), count)
    assert len(batches) == count


def test_training_batches_have_static_shapes(source):
    with tf.Graph().as_default():
        dataset = source.train(shard=Shard(0, 1), batch_size=4, seed=0, num_epochs=None)
        batch = tf.data.make_initializable_iterator(dataset).get_next()
    assert batch["image"].shape.as_list() == [4, 2, 3, 1]
    assert batch["image"].dtype == tf.float32
    assert batch["label"].shape.as_list() == [4]
    assert batch["label"].dtype == tf.int64


def test_test_gives_every_example_once_in_order_with_a_smaller_last_batch(source):
    batches = read_batches(lambda: source.test(batch_size=3))
    assert [list(batch["label"]) for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]


def test_shard_smaller_than_a_batch_names_sizes_and_remedy(source):
    with pytest.raises(DataError, match=r"batch_size=9 exceeds the 8 training examples of worker 2.*25.*3 workers"):
        source.train(shard=Shard(2, 3), batch_size=9, seed=0, num_epochs=None)


@pytest.mark.parametrize("index", [-1, 3])
def test_shard_index_out_of_range_is_rejected(source, index):
    with pytest.raises(ValueError, match=f"shard index {index} of 3"):
        source.train(shard=Shard(index, 3), batch_size=1, seed=0, num_epochs=None)


class _Branching(ArraySource):
    """A user's dataset, whose function branches on the value of a tensor as only AutoGraph allows."""

    def _decode(self, batch):
        if batch["label"][0] > 2:
            return {"label": -batch["label"]}
        return {"label": batch["label"]}


def _labels(dataset_of, source):
    """The labels of a dataset with batches of 1. Unlike `read_batches`, it leaves AutoGraph to the source."""
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.data.experimental.get_single_element(dataset_of(source).batch(source.num_train_examples))
        return sorted(session.run(batch["label"])[:, 0])


DATASETS = {
    "train": lambda source: source.train(shard=Shard(0, 1), batch_size=1, seed=0, num_epochs=1),
    "test": lambda source: source.test(batch_size=1),
}


@pytest.mark.parametrize("name", DATASETS)
def test_autograph_translates_the_functions_of_a_users_dataset(name):
    source = _Branching(numbered_columns(5), numbered_columns(5), num_classes=5)
    assert _labels(DATASETS[name], source) == [-4, -3, 0, 1, 2]


@pytest.mark.parametrize("name", DATASETS)
def test_autograph_does_not_translate_the_functions_of_the_packages_own_datasets(source, monkeypatch, name):
    monkeypatch.setattr(ArraySource, "_decode", _Branching._decode)
    with pytest.raises(TypeError, match="symbolic .* as a Python .bool"):
        _labels(DATASETS[name], source)
