"""Check of a model's gradients against difference quotients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf


def assert_gradients_are_slopes(loss: tf.Tensor, seed: int = 0) -> None:
    """Asserts that the gradients match the difference quotient along a random direction of all parameters.

    Args:
        loss: Deterministic scalar in the default graph, in which no session has run yet.
        seed: Seed of the direction.
    """
    random = np.random.RandomState(seed)
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    assert all(gradient is not None for gradient in gradients)
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    directions = [random.choice([-1.0, 1.0], size=variable.shape) for variable in variables]
    step = tf.placeholder(tf.float32, [])
    move = [v.assign_add(step * d.astype(np.float32)) for v, d in zip(variables, directions, strict=True)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        slope = sum(np.sum(g * d) for g, d in zip(session.run(gradients), directions, strict=True))
        losses = []
        for distance in (1e-5, -2e-5):
            session.run(move, {step: distance})
            losses.append(session.run(loss))
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(slope, rel=0.05, abs=0.05)
