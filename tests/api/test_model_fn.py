"""Models in Estimator's form, and the optimizer that they make."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import ps_trainer
from ps_trainer.api import model_fn as model_fn_lib
from ps_trainer.errors import ArgumentError, ArgumentTypeError
from ps_trainer.store.trace import trace
from tests.api import objects

PARAMS = {"rate": 0.25}


def traced(model_fn, params=PARAMS):
    model = ps_trainer.from_model_fn(model_fn, params=params)
    batch = lambda: (tf.zeros([4, 10]), tf.zeros([4], tf.int64))  # noqa: E731
    return model, trace(lambda: model.build(batch(), training=True), seed=0)


def with_optimizer(create):
    """A model function whose training op comes from `create(loss)`."""

    def model_fn(features, labels, mode):
        w = tf.get_variable("w", [10, 10])
        loss = tf.losses.sparse_softmax_cross_entropy(labels, tf.matmul(features, w))
        return ps_trainer.EstimatorSpec(mode, loss=loss, train_op=create(loss) if mode == "train" else None)

    return model_fn


def test_minimize_makes_no_variables_and_the_run_gets_the_optimizer():
    model, found = traced(objects.model_fn)
    assert [spec.name for spec in found.specs] == ["w", "b"]
    assert model.optimizer == ("momentum", 0.25, ("momentum=0.5", "nesterov=false"))


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (tf.train.GradientDescentOptimizer(0.5), ("sgd", 0.5, ())),
        (tf.train.AdagradOptimizer(0.5, 0.2), ("adagrad", 0.5, ("initial_accumulator_value=0.2",))),
        (tf.train.AdamOptimizer(0.01, 0.8), ("adam", 0.01, ("beta1=0.8", "beta2=0.999", "epsilon=1e-08"))),
        (
            tf.train.RMSPropOptimizer(0.01, decay=0.8, centered=True),
            ("rmsprop", 0.01, ("decay=0.8", "momentum=0.0", "epsilon=1e-10", "centered=true")),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_settings_of_stock_optimizers_are_taken_over(optimizer, expected):
    """Fails if TensorFlow renames the attributes in which an optimizer keeps its settings."""
    model, _ = traced(with_optimizer(optimizer.minimize), params=None)
    assert model.optimizer == expected


def test_without_an_optimizer_the_settings_of_the_run_count():
    model, _ = traced(with_optimizer(lambda loss: None), params=None)
    assert model.optimizer is None


def clipped(loss):
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    pairs = optimizer.compute_gradients(loss)
    return optimizer.apply_gradients([(tf.clip_by_norm(gradient, 1.0), variable) for gradient, variable in pairs])


class Own(tf.train.GradientDescentOptimizer):
    pass


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (clipped, r"changes gradients between compute_gradients and apply_gradients; call minimize instead"),
        (lambda loss: Own(0.1).minimize(loss), r"uses Own, which is not one that the ps tasks know; return train_op=N"),
        (
            lambda loss: tf.train.AdamOptimizer(tf.train.exponential_decay(0.1, 0, 10, 0.5)).minimize(loss),
            r"a learning rate that is a tensor; give it a number, and the decay as train\(schedule=",
        ),
        (lambda loss: tf.no_op(), r"has a train_op that is not the result of minimize"),
        (lambda loss: tf.train.AdamOptimizer().minimize(2 * loss), r"minimizes another tensor than the loss"),
        (lambda loss: tf.train.AdamOptimizer().minimize(loss, var_list=[]), r"a part of the variables \(var_list\)"),
    ],
)
def test_an_optimizer_that_cannot_be_taken_over_is_refused_with_the_fix(create, message):
    with pytest.raises(ArgumentError, match=message):
        traced(with_optimizer(create), params=None)


def test_optimizers_outside_of_a_model_function_work_as_before():
    traced(objects.model_fn)
    assert list(inspect.signature(tf.train.Optimizer.minimize).parameters)[:3] == ["self", "loss", "global_step"]
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", [], initializer=tf.ones_initializer())
        train_op = tf.train.GradientDescentOptimizer(0.25).minimize(x * x)
        session.run(x.initializer)
        session.run(train_op)
        assert session.run(x) == np.float32(1 - 0.25 * 2)


def test_a_dict_with_a_label_is_split():
    seen = []

    def model_fn(features, labels, mode, params, config):
        seen.append((sorted(features), labels.shape.as_list(), mode, params, config))
        return ps_trainer.EstimatorSpec(mode, loss=tf.reduce_sum(tf.get_variable("w", [2])))

    model = ps_trainer.from_model_fn(model_fn, params={"a": 1})
    with tf.Graph().as_default():
        model.build({"image": tf.zeros([2, 3]), "label": tf.zeros([2])}, training=False)
    assert seen == [(["image"], [2], ps_trainer.ModeKeys.EVAL, {"a": 1}, None)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda features, tags: None, r"model_fn has an argument 'tags'; its arguments are features, labels, mode"),
        (lambda labels: None, r"model_fn has no argument features"),
        (3, r"model_fn=3 cannot be called"),
    ],
)
def test_a_function_of_another_form_is_refused(function, message):
    with pytest.raises(ArgumentTypeError, match=message):
        ps_trainer.from_model_fn(function)


def test_a_missing_loss_is_named():
    model = model_fn_lib.ModelFn(lambda features: None)
    with tf.Graph().as_default(), pytest.raises(ArgumentError, match=r"returns no loss in mode 'train'"):
        model.build(tf.zeros([2]), training=True)
