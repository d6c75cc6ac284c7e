"""The shipped models: shapes, options, and that they learn real digits in a plain single process."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models.cnn import Cnn
from models.mlp import Mlp
from models.softmax import Softmax
from ps_trainer import registry
from ps_trainer.data.base import Shard
from ps_trainer.data.digits import Digits

MODELS = [Softmax, Mlp, Cnn]


def _build(model, images, labels, training=False):
    batch = {"image": tf.constant(images, tf.float32), "label": tf.constant(labels, tf.int64)}
    return model.build(batch, training)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (7, 5, 3)])
@pytest.mark.parametrize("cls", MODELS)
def test_output_has_one_prediction_and_metric_per_example(cls, shape):
    with tf.Graph().as_default():
        output = _build(cls(cls.Options(num_classes=4)), np.random.rand(3, *shape), [0, 1, 3])
        assert output.loss.dtype == tf.float32
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            output_v = session.run(output)
    assert output_v.loss.shape == ()
    assert output_v.predictions.shape == (3, 4)
    np.testing.assert_allclose(output_v.predictions.sum(axis=1), 1, rtol=1e-5)
    assert list(output_v.metrics) == ["accuracy"]
    np.testing.assert_array_equal(output_v.metrics["accuracy"], output_v.predictions.argmax(axis=1) == [0, 1, 3])


@pytest.mark.parametrize("cls", MODELS)
def test_batch_size_may_be_unknown(cls):
    with tf.Graph().as_default():
        batch = {"image": tf.placeholder(tf.float32, [None, 8, 8, 1]), "label": tf.placeholder(tf.int64, [None])}
        output = cls(cls.Options()).build(batch, training=False)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for size in (1, 5):
                feed = {batch["image"]: np.zeros((size, 8, 8, 1)), batch["label"]: np.zeros(size)}
                assert session.run(output.predictions, feed).shape == (size, 10)


@pytest.mark.parametrize(
    ("name", "options", "shapes"),
    [
        ("softmax", [], {"logits/kernel": [64, 10], "logits/bias": [10]}),
        (
            "mlp",
            ["hidden=6,5"],
            {
                "hidden0/kernel": [64, 6],
                "hidden0/bias": [6],
                "hidden1/kernel": [6, 5],
                "hidden1/bias": [5],
                "logits/kernel": [5, 10],
                "logits/bias": [10],
            },
        ),
        ("mlp", ["hidden="], {"logits/kernel": [64, 10], "logits/bias": [10]}),
        (
            "cnn",
            ["filters=3,4", "hidden=6"],
            {
                "conv0/kernel": [3, 3, 1, 3],
                "conv0/bias": [3],
                "conv1/kernel": [3, 3, 3, 4],
                "conv1/bias": [4],
                "hidden/kernel": [2 * 2 * 4, 6],
                "hidden/bias": [6],
                "logits/kernel": [6, 10],
                "logits/bias": [10],
            },
        ),
    ],
)
def test_options_decide_the_variables(name, options, shapes):
    with tf.Graph().as_default():
        _build(registry.MODELS.create(name, options), np.zeros((2, 8, 8, 1)), [0, 0], training=True)
        assert {v.op.name: v.shape.as_list() for v in tf.trainable_variables()} == shapes


@pytest.mark.parametrize("cls", [Mlp, Cnn])
def test_dropout_changes_the_loss_in_training_only(cls):
    with tf.Graph().as_default():
        model = cls(cls.Options(dropout=0.5))
        losses = []
        for training in (True, False):
            with tf.variable_scope("", reuse=not training):
                losses.append(_build(model, np.ones((4, 8, 8, 1)), [0, 1, 2, 3], training).loss)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            runs = [session.run(losses) for _ in range(2)]
    assert runs[0][0] != runs[1][0]
    assert runs[0][1] == runs[1][1]


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (Softmax, {"num_classes": 1}, "num_classes=1: a classifier needs at least 2"),
        (Mlp, {"num_classes": 0}, "num_classes=0"),
        (Mlp, {"hidden": (8, 0)}, r"hidden=\(8, 0\): each hidden layer"),
        (Mlp, {"dropout": 1.0}, "dropout=1.0 must be at least 0 and less than 1"),
        (Cnn, {"num_classes": 1}, "num_classes=1"),
        (Cnn, {"filters": ()}, r"filters=\(\): at least one convolution"),
        (Cnn, {"filters": (0,)}, r"filters=\(0,\)"),
        (Cnn, {"hidden": 0}, "hidden=0"),
        (Cnn, {"dropout": -0.1}, "dropout=-0.1"),
    ],
)
def test_wrong_option_is_named(cls, options, message):
    with pytest.raises(ValueError, match=message):
        cls.Options(**options)


@pytest.mark.parametrize("cls", MODELS)
def test_first_line_of_the_docstring_is_a_sentence_for_the_list(cls):
    first = cls.__doc__.splitlines()[0]
    assert first.endswith(".")
    assert len(first) < 100


def _train_on_digits(model, learning_rate, num_steps):
    """Test accuracy after `num_steps` of plain SGD with batch 32 in this process."""
    source = Digits(Digits.Options(), data_dir=None)
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        train = tf.data.make_initializable_iterator(
            source.train(shard=Shard(0, 1), batch_size=32, seed=0, num_epochs=None)
        )
        test = tf.data.make_initializable_iterator(source.test(batch_size=source.num_test_examples))
        output = model.build(train.get_next(), training=True)
        with tf.variable_scope("", reuse=True):
            test_output = model.build(test.get_next(), training=False)
        step = tf.train.GradientDescentOptimizer(learning_rate).minimize(output.loss)
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), train.initializer, test.initializer])
            for _ in range(num_steps):
                session.run(step)
            return session.run(test_output.metrics["accuracy"]).mean()


# Thresholds: what a few seeds reach (softmax 0.94, mlp 0.96, cnn 0.98), less 0.02 for another seed or machine.
@pytest.mark.parametrize(
    ("model", "learning_rate", "num_steps", "accuracy"),
    [
        (Softmax(Softmax.Options()), 0.5, 500, 0.92),
        (Mlp(Mlp.Options()), 0.3, 500, 0.93),
        (Cnn(Cnn.Options()), 0.3, 400, 0.96),
    ],
    ids=["softmax", "mlp", "cnn"],
)
def test_learns_digits(model, learning_rate, num_steps, accuracy):
    assert _train_on_digits(model, learning_rate, num_steps) >= accuracy
