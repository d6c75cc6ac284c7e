"""The model with one variable that has most of the bytes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.experiments.toolkit.sized_settings import DIM, variable_rows
from ps_trainer.experiments.toolkit.skewed_model import Skewed


def test_the_first_variable_has_its_share_and_no_row_is_lost():
    assert variable_rows(1000, 4, 0.75) == [750, 83, 83, 84]
    assert sum(variable_rows(31_250, 3, 0.74)) == 31_250
    assert variable_rows(4, 4, 0.99) == [1, 1, 1, 1]


def test_every_value_is_pulled_and_has_a_gradient():
    with tf.Graph().as_default(), tf.Session() as session:
        output = Skewed(Skewed.Options(num_rows=40, num_variables=2)).build({"id": tf.constant([7, 8])}, training=True)
        variables = tf.trainable_variables()
        gradients = tf.gradients(output.loss, variables)
        session.run(tf.global_variables_initializer())
        loss, first, second = session.run([output.loss, *gradients])
    assert loss == 0.5 * 40 * DIM
    np.testing.assert_array_equal(first, np.ones([30, DIM]))
    np.testing.assert_array_equal(second, np.ones([10, DIM]))


def test_fewer_rows_than_variables_are_rejected():
    with pytest.raises(OptionError, match="num_rows=3 is too small for num_variables=4"):
        Skewed.Options(num_rows=3)
