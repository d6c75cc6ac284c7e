"""Several devices in one worker: the numbers of one device with the whole batch, and the same messages."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from tests.testing.cluster import config_of

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers
from ps_trainer.training import one_process
from tests.testing import components as small

NUM_STEPS = 6
# Largest |difference| of a step's loss, of order 1: sums of 8 examples in another order, in float32 (1.2e-7 each).
BOUND = 2e-6


class Everything:
    """A model with two look-ups of one table, a second table, a dense layer that is used twice, and weight decay."""

    def build(self, batch, training):
        first = layers.embedding("table", small.VOCAB_SIZE, 4, batch["ids"])
        with tf.variable_scope("", reuse=tf.AUTO_REUSE):
            again = layers.embedding("table", small.VOCAB_SIZE, 4, batch["ids"][:, :1])
        other = layers.embedding("other", small.VOCAB_SIZE, 2, batch["ids"])
        parts = [tf.reduce_mean(rows, axis=1) for rows in (first, again, other)]
        x = tf.concat([*parts, batch["x"]], axis=1)
        kernel = tf.get_variable(
            "shared", [x.shape[1], x.shape[1]], regularizer=lambda value: 0.01 * tf.reduce_sum(tf.square(value))
        )
        x = tf.nn.tanh(tf.matmul(tf.nn.tanh(tf.matmul(x, kernel)), kernel))
        output = layers.classifier_output(layers.dense(x, small.NUM_CLASSES, "logits"), batch["label"])
        decay = tf.add_n([tf.nn.l2_loss(variable) for variable in tf.trainable_variables()])
        regularization = tf.losses.get_regularization_loss()
        return output._replace(loss=output.loss + 0.001 * decay + regularization)


class Direct:
    """A model that reads its table by TensorFlow's own look-up."""

    def build(self, batch, training):
        table = tf.get_variable(
            "table", [small.VOCAB_SIZE, 4], collections=[tf.GraphKeys.GLOBAL_VARIABLES, layers.EMBEDDING_TABLES]
        )
        rows = tf.nn.embedding_lookup(table, batch["ids"], partition_strategy="div")
        logits = layers.dense(tf.reduce_mean(rows, axis=1), small.NUM_CLASSES, "logits")
        return layers.classifier_output(logits, batch["label"])


class Averaged:
    """A model with batch norm."""

    def build(self, batch, training):
        x = layers.batch_norm(batch["x"][:, tf.newaxis, tf.newaxis, :], "norm", training=training)
        logits = layers.dense(layers.flatten(x), small.NUM_CLASSES, "logits")
        return layers.classifier_output(logits, batch["label"])


def config(model="Everything", devices=1, **fields):
    fields = {"batch_size": 8, "seed": 3, "max_steps": NUM_STEPS, "learning_rate": 0.1, **fields}
    name = f"{__name__}:{model}" if model in globals() else model
    return config_of(name, "Rows", devices_per_worker=devices, **fields)


def trained(tmp_path, devices, **fields):
    """Losses of the steps, and the result."""

    logdir = tmp_path / f"devices-{devices}"
    result = one_process.train(config(devices=devices, logdir=str(logdir), step_log=True, **fields))
    lines = (logdir / "steps" / "worker-0.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines], result


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, marks=pytest.mark.full),  # the others contain it
        {"optimizer": "adam", "learning_rate": 0.01, "layout": "per_variable"},
        {"model": "Direct", "optimizer": "adagrad"},
        {"model": "Dense", "update": "easgd", "update_option": ("period=2",)},
        {"gradient_transform": ("clip_norm:norm=0.3",)},
        pytest.param({"update": "sync"}, marks=pytest.mark.full),  # a rule gets the sum of the parts
        pytest.param({"update": "sync_replicas", "layout": "per_variable"}, marks=pytest.mark.full),
    ],
    ids=["sgd", "adam", "own_look_up", "replica", "clipped", "sync", "sync_replicas"],
)
@pytest.mark.parametrize("devices", [2, 4])
def test_losses_and_values_are_those_of_one_device_with_the_whole_batch(tmp_path, devices, fields):
    one, several = trained(tmp_path, 1, **fields), trained(tmp_path, devices, **fields)
    np.testing.assert_allclose(several[0], one[0], rtol=0, atol=BOUND)
    assert len(set(one[0])) == len(one[0]) >= NUM_STEPS
    assert several[1].values.keys() == one[1].values.keys()
    for name, value in one[1].values.items():
        np.testing.assert_allclose(several[1].values[name], value, rtol=0, atol=2e-5, err_msg=name)
    bytes_of = [run.summary.as_json()["workers"]["0"]["push_bytes_computed"] for _, run in (one, several)]
    assert bytes_of[1] == bytes_of[0] or fields.get("model") == "Direct"


def test_batch_norm_normalises_each_part_and_keeps_the_averages_of_the_first_device(tmp_path):
    _, one = trained(tmp_path, 1, model="Averaged", max_steps=1)
    _, two = trained(tmp_path, 2, model="Averaged", max_steps=1)
    averages = [name for name in one.values if "moving" in name or "mean" in name or "variance" in name]
    assert averages
    assert any(not np.allclose(one.values[name], two.values[name], atol=1e-3) for name in averages)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"batch_size": 7}, "--batch_size=7 is not a multiple of it; give --batch_size=6 or --batch_size=8"),
        ({"batch_size": 1}, "give --batch_size=2"),
        ({"sharding": "dynamic"}, "use --sharding=static, or one device"),
        ({"placement": "model_parallel"}, "use --placement=data_parallel, or one device"),
    ],
)
def test_what_cannot_be_divided_is_refused(fields, reason):
    with pytest.raises(OptionError, match=reason):
        config(devices=2, **fields)


def test_a_model_that_looks_up_other_tables_on_each_build_is_refused(tmp_path):
    with pytest.raises(OptionError, match="same tables in the same order"):
        trained(tmp_path, 2, model="Moody")


class Moody:
    """A model whose third build looks up its tables in another order."""

    builds = 0

    def build(self, batch, training):
        Moody.builds += 1
        names = ["a", "b"] if Moody.builds % 2 else ["b", "a"]
        rows = {name: layers.embedding(name, small.VOCAB_SIZE, 4, batch["ids"]) for name in names}
        x = tf.reduce_mean(rows["a"] + 2.0 * rows["b"], axis=1)
        return layers.classifier_output(layers.dense(x, small.NUM_CLASSES, "logits"), batch["label"])


def test_tensorflow_still_lets_an_op_get_another_input():
    with tf.Graph().as_default(), tf.Session() as session:
        copy = tf.identity(tf.placeholder(tf.float32, []))
        copy.op._update_input(0, tf.constant(2.0))
        assert session.run(copy) == 2.0
