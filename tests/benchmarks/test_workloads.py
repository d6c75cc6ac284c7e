"""Graph and input of the workloads."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from benchmarks.contenders import DEEP, LEARNING_RATE, SIZES
from benchmarks.digits_embedding_model import PixelTable
from benchmarks.workloads import WORKLOADS, DeepTable, RandomInput
from models import layers
from ps_trainer import component_tables
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard

MB = 1e6


def fetch(dataset: tf.data.Dataset, num_batches: int) -> list[dict[str, np.ndarray]]:
    batch = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as sess:
        return [sess.run(batch) for _ in range(num_batches)]


def create_input(width: int) -> RandomInput:
    return component_tables.DATASETS.create("benchmarks.workloads:RandomInput", [f"width={width}"], data_dir=None)


@pytest.mark.parametrize(
    ("name", "num_variables", "megabytes"),
    [("deep", 2 * 40, 40 * (64 * 64 + 64) * 4 / MB), ("wide", 2 * 4, 4 * (512 * 512 + 512) * 4 / MB)],
)
def test_model_has_the_promised_size(name, num_variables, megabytes):
    with tf.Graph().as_default():
        width = SIZES[name].width
        batch = {"features": tf.zeros([32, width]), "label": tf.zeros([32], tf.int64)}
        component_tables.MODELS.create(f"benchmarks.workloads:{name.capitalize()}").build(batch, training=True)
        variables = tf.trainable_variables()
    assert len(variables) == num_variables
    assert sum(v.shape.num_elements() * 4 for v in variables) / MB == pytest.approx(megabytes)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_variable_moves_and_the_loss_goes_down(name):
    width = SIZES[name].width
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        data = create_input(width).train(shard=Shard(0, 1), batch_size=32, seed=0)
        batch = tf.data.make_one_shot_iterator(data).get_next()
        loss = WORKLOADS[name]().build(batch, training=True).loss
        train_op = tf.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss)
        gradients = tf.gradients(loss, tf.trainable_variables())
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            first_loss, gradients_v = sess.run([loss, gradients])
            for _ in range(50):
                sess.run(train_op)
            last_loss = sess.run(loss)
    assert all(np.any(g != 0) for g in gradients_v)
    assert np.isfinite(last_loss)
    assert last_loss < first_loss


@pytest.mark.parametrize("method", ["train", "test"])
def test_input_takes_the_arguments_that_a_worker_gives_to_a_dataset(method):
    ours, base = (inspect.signature(getattr(cls, method)).parameters for cls in (RandomInput, DataSource))
    assert list(ours) == list(base)
    assert {name: p.annotation for name, p in ours.items()} == {name: p.annotation for name, p in base.items()}


def test_input_is_one_batch_for_ever():
    with tf.Graph().as_default():
        first, second, third = fetch(create_input(16).train(shard=Shard(0, 2), batch_size=4, seed=7), 3)
    assert first["features"].shape == (4, 16)
    assert first["features"].dtype == np.float32
    assert first["label"].shape == (4,)
    assert first["label"].dtype == np.int64
    assert set(first["label"]) <= set(range(16))
    for other in (second, third):
        np.testing.assert_array_equal(first["features"], other["features"])
        np.testing.assert_array_equal(first["label"], other["label"])


def test_workers_and_seeds_have_batches_of_their_own():
    with tf.Graph().as_default():
        data = create_input(16)
        batches = [
            fetch(dataset, 1)[0]["features"]
            for dataset in (
                data.train(shard=Shard(0, 2), batch_size=4, seed=7),
                data.train(shard=Shard(1, 2), batch_size=4, seed=7),
                data.train(shard=Shard(0, 2), batch_size=4, seed=8),
                data.test(batch_size=4),
            )
        ]
    assert len({batch.tobytes() for batch in batches}) == len(batches)


def test_input_ends_after_its_epochs():
    with tf.Graph().as_default():
        dataset = create_input(16).train(shard=Shard(0, 1), batch_size=4, seed=0, num_epochs=2)
        fetch(dataset, 2)
        with pytest.raises(tf.errors.OutOfRangeError):
            fetch(dataset, 3)


def test_deep_table_is_a_deep_model_with_a_table_whose_gradient_has_only_rows():
    with tf.Graph().as_default():
        data = create_input(DEEP.width).train(shard=Shard(0, 1), batch_size=32, seed=0)
        batch = tf.data.make_one_shot_iterator(data).get_next()
        loss = DeepTable().build(batch, training=True).loss
        (table,) = tf.get_collection(layers.EMBEDDING_TABLES)
        assert table.shape == [64, 64]
        assert len(tf.trainable_variables()) == 1 + 2 * 40
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            indices, label = sess.run([tf.gradients(loss, [table])[0].indices, batch["label"]])
    assert sorted(indices) == sorted(set(label))
    assert 20 < len(indices) < 30


def test_pixel_table_looks_up_the_row_of_each_grey_level():
    image = np.zeros([2, 8, 8, 1], np.float32)
    image[1, 0, 1, 0] = 16 / 16
    image[1, 7, 7, 0] = 5 / 16
    with tf.Graph().as_default():
        batch = {"image": tf.constant(image), "label": tf.constant([0, 1], tf.int64)}
        output = PixelTable().build(batch, training=True)
        (table,) = tf.get_collection(layers.EMBEDDING_TABLES)
        gradient = tf.gradients(output.loss, [table])[0]
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            indices, probabilities = sess.run([gradient.indices, output.predictions])
    assert sorted(indices) == [0, 5, 16]
    assert table.shape == [17, 8]
    assert probabilities.shape == (2, 10)


def test_input_continues_where_it_was():
    with tf.Graph().as_default():
        start = tf.constant(4, tf.int64)
        data = create_input(8).train(shard=Shard(0, 1), batch_size=2, seed=0, num_epochs=3, start=start)
        fetch(data, 1)
        with pytest.raises(tf.errors.OutOfRangeError):
            fetch(data, 2)
