"""Arrays and functions as datasets."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from ps_trainer.api import data as data_lib
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import ArgumentError, ArgumentTypeError
from tests.api import objects


def batches_of(dataset, count, *, shard=(0, 1), batch_size=20, num_epochs=None, start=0, split="train"):
    """The first batches of a dataset, as arrays; fewer at its end."""
    with tf.Graph().as_default() as graph:
        if split == "train":
            made = dataset.train(shard=Shard(*shard), batch_size=batch_size, seed=0, num_epochs=num_epochs, start=start)
        else:
            made = dataset.test(batch_size=batch_size)
        iterator = tf.data.make_initializable_iterator(made)
        batch = iterator.get_next()
        found = []
        with tf.Session(graph=graph) as session:
            session.run(iterator.initializer)
            for _ in range(count):
                try:
                    found.append(session.run(batch))
                except tf.errors.OutOfRangeError:
                    break
    return found


def numbers(mode):
    """Batches of 4 examples: 0..3, 4..7 and so on; 100 higher for tests."""
    first = 0 if mode == "train" else 100
    return tf2.data.Dataset.range(first, first + 40).batch(4)


def test_arrays_are_shuffled_and_divided_among_the_workers():
    features, labels = objects.arrays(60)
    made = data_lib.create((features, labels), None, None)
    assert made.batch_size is None
    seen = [batches_of(made.dataset, 99, shard=(index, 2), batch_size=10, num_epochs=1) for index in range(2)]
    assert [len(batches) for batches in seen] == [3, 3]
    rows = np.concatenate([batch[0] for batches in seen for batch in batches])
    assert not np.array_equal(rows, features)
    assert sorted(map(tuple, rows)) == sorted(map(tuple, features))
    assert made.dataset.test(batch_size=10) is None


def test_batches_of_arrays_have_their_structure_and_values():
    data = {"b": np.arange(8, dtype=np.uint8).reshape(8, 1), "a": (np.arange(8.0), np.arange(8) * 2)}
    dataset = data_lib.create(data, data, None).dataset
    (batch,) = batches_of(dataset, 9, batch_size=8, split="test")
    assert batch["b"].dtype == np.uint8  # an array called "image" would not be scaled either
    np.testing.assert_array_equal(batch["b"], data["b"])
    np.testing.assert_array_equal(batch["a"][0], data["a"][0])
    np.testing.assert_array_equal(batch["a"][1], data["a"][1])


def test_workers_read_different_batches_of_a_function_and_continue_where_they_were():
    made = data_lib.create(numbers, None, None)
    assert made.batch_size == 4
    first = [batch[0] for batch in batches_of(made.dataset, 4, shard=(1, 2), batch_size=4)]
    assert first == [4, 12, 20, 28]
    later = [batch[0] for batch in batches_of(made.dataset, 3, shard=(1, 2), batch_size=4, start=8)]
    assert later == first[2:] + [36]
    once = batches_of(made.dataset, 99, shard=(0, 2), batch_size=4, num_epochs=1)
    assert len(once) == 5


def test_a_function_with_mode_gives_the_test_data():
    dataset = data_lib.create(numbers, None, None).dataset
    assert batches_of(dataset, 1, batch_size=4, split="test")[0].tolist() == [100, 101, 102, 103]


def test_a_function_with_shard_divides_the_examples_itself():
    def own(shard, batch_size):
        return tf.data.Dataset.range(shard.index, 40, shard.count).batch(batch_size)

    made = data_lib.create(own, None, 5)
    assert made.batch_size == 5
    assert batches_of(made.dataset, 1, shard=(1, 4), batch_size=5)[0].tolist() == [1, 5, 9, 13, 17]


def test_a_generator_yields_feeds():
    made = data_lib.create(objects.feeds, None, None)
    assert made.batch_size == 20
    features, labels = batches_of(made.dataset, 2)[1]
    expected = objects.arrays()
    np.testing.assert_array_equal(features, expected[0][20:40])
    np.testing.assert_array_equal(labels, expected[1][20:40])


def test_a_function_may_return_arrays():
    made = data_lib.create(lambda mode: objects.arrays(30 if mode == "train" else 10), None, None)
    assert made.batch_size is None
    assert made.dataset.num_train_examples == 30 and made.dataset.num_test_examples == 10


def wrong_size():
    return tf.data.Dataset.range(40).batch(8)


def needs_more(folder):
    return folder


def single_examples():
    return tf.data.Dataset.range(10)


def empty():
    return tf.data.Dataset.range(0).batch(8)


def tensors():
    return tf.zeros([4, 2]), tf.zeros([4])


@pytest.mark.parametrize(
    ("data", "batch_size", "error", "message"),
    [
        (wrong_size, 32, ArgumentError, r"batch_size=32, but data \(wrong_size\) makes batches of 8; leave batch_size"),
        (needs_more, None, ArgumentTypeError, r"data: the function needs the argument 'folder'; it may have mode,"),
        (single_examples, None, ArgumentError, r"the first dimension must count the examples of a batch; add .batch"),
        (empty, None, ArgumentError, r"data \(empty\) gives no batch"),
        (tensors, None, ArgumentTypeError, r"data \(tensors\) returns a tensor; return a tf.data.Dataset of batches"),
        (7, None, ArgumentTypeError, r"data=7 is of type int; give the name of a dataset"),
        (lambda: 7, None, ArgumentTypeError, r"returns a int; return a tf.data.Dataset"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_wrong_data_are_refused_with_the_fix(data, batch_size, error, message):
    with pytest.raises(error, match=message):
        data_lib.create(data, None, batch_size)


def test_a_dataset_of_another_graph_is_refused_with_the_fix():
    made = tf2.data.Dataset.range(10).batch(2)
    with pytest.raises(ArgumentTypeError, match="give the function that makes it: data=lambda:"):
        data_lib.create(made, None, None)
    with pytest.raises(ArgumentError, match="build the whole dataset inside of the function"):
        data_lib.create(lambda: made, None, None)


def test_large_arrays_stay_out_of_the_graph_and_give_the_same_batches(monkeypatch):
    data = {"x": np.arange(120.0).reshape(30, 4), "y": np.arange(30)}
    small = data_lib.create(data, data, None).dataset
    monkeypatch.setattr(data_lib, "MAX_ARRAY_BYTES", 100)
    large = data_lib.create(data, data, None).dataset
    assert (type(small), type(large)) == (data_lib.ArrayDataset, data_lib.LargeArrayDataset)
    assert (large.num_train_examples, large.num_test_examples) == (30, 30)
    for options in ({"shard": (1, 2), "start": 5}, {"split": "test"}):
        pairs = zip(
            batches_of(small, 4, batch_size=5, **options), batches_of(large, 4, batch_size=5, **options), strict=True
        )
        for one, other in pairs:
            for name in data:
                np.testing.assert_array_equal(one[name], other[name])
    with pytest.raises(ArgumentError, match=r"the train arrays have \[30, 29\] examples; give equal numbers"):
        data_lib.create({**data, "y": np.arange(29)}, None, None)


def test_tensors_with_a_value_count_as_arrays():
    with tf2.init_scope():  # eager, as in a notebook
        pair = (tf2.constant([[1.0], [2.0]]), tf2.constant([0, 1]))
    dataset = data_lib.create(pair, pair, None).dataset
    ((features, labels),) = batches_of(dataset, 1, batch_size=2, split="test")
    assert features.tolist() == [[1.0], [2.0]] and labels.tolist() == [0, 1]
