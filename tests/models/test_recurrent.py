"""LSTM and GRU against NumPy, step by step: lengths, both directions, a given state, and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models import layers

BATCH, STEPS, FEATURES, UNITS = 3, 5, 2, 4
LENGTHS = np.array([5, 1, 3])


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(0)
        yield graph


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(x, state, kernel, bias):
    c, h = state
    i, f, g, o = np.split(np.concatenate([x, h]) @ kernel + bias, 4)
    c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def gru_step(x, state, kernel, bias):
    (h,) = state
    units = len(h)
    r, u = np.split(sigmoid(np.concatenate([x, h]) @ kernel[:, : 2 * units] + bias[: 2 * units]), 2)
    g = np.tanh(np.concatenate([x, r * h]) @ kernel[:, 2 * units :] + bias[2 * units :])
    return (u * h + (1 - u) * g,)


LAYERS = {"lstm": (layers.lstm, lstm_step, 2), "gru": (layers.gru, gru_step, 1)}


def expected(step, x_btd, lengths, is_backward, states, kernel, bias):
    """Outputs and last states, one sequence and one step at a time."""
    outputs, last = np.zeros((*x_btd.shape[:2], UNITS)), []
    for row, length in enumerate(lengths):
        state = tuple(state[row] for state in states)
        for at in reversed(range(length)) if is_backward else range(length):
            state = step(x_btd[row, at], state, kernel, bias)
            outputs[row, at] = state[-1]
        last.append(state)
    return outputs, [np.stack(column) for column in zip(*last, strict=True)]


@pytest.mark.parametrize(
    ("has_lengths", "is_backward", "is_static"),
    [(False, False, True), (False, True, False), (True, False, False), (True, True, True)],
)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_equals_numpy(name, has_lengths, is_backward, is_static):
    layer, step, num_states = LAYERS[name]
    random = np.random.RandomState(0)
    x = random.normal(size=(BATCH, STEPS, FEATURES))
    states = random.normal(size=(num_states, BATCH, UNITS)) if has_lengths else np.zeros((num_states, BATCH, UNITS))
    x_in = tf.placeholder(tf.float32, [BATCH, STEPS, FEATURES] if is_static else [None, None, FEATURES])
    result = layer(
        x_in,
        UNITS,
        "layer",
        length_B=tf.constant(LENGTHS) if has_lengths else None,
        is_backward=is_backward,
        state=tuple(tf.constant(s, tf.float32) for s in states) if has_lengths else None,
    )
    assert result.output_BTU.shape.as_list()[1:] == [STEPS if is_static else None, UNITS]
    bias_value = random.normal(size=tf.trainable_variables()[1].shape)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.trainable_variables()[1].load(bias_value, session)
        result_v, (kernel, bias) = session.run([result, tf.trainable_variables()], {x_in: x})
    lengths = LENGTHS if has_lengths else [STEPS] * BATCH
    outputs, last = expected(step, x, lengths, is_backward, states, kernel, bias)
    np.testing.assert_allclose(result_v.output_BTU, outputs, rtol=1e-4, atol=1e-6)
    assert len(result_v.state) == num_states
    for got, wanted in zip(result_v.state, last, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_both_directions_are_side_by_side(name):
    layer, _, _ = LAYERS[name]
    x, lengths = tf.random.stateless_normal([BATCH, STEPS, FEATURES], [1, 2]), tf.constant(LENGTHS)
    both = layers.bidirectional(layer, x, UNITS, "both", length_B=lengths)
    with tf.variable_scope("both", reuse=True):
        forward = layer(x, UNITS, "forward", length_B=lengths).output_BTU
        backward = layer(x, UNITS, "backward", length_B=lengths, is_backward=True).output_BTU
    assert [v.op.name for v in tf.trainable_variables()] == [
        "both/forward/kernel", "both/forward/bias", "both/backward/kernel", "both/backward/bias",
    ]  # fmt: skip
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        both_v, forward_v, backward_v = session.run([both, forward, backward])
    np.testing.assert_array_equal(both_v, np.concatenate([forward_v, backward_v], axis=2))
    assert not both_v[1, 1:].any()


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_slopes_where_get_variable_gives_a_tensor(name):
    """A parameter store gives tensors too; the slope is a difference quotient in a random direction."""
    layer, _, _ = LAYERS[name]
    random = np.random.RandomState(0)
    x = tf.constant(random.normal(size=(BATCH, STEPS, FEATURES)), tf.float32)
    values = {}

    def as_tensor(getter, name, shape, **kwargs):
        del getter, kwargs
        values[name] = tf.placeholder(tf.float32, shape)
        return values[name]

    with tf.variable_scope("", custom_getter=as_tensor):
        loss = tf.reduce_sum(layers.bidirectional(layer, x, UNITS, "layer", length_B=tf.constant(LENGTHS)) ** 2)
    tensors = list(values.values())
    start = [random.normal(size=tensor.shape) for tensor in tensors]
    direction = [random.normal(size=tensor.shape) for tensor in tensors]
    gradients = tf.gradients(loss, tensors)
    with tf.Session() as session:

        def at(distance):
            moved = [s + distance * d for s, d in zip(start, direction, strict=True)]
            return dict(zip(tensors, moved, strict=True))

        slope = sum(np.sum(g * d) for g, d in zip(session.run(gradients, at(0)), direction, strict=True))
        quotient = (session.run(loss, at(1e-2)) - session.run(loss, at(-1e-2))) / 2e-2
    assert quotient == pytest.approx(slope, rel=1e-2)


def test_a_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"layer 'r' needs \[batch, time, known features\], got shape \(2, 3\)"):
        layers.lstm(tf.zeros([2, 3]), UNITS, "r")
