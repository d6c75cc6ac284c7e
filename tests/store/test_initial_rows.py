"""Rows of an initial value, against the whole value that TensorFlow computes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.store import initial_rows
from ps_trainer.store.trace import trace

INITIALIZERS = {
    "default": None,
    "zeros": tf.zeros_initializer(),
    "ones": tf.ones_initializer(),
    "constant": tf.constant_initializer(0.25),
    "uniform": tf.random_uniform_initializer(-0.5, 0.5),
    "normal": tf.random_normal_initializer(1.0, 0.3),
    "truncated_normal": tf.truncated_normal_initializer(stddev=0.1),
    "variance_scaling": tf.variance_scaling_initializer(),
    "with a seed": tf.random_uniform_initializer(seed=3),
}


def rows_and_whole(initializer, shape, start, stop, dtype=tf.float32):
    found = trace(lambda: tf.get_variable("w", shape, dtype, initializer=initializer), seed=7)
    with tf.Graph().as_default(), tf.Session() as session:
        rows = initial_rows.build(found.initial_tensors()["w"], start, stop)
        return None if rows is None else session.run(rows), found.initial_values()["w"]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.bfloat16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("initializer", INITIALIZERS.values(), ids=INITIALIZERS)
def test_rows_have_the_bits_of_the_whole_value(initializer, dtype):
    # Rows of 7 numbers begin in the middle of the blocks of four in which the generator counts.
    rows, whole = rows_and_whole(initializer, [1001, 7], 333, 1001, dtype)
    assert rows.tobytes() == whole[333:].tobytes()


@pytest.mark.parametrize(
    "initializer",
    [
        tf.orthogonal_initializer(),
        tf.constant_initializer(np.arange(40).reshape(10, 4)),
        lambda shape, dtype, **_: tf.random.uniform(shape) * tf.constant([1.0, 2.0, 3.0, 4.0]),
    ],
    ids=["orthogonal", "an array", "a vector along the columns"],
)
def test_other_values_are_not_made_in_parts(initializer):
    assert rows_and_whole(initializer, [10, 4], 2, 5)[0] is None


def test_a_value_without_a_seed_is_not_made_in_parts():
    with tf.Graph().as_default():
        value = tf.random.uniform([4, 2])
        assert initial_rows.build(value, 0, 2) is None
