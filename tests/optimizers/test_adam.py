"""Adam and LazyAdam against NumPy and against TensorFlow's own Adam."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.optimizers import adam
from tests.optimizers import cases, oracle

OPTIONS = adam.AdamOptions(beta1=0.8, beta2=0.95, epsilon=1e-3)
UPDATE = functools.partial(oracle.adam, b1=0.8, b2=0.95, eps=1e-3)


class StockAdam:
    """`tf.train.AdamOptimizer` with the interface of a component."""

    def create(self, learning_rate, step):
        return tf.train.AdamOptimizer(learning_rate)


@pytest.mark.parametrize("cls", [adam.Adam, adam.LazyAdam])
def test_dense_updates_follow_the_formula(cls):
    trace = oracle.run(cls(OPTIONS), cases.INITIAL, cases.DENSE)
    oracle.assert_follows(trace, UPDATE, cases.DENSE, tolerance=1e-5)


def test_sparse_adam_equals_dense_adam_with_zero_gradients_elsewhere():
    trace = oracle.run(adam.Adam(OPTIONS), cases.INITIAL, cases.SPARSE)
    oracle.assert_follows(
        trace, lambda s, g, t, lr: UPDATE(s, oracle.as_dense(g, s["w"].shape), t, lr), cases.SPARSE, tolerance=1e-5
    )
    absent_row = [
        state["w"][1].tolist() for state in trace.states[1:3]
    ]  # step 2 does not contain row 1, which moves all the same
    assert absent_row[0] != absent_row[1]


def test_lazy_adam_follows_the_formula_on_its_rows_and_leaves_the_others():
    trace = oracle.run(adam.LazyAdam(OPTIONS), cases.INITIAL, cases.SPARSE)
    oracle.assert_follows(trace, functools.partial(oracle.by_rows, UPDATE), cases.SPARSE, tolerance=1e-5)
    assert trace.states[0].keys() == {"w", "m", "v"}
    cases.assert_untouched_rows_are_identical(trace.states)


@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
def test_equals_stock_adam_over_20_steps(is_sparse):
    random = np.random.default_rng(5)
    gradients = [random.normal(size=(5, 3)).astype(np.float32) for _ in range(20)]
    if is_sparse:
        gradients = [(g[:3], random.integers(0, 5, size=3).tolist()) for g in gradients]
    ours = oracle.run(adam.Adam(adam.AdamOptions()), cases.INITIAL, gradients, rate=1e-3)
    stock = oracle.run(StockAdam(), cases.INITIAL, gradients, rate=1e-3)
    for our_state, stock_state in zip(ours.states, stock.states, strict=True):
        for name in ("w", "m", "v"):
            np.testing.assert_allclose(our_state[name], stock_state[name], rtol=0, atol=1e-6)
    assert np.abs(ours.states[-1]["w"] - cases.INITIAL).max() > 5e-3  # the values did move


@pytest.mark.parametrize("cls", [adam.Adam, adam.LazyAdam])
def test_variables_equal_the_stock_ones_without_the_beta_powers(cls):
    ours = oracle.run(cls(OPTIONS), cases.INITIAL, cases.DENSE[:1]).names
    stock = oracle.run(StockAdam(), cases.INITIAL, cases.DENSE[:1]).names
    assert ours == ["w", "w/Adam", "w/Adam_1"]
    assert sorted([*ours, "beta1_power", "beta2_power"]) == stock


def test_bias_correction_follows_the_given_step_and_not_the_number_of_calls():
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=tf.zeros([1]), use_resource=True)
        step = tf.constant(9, tf.int64)  # as after a restore at step 9, with moments at zero
        apply_op = adam.Adam(OPTIONS).create(0.05, step).apply_gradients([(tf.ones([1]), w)])
        session.run(tf.global_variables_initializer())
        session.run(apply_op)
        rate = 0.05 * np.sqrt(1 - 0.95**10) / (1 - 0.8**10)
        np.testing.assert_allclose(session.run(w), [-rate * 0.2 / (np.sqrt(0.05) + 1e-3)], rtol=1e-5)


def test_long_training_stays_finite():
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=tf.zeros([1]), use_resource=True)
        step = tf.constant(2**40, tf.int64)
        apply_op = adam.Adam(adam.AdamOptions()).create(0.05, step).apply_gradients([(tf.ones([1]), w)])
        session.run(tf.global_variables_initializer())
        session.run(apply_op)
        np.testing.assert_allclose(session.run(w), [-0.05 * 0.1 / np.sqrt(0.001)], rtol=1e-4)


def test_lazy_adam_rejects_reference_variables_rather_than_update_the_whole_table():
    with tf.Graph().as_default():
        table = tf.get_variable("table", [4, 2], use_resource=False)
        gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0], tf.int64), [4, 2])
        optimizer = adam.LazyAdam(OPTIONS).create(0.05, tf.constant(0, tf.int64))
        with pytest.raises(OptionError, match="'table' is a reference variable.*use_resource=True.*--optimizer=adam"):
            optimizer.apply_gradients([(gradient, table)])
