"""The ids of look-ups: one message for all tables of a ps task, and none with the gradient."""

from __future__ import annotations

import dataclasses

import pytest

from tests.store.test_pull import rounded_to
from tests.testing import components as small
from tests.testing.cluster import InProcessCluster, config_of
from tests.training.test_graph import build, crossings

import numpy as np  # isort: skip - after the cluster's environment
import tensorflow.compat.v1 as tf  # isort: skip

from models import layers

STEPS = 6


class Tables:
    """Two tables of different widths, one of them with int32 ids and looked up twice."""

    def build(self, batch, training):
        wide_BND = layers.embedding("wide", small.VOCAB_SIZE, 4, batch["ids"])
        narrow_BN1 = layers.embedding("narrow", small.VOCAB_SIZE, 1, tf.cast(batch["ids"], tf.int32))
        with tf.variable_scope("", reuse=tf.AUTO_REUSE):
            again_B1 = layers.embedding("narrow", small.VOCAB_SIZE, 1, tf.cast(batch["label"], tf.int32))
        x_BF = tf.concat([tf.reduce_mean(wide_BND, 1) + tf.reduce_mean(narrow_BN1, 1) + again_B1, batch["x"]], axis=1)
        return layers.classifier_output(layers.dense(x_BF, small.NUM_CLASSES, "logits"), batch["label"])


class Chained:
    """A look-up whose ids depend on the rows of another one."""

    def build(self, batch, training):
        first_BND = layers.embedding("first", small.VOCAB_SIZE, 4, batch["ids"])
        ids_B = tf.cast(tf.reduce_sum(first_BND, axis=[1, 2]) > 0, tf.int64) + batch["label"]
        second_BD = layers.embedding("second", small.VOCAB_SIZE, 4, ids_B)
        x_BF = tf.concat([tf.reduce_mean(first_BND, axis=1) + second_BD, batch["x"]], axis=1)
        return layers.classifier_output(layers.dense(x_BF, small.NUM_CLASSES, "logits"), batch["label"])


def config(model, **fields):
    return config_of(f"{__name__}:{model.__name__}", "Rows", batch_size=8, max_steps=STEPS, seed=5, **fields)


# `tests/updates` compares tables whose gradients are collected.
@pytest.mark.parametrize(
    ("num_ps", "update"), [(1, "async"), (2, "async"), pytest.param(2, "sync", marks=pytest.mark.full)]
)
@pytest.mark.parametrize("model", [Tables, Chained])
def test_rows_and_losses_are_those_of_plain_tensorflow(model, num_ps, update):
    with InProcessCluster(num_ps, 1) as cluster:
        (outcome,) = cluster.run(config(model, update=update))
    batches = small.global_batches(8, STEPS)
    losses, values = small.plain_loop(model(), batches, lambda: tf.train.GradientDescentOptimizer(0.1), seed=5)
    np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-6)
    for name, value in values.items():
        np.testing.assert_allclose(outcome.worker.final_values[name], value, rtol=0, atol=1e-6, err_msg=name)


def test_the_tables_of_a_ps_task_share_their_messages():
    to_ps, to_worker = crossings(build(config(Tables)))
    # The gradients of rows and dense parameters, and the ids of the next step.
    assert [shape for _, _, shape in to_ps] == [(None,)]
    # The result of the step with the dense parameters and the rows of the next one.
    assert len(to_worker) == 1


def test_ids_that_need_rows_are_a_message_of_their_own():
    to_ps, to_worker = crossings(build(config(Chained)))
    assert len(to_ps) == 2
    assert len(to_worker) == 2


def test_a_transform_sends_indices_with_its_values():
    to_ps, _ = crossings(build(config(Tables, gradient_transform=("clip_norm:norm=1",))))
    assert len([shape for _, _, shape in to_ps if len(shape) == 1]) >= 3


class Squares:
    """A model whose loss is the mean square of the rows of a table."""

    def build(self, batch, training):
        start = tf.random_uniform_initializer(0.5, 1.5, seed=3)
        rows_BND = layers.embedding("table", small.VOCAB_SIZE, 4, batch["ids"], start)
        return layers.ModelOutput(tf.reduce_mean(tf.square(rows_BND)), batch["label"], {})


@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rows_travel_rounded_and_the_ps_tasks_keep_all_digits(dtype, num_ps):
    with InProcessCluster(num_ps, 1) as cluster:
        (outcome,) = cluster.run(config(Squares, pull_dtype=dtype))
        (start,) = cluster.run(dataclasses.replace(config(Squares, learning_rate=1e-30), max_steps=1))
    table, losses = start.worker.final_values["table"].copy(), []
    for batch in small.global_batches(8, STEPS):
        rows = rounded_to(dtype, table)[batch["ids"]]
        losses.append(np.mean(np.square(rows)))
        np.add.at(table, batch["ids"], -0.1 * 2 * rows / rows.size)
    np.testing.assert_allclose(outcome.losses, losses, rtol=1e-6)
    np.testing.assert_allclose(outcome.worker.final_values["table"], table, rtol=0, atol=1e-6)
    assert len(np.unique(rounded_to(dtype, table))) < len(np.unique(table))


def test_rows_of_16_bits_have_half_the_bytes():
    def bytes_to_worker(pull_dtype):
        train = build(config(Squares, pull_dtype=pull_dtype))
        return sum(
            tensor.dtype.size * tensor.shape[1]
            for op in train.graph.get_operations()
            if "worker" in op.device
            for tensor in set(op.inputs)
            if "ps" in tensor.device and tensor.dtype.is_floating and tensor.shape.rank == 2
        )

    assert 2 * bytes_to_worker("bfloat16") == bytes_to_worker("float32") > 0
