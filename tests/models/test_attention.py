"""Layers of transformers against NumPy, with whole and with partitioned variables."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models import layers

RANDOM = np.random.RandomState(0)
X = RANDOM.normal(size=(2, 5, 6)).astype(np.float32)
MEMORY = RANDOM.normal(size=(2, 4, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(0)
        yield graph


def run(fetches):
    """Fetches, and the variables by name with random values; partitioned variables are joined again."""
    random = np.random.RandomState(1)
    with tf.Session() as session:
        values = {}
        for variable in tf.global_variables():
            value = random.normal(scale=0.5, size=variable.shape)
            variable.load(value, session)
            name = variable.op.name.split("/part_")[0].removeprefix("model/")
            values[name] = np.concatenate([values[name], value]) if name in values else value
        return session.run(fetches), values


def dense_of(values, name, x):
    return x @ values[f"{name}/kernel"] + values[f"{name}/bias"]


def norm_of(values, name, x, epsilon=1e-6):
    centered = x - x.mean(axis=-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + epsilon)
    return scaled * values[f"{name}/gamma"] + values[f"{name}/beta"]


def attention_of(values, name, x, memory, num_heads, mask=None):
    """The attention of one head, one example after the other."""
    query, key, value = (
        dense_of(values, f"{name}/{part}", of) for part, of in (("query", x), ("key", memory), ("value", memory))
    )
    size = x.shape[-1] // num_heads
    seen = np.zeros_like(query)
    for b in range(len(x)):
        for head in range(num_heads):
            own = slice(head * size, (head + 1) * size)
            score = query[b, :, own] @ key[b, :, own].T / np.sqrt(size)
            share = np.exp(score) if mask is None else np.exp(score) * np.broadcast_to(mask[b], score.shape)
            seen[b, :, own] = share / share.sum(axis=1, keepdims=True) @ value[b, :, own]
    return dense_of(values, f"{name}/output", seen)


@pytest.mark.parametrize("num_parts", [1, 2])
@pytest.mark.parametrize("shape", [(2, 5, 6), (2, 3, 5, 6)])
def test_dense_and_layer_norm_act_on_the_last_dimension(num_parts, shape):
    x = np.random.RandomState(0).normal(3, 2, size=shape).astype(np.float32)
    with tf.variable_scope("model", partitioner=tf.fixed_size_partitioner(num_parts) if num_parts > 1 else None):
        fetches = [layers.dense(tf.constant(x), 4, "dense"), layers.layer_norm(tf.constant(x), "norm", epsilon=0.1)]
    assert fetches[0].shape.as_list() == [*shape[:-1], 4]
    (dense, norm), values = run(fetches)
    np.testing.assert_allclose(dense, dense_of(values, "dense", x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norm, norm_of(values, "norm", x, 0.1), rtol=1e-4, atol=1e-5)


def test_layer_norm_starts_with_mean_0_and_variance_1():
    norm = layers.layer_norm(tf.constant(X), "norm")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        norm_v = session.run(norm)
    np.testing.assert_allclose(norm_v.mean(axis=-1), 0, atol=1e-6)
    np.testing.assert_allclose(norm_v.std(axis=-1), 1, rtol=1e-4)


@pytest.mark.parametrize("num_heads", [1, 2, 3])
def test_attention_equals_numpy(num_heads):
    y = layers.multi_head_attention(tf.constant(X), tf.constant(MEMORY), num_heads, "a")
    y_v, values = run(y)
    assert {name.split("/")[1] for name in values} == {"query", "key", "value", "output"}
    np.testing.assert_allclose(y_v, attention_of(values, "a", X, MEMORY, num_heads), rtol=1e-4, atol=1e-5)


def test_masked_attention_equals_numpy():
    ids = np.array([[5, 3, 0, 0], [1, 0, 2, 4]])
    is_word = ids[:, np.newaxis] != 0
    causal = np.tril(np.ones((5, 5), bool))
    padded = layers.multi_head_attention(
        tf.constant(X), tf.constant(MEMORY), 2, "memory", layers.padding_mask(tf.constant(ids))
    )
    ordered = layers.multi_head_attention(tf.constant(X), tf.constant(X), 2, "self", layers.causal_mask(5))
    (padded_v, ordered_v), values = run([padded, ordered])
    np.testing.assert_allclose(padded_v, attention_of(values, "memory", X, MEMORY, 2, is_word), rtol=1e-4, atol=1e-5)
    wanted = attention_of(values, "self", X, X, 2, np.stack([causal, causal]))
    np.testing.assert_allclose(ordered_v, wanted, rtol=1e-4, atol=1e-5)


def test_a_position_with_a_full_mask_sees_the_mean_of_all():
    nowhere = tf.zeros([1, 1, 1, 4], tf.bool)
    y = layers.multi_head_attention(tf.constant(X), tf.constant(MEMORY), 2, "a", nowhere)
    y_v, values = run(y)
    mean = dense_of(values, "a/value", MEMORY).mean(axis=1, keepdims=True)
    wanted = dense_of(values, "a/output", np.broadcast_to(mean, X.shape))
    np.testing.assert_allclose(y_v, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_memory", [False, True])
def test_a_block_equals_numpy(has_memory):
    options = layers.BlockOptions(num_heads=2, hidden=7)
    memory = layers.Memory(tf.constant(MEMORY)) if has_memory else None
    y = layers.transformer_block(tf.constant(X), options, "b", training=True, mask=layers.causal_mask(5), memory=memory)
    y_v, values = run(y)
    causal = np.tril(np.ones((2, 5, 5), bool))
    normed = norm_of(values, "b/norm", X)
    x = X + attention_of(values, "b/attention", normed, normed, 2, causal)
    if has_memory:
        x += attention_of(values, "b/memory_attention", norm_of(values, "b/memory_norm", x), MEMORY, 2)
    hidden = np.maximum(dense_of(values, "b/hidden", norm_of(values, "b/hidden_norm", x)), 0)
    np.testing.assert_allclose(y_v, x + dense_of(values, "b/out", hidden), rtol=1e-3, atol=1e-4)


def test_a_position_does_not_depend_on_those_after_it():
    x = tf.constant(X)
    options = layers.BlockOptions(num_heads=2, hidden=4)
    y = layers.transformer_block(x, options, "b", training=False, mask=layers.causal_mask(5))
    gradients = [tf.gradients(y[:, at], x)[0] for at in range(5)]
    gradients_v, _ = run(gradients)
    for at, gradient in enumerate(gradients_v):
        assert np.abs(gradient[:, : at + 1]).min() > 0
        assert not gradient[:, at + 1 :].any()


def test_dropout_of_a_block_acts_in_training_only():
    blocks = []
    options = layers.BlockOptions(num_heads=2, hidden=4, dropout_rate=0.5)
    for training in (True, False):
        with tf.variable_scope("", reuse=not training):
            blocks.append(layers.transformer_block(tf.constant(X), options, "b", training=training))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second = (session.run(blocks) for _ in range(2))
    assert np.any(first[0] != second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_positions_are_sines_and_cosines():
    positions, _ = run(layers.sinusoidal_positions(50, 6))
    assert positions.shape == (50, 6)
    for t in (0, 1, 49):
        angles = t / 10000 ** np.array([0, 2 / 6, 4 / 6])
        np.testing.assert_allclose(positions[t], [*np.sin(angles), *np.cos(angles)], atol=1e-5)


def test_a_length_that_only_the_batch_knows_gives_the_same_positions_and_mask():
    length = tf.placeholder_with_default(tf.constant(7), [])
    for of in (layers.causal_mask, lambda length: layers.sinusoidal_positions(length, 6)):
        known, unknown = (run(of(given))[0] for given in (7, length))
        np.testing.assert_allclose(unknown, known, atol=1e-6)


def test_contradicting_sizes_are_rejected():
    with pytest.raises(ValueError, match="attention 'a': num_heads=4 does not divide the 6 features"):
        layers.multi_head_attention(tf.constant(X), tf.constant(X), 4, "a")
    with pytest.raises(ValueError, match="even number of features, got 5"):
        layers.sinusoidal_positions(3, 5)
