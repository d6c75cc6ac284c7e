"""The shipped digits and their fixed split."""

from __future__ import annotations

import zlib

import numpy as np

from ps_trainer.data.formats import digits
from ps_trainer.data.formats.digits import Digits
from ps_trainer.data.pipeline.shard import Shard
from tests.data.reading import read_batches, read_column


def test_shipped_arrays_have_the_documented_form():
    images, labels = digits.load_arrays()
    assert (images.shape, images.dtype) == ((1797, 8, 8, 1), np.uint8)
    assert (images.min(), images.max()) == (0, 16)
    assert (labels.shape, labels.dtype) == ((1797,), np.int64)
    assert sorted(set(labels)) == list(range(10))


def test_split_has_1437_and_360_examples_without_overlap():
    train, test = digits.split(digits.load_arrays()[1])
    assert (len(train), len(test)) == (1437, 360)
    assert sorted([*train, *test]) == list(range(1797))


def test_split_is_stratified_to_less_than_one_example():
    labels = digits.load_arrays()[1]
    test = digits.split(labels)[1]
    counts, test_counts = np.bincount(labels), np.bincount(labels[test])
    assert np.all(np.abs(test_counts - counts * 360 / 1797) < 1)


def test_split_gives_missing_examples_to_the_largest_remainders():
    labels = np.repeat([0, 1, 2], [1008, 1005, 1587])
    # A tenth of 3600 is 100.8 + 100.5 + 158.7 examples, so rounding down loses two of 360.
    assert list(np.bincount(labels[digits.split(labels)[1]])) == [100 + 1, 100, 158 + 1]


def test_split_gives_a_missing_example_to_the_lower_of_equal_labels():
    labels = np.repeat([0, 1], [359, 361])
    # Half of 720 is 179.5 + 180.5 examples.
    assert list(np.bincount(labels[digits.split(labels)[1]])) == [179 + 1, 180]


def test_split_never_changes():
    test = digits.split(digits.load_arrays()[1])[1]
    assert zlib.crc32(test.astype("<i8").tobytes()) == 3361870352


def test_test_set_is_read_in_file_order_and_scaled_to_0_1():
    images, labels = digits.load_arrays()
    test = digits.split(labels)[1]
    batches = read_batches(lambda: Digits(Digits.Options()).test(batch_size=100))
    assert [len(batch["label"]) for batch in batches] == [100, 100, 100, 60]
    np.testing.assert_array_equal(np.concatenate([b["image"] for b in batches]), images[test] / np.float32(16))
    np.testing.assert_array_equal(np.concatenate([b["label"] for b in batches]), labels[test])


def test_workers_read_all_training_digits():
    labels = digits.load_arrays()[1]
    source = Digits(Digits.Options(), data_dir="/not/used")
    read = [
        read_column(lambda i=i: source.train(shard=Shard(i, 2), batch_size=1, seed=0, num_epochs=1), "label")
        for i in range(2)
    ]
    train = digits.split(labels)[0]
    np.testing.assert_array_equal(np.bincount(np.concatenate(read)), np.bincount(labels[train]))
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (1437, 360, 10)
