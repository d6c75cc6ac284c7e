"""Gradients concatenated in few vectors, and taken out of sums of such vectors."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.updates.fused_gradients import FusedGradients

import tensorflow.compat.v1 as tf  # isort: skip - the package sets up its environment first

SHAPES = ([3, 4], [], [5])
DTYPES = (np.float32, np.float64, np.float32)


def gradients(factor):
    random = np.random.RandomState(1)
    return [np.asarray(factor * random.randn(*shape), dtype) for shape, dtype in zip(SHAPES, DTYPES, strict=True)]


@pytest.mark.parametrize("max_bytes", [1, 16, 10**6])
def test_sums_come_back_in_shape_with_the_number_of_their_workers(max_bytes):
    with tf.Graph().as_default(), tf.Session() as session:
        workers = [
            FusedGradients([tf.constant(value) for value in gradients(factor)], index, 4, max_bytes)
            for index, factor in [(0, 1), (3, 2), (1, 10)]
        ]
        sums = [tf.add_n(vectors) for vectors in zip(*(worker.vectors for worker in workers), strict=True)]
        who, values = session.run(workers[0].split(sums))
    assert who.tolist() == [1, 1, 0, 1]
    for value, gradient in zip(values, gradients(1), strict=True):
        assert value.dtype == gradient.dtype
        np.testing.assert_allclose(value, (1 + 2 + 10) * gradient, rtol=1e-6)


def test_no_vector_is_longer_than_allowed_and_each_type_has_its_own():
    with tf.Graph().as_default():
        fused = FusedGradients([tf.constant(value) for value in gradients(1)], 0, 2, 16)
    # 3·4 + 5 numbers and the 2 workers, in parts of at most 16/4, and one vector of float64.
    assert len(fused.vectors) == -(-(3 * 4 + 5 + 2) // 4) + 1
    assert max(size * dtype.size for size, dtype in zip(fused.sizes, fused.dtypes, strict=True)) <= 16
    assert fused.num_bytes == (3 * 4 + 5 + 2) * 4 + 1 * 8


def test_without_gradients_the_workers_are_still_named():
    with tf.Graph().as_default(), tf.Session() as session:
        fused = FusedGradients([], 1, 2, 16)
        who, values = session.run(fused.split(fused.vectors))
    assert (who.tolist(), values) == ([0, 1], [])
