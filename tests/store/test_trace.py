"""The variables that a trace finds in a model, and initial values that depend only on seed and name."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.store.trace import derive_seed, seeded_getter, trace
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment

import tensorflow.compat.v1 as tf  # isort: skip - after the environment

from models import layers


def initial_values(build, seed=0):
    return trace(build, seed).initial_values()


def test_finds_names_shapes_types_and_tables_in_the_order_of_creation():
    def build():
        with tf.variable_scope("block"):
            layers.embedding("table", 9, 4, tf.placeholder(tf.int64, [None]))
            layers.dense(tf.placeholder(tf.float32, [None, 3]), 2, "dense")
        tf.get_variable("scale", [], tf.float64)
        tf.get_variable("mean", [5], trainable=False)

    found = trace(build, 0)
    assert [(spec.name, spec.shape, spec.dtype.name, spec.trainable, spec.is_table) for spec in found.specs] == [
        ("block/table", (9, 4), "float32", True, True),
        ("block/dense/kernel", (3, 2), "float32", True, False),
        ("block/dense/bias", (2,), "float32", True, False),
        ("scale", (), "float64", True, False),
        ("mean", (5,), "float32", False, False),
    ]
    assert found.has_tables
    assert {name: value.shape for name, value in found.initial_values().items()} == {
        spec.name: spec.shape for spec in found.specs
    }


def test_initial_values_can_be_read_again_and_leave_the_trace_unchanged():
    found = trace(lambda: tf.get_variable("w", [2, 3]), 0)
    graph = found.graph.as_graph_def()
    first, second = found.initial_values(), found.initial_values()
    np.testing.assert_array_equal(first["w"], second["w"])
    assert found.graph.as_graph_def() == graph  # workers compare its hash


def test_a_model_without_tables_is_recognised():
    assert not trace(lambda: tf.get_variable("w", [1]), 0).has_tables


def test_a_variable_that_is_shared_counts_once():
    def build():
        for _ in range(2):
            with tf.variable_scope("shared", reuse=tf.AUTO_REUSE):
                tf.get_variable("w", [2])

    assert [spec.name for spec in trace(build, 0).specs] == ["shared/w"]


def test_the_callers_graph_stays_empty():
    with tf.Graph().as_default() as graph:
        trace(lambda: tf.get_variable("w", [2]), 0).initial_values()
        assert not graph.get_operations()


@pytest.mark.parametrize(
    "initializer",
    [None, tf.glorot_uniform_initializer(), tf.truncated_normal_initializer(stddev=2.0), tf.random_normal_initializer],
    ids=["default", "glorot", "truncated normal", "a class"],
)
def test_initial_values_do_not_depend_on_the_place_in_the_graph(initializer):
    def alone():
        tf.get_variable("w", [4, 3], initializer=initializer)

    def after_others():
        tf.random.normal([3])
        tf.get_variable("other", [8], initializer=initializer)
        tf.get_variable("w", [4, 3], initializer=initializer)

    first, second = initial_values(alone), initial_values(after_others)
    np.testing.assert_array_equal(first["w"], second["w"])
    assert len(np.unique(first["w"])) == 4 * 3  # random, not constant


def test_initial_values_differ_by_name_and_by_seed():
    def build():
        tf.get_variable("a", [6])
        tf.get_variable("b", [6])

    first, again, other = initial_values(build, 1), initial_values(build, 1), initial_values(build, 2)
    np.testing.assert_array_equal(first["a"], again["a"])
    assert not np.any(first["a"] == first["b"])
    assert not np.any(first["a"] == other["a"])


def test_variables_that_share_an_initializer_differ():
    def build():
        with tf.variable_scope("scope", initializer=tf.random_normal_initializer()):
            tf.get_variable("a", [6])
            tf.get_variable("b", [6])

    values = initial_values(build)
    assert not np.any(values["scope/a"] == values["scope/b"])


def test_an_initializers_own_seed_is_respected():
    def build():
        tf.get_variable("w", [6], initializer=tf.random_normal_initializer(seed=17))

    def build_otherwise():
        tf.get_variable("v", [6], initializer=tf.random_normal_initializer(seed=17))

    np.testing.assert_array_equal(initial_values(build, 3)["w"], initial_values(build_otherwise, 3)["v"])


def test_the_given_initializer_is_not_changed():
    initializer = tf.random_normal_initializer()
    initial_values(lambda: tf.get_variable("w", [2], initializer=initializer))
    assert initializer.seed is None


def test_values_that_are_not_random_stay():
    def build():
        tf.get_variable("two", [2], initializer=tf.constant_initializer(2.0))
        tf.get_variable("given", initializer=np.float32([1, 5]))
        tf.get_variable("count", [], tf.int64)

    values = initial_values(build)
    np.testing.assert_array_equal(values["two"], [2, 2])
    np.testing.assert_array_equal(values["given"], [1, 5])
    assert values["count"] == 0 and values["count"].dtype == np.int64


def test_a_plain_graph_under_the_seeded_getter_starts_from_the_same_values():
    def build():
        layers.dense(tf.placeholder(tf.float32, [None, 3]), 2, "dense")

    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(4)
        with tf.variable_scope("", custom_getter=seeded_getter(4)):
            build()
        session.run(tf.global_variables_initializer())
        plain = session.run({variable.op.name: variable for variable in tf.global_variables()})
    traced = initial_values(build, 4)
    for name, value in plain.items():
        np.testing.assert_array_equal(traced[name], value)


def test_seeds_are_in_range_and_differ_by_purpose():
    seeds = {derive_seed(seed, purpose) for seed in range(50) for purpose in ("a", "b/c", "w")}
    assert len(seeds) == 50 * 3
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_local_variables_of_the_model_are_ignored():
    def build():
        tf.get_variable("w", [2])
        tf.get_variable("seen", [], collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
        tf.metrics.mean(tf.constant(1.0))

    assert [spec.name for spec in trace(build, 0).specs] == ["w"]


def test_a_variable_made_by_tf_variable_is_rejected_by_name():
    def build():
        tf.get_variable("w", [2])
        tf.Variable(1.0, name="stranger")

    with pytest.raises(OptionError, match="model variables stranger were created by tf.Variable; create them by"):
        trace(build, 0)


def use_keras_layer():
    layer = tf.keras.layers.Dense(2, name="mine")
    return tf.reduce_sum(layer(tf.zeros([1, 3])))


def train_with_keras():
    w = tf.get_variable("w", [2])
    tf.keras.optimizers.Adam(0.1).apply_gradients([(tf.ones([2]), w)])


def keep_average():
    tf.train.ExponentialMovingAverage(0.9).apply([tf.get_variable("w", [2])])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (use_keras_layer, "mine/kernel, mine/bias were created by a Keras layer; use the layers of ps_trainer"),
        (train_with_keras, "were created by a Keras optimizer; leave the optimizer out of build"),
        (keep_average, "w/ExponentialMovingAverage were created by tf.train.ExponentialMovingAverage; leave it out"),
    ],
)
def test_a_variable_made_by_keras_or_an_average_names_the_fix_for_that(build, words):
    with pytest.raises(OptionError, match=words):
        trace(build, 0)


@pytest.mark.parametrize("build", [lambda: None, lambda: tf.metrics.mean(tf.constant(1.0))], ids=["none", "local"])
def test_a_model_without_variables_is_rejected(build):
    with pytest.raises(OptionError, match="the model has no variables"):
        trace(build, 0)


def test_a_variable_without_a_static_shape_is_rejected():
    def build():
        value = tf.placeholder_with_default(tf.zeros([2]), [None])
        tf.get_variable("w", initializer=value, validate_shape=False)

    with pytest.raises(OptionError, match="model variable 'w' has the shape .*; give it a static shape"):
        trace(build, 0)


def test_a_variable_that_the_model_partitions_is_one_variable():
    def build():
        with tf.variable_scope("scope", partitioner=tf.fixed_size_partitioner(3)):
            tf.get_variable("w", [6, 2])

    found = trace(build, 0)
    assert [(spec.name, spec.shape) for spec in found.specs] == [("scope/w", (6, 2))]
    assert found.initial_values()["scope/w"].shape == (6, 2)
