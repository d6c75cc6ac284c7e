"""Sums of gradients on a ps task: rows of tables, dropped and empty gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.store.pieces import Piece
from ps_trainer.updates.gradient_sums import GradientSums


class OneMachine:
    """A store whose ps task is this process."""

    def ps_device(self, ps: int) -> str:
        return "/cpu:0"


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.variable_scope("", use_resource=True), tf.Session() as session:
        yield session


def test_rows_of_a_table_are_summed_whatever_their_number(session):
    table = tf.get_variable("table", [5, 2], initializer=tf.zeros_initializer())
    sums = GradientSums(OneMachine(), 0, [Piece(table, 0, (), None, True, True)], "test")
    indices, values = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None, 2])
    is_accepted = tf.placeholder(tf.bool, [])
    add = sums.add([tf.IndexedSlices(values, indices, tf.constant([5, 2], tf.int64))], is_accepted)
    ((_, taken),) = sums.take(tf.constant(0.5))
    dense = tf.math.unsorted_segment_sum(taken.values, taken.indices, 5)
    session.run(tf.variables_initializer(sums.state))

    def push(rows, accepted=True):
        feed = {indices: rows, values: [[row + 1.0] * 2 for row in rows] or np.zeros([0, 2])}
        session.run(add, feed | {is_accepted: accepted})

    push([0, 3, 0])
    push([])
    push([4], accepted=False)
    push([3])
    wanted = np.array([2 * 1, 0, 0, 2 * 4, 0]) / 2
    np.testing.assert_array_equal(session.run(dense), np.stack([wanted, wanted], axis=1))
    push([])
    np.testing.assert_array_equal(session.run(dense), np.zeros([5, 2]))


def test_the_shape_of_summed_rows_is_that_of_the_step(session):
    table = tf.get_variable("table", [5, 2], initializer=tf.zeros_initializer())
    sums = GradientSums(OneMachine(), 0, [Piece(table, 0, (), None, True, True)], "test")
    indices = tf.placeholder_with_default(np.int64([0, 3, 0]), [None])
    values = tf.placeholder_with_default(np.ones([3, 2], np.float32), [None, 2])
    rows = tf.IndexedSlices(values, indices, tf.constant([5, 2], tf.int64))
    add = sums.add([rows], tf.constant(True))
    ((_, taken),) = sums.take(tf.constant(1.0))
    shapes = [tf.shape(taken.indices), tf.shape(taken.values)]
    session.run(tf.variables_initializer(sums.state))
    session.run(add)
    num_indices, values_shape = session.run(shapes)
    assert (num_indices.tolist(), values_shape.tolist()) == ([3], [3, 2])


def test_dense_sums_exclude_dropped_gradients_and_restart_at_zero(session):
    vector = tf.get_variable("vector", [3], initializer=tf.zeros_initializer())
    sums = GradientSums(OneMachine(), 0, [Piece(vector, 0, (), None, True, False)], "test")
    value, is_accepted = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.bool, [])
    add = sums.add([value], is_accepted)
    ((_, taken),) = sums.take(tf.constant(0.25))
    session.run(tf.variables_initializer(sums.state))
    for _ in range(2):
        for gradient, accepted in (([1, 2, 3], True), ([100, 100, 100], False), ([4, 0, -3], True)):
            session.run(add, {value: gradient, is_accepted: accepted})
        np.testing.assert_array_equal(session.run(taken), [5 / 4, 2 / 4, 0])
