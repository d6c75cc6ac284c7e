"""Layers against NumPy, with whole and with partitioned variables."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models import layers
from ps_trainer.store import trace

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VOCAB, DIM = 7, 3  # 7 rows divide into 3 parts as 3 + 2 + 2


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(0)
        yield graph


def _partitioned(num_parts):
    """A variable scope whose variables are divided into `num_parts` along their first dimension."""
    partitioner = tf.fixed_size_partitioner(num_parts) if num_parts > 1 else None
    return tf.variable_scope("model", partitioner=partitioner)


def _run(fetches, feed_dict=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feed_dict)


def _all_rows():
    """The variables made so far, joined along the first dimension: the whole table, partitioned or not."""
    return tf.concat(tf.global_variables(), axis=0)


@pytest.mark.parametrize("num_parts", [1, 2])
def test_dense_equals_numpy(num_parts):
    x = np.random.RandomState(0).normal(size=(4, 5)).astype(np.float32)
    with _partitioned(num_parts):
        y = layers.dense(tf.constant(x), 6, "layer", activation=tf.nn.relu)
    bias = tf.concat([v for v in tf.global_variables() if "bias" in v.name], axis=0)
    kernel = tf.concat([v for v in tf.global_variables() if "kernel" in v.name], axis=0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for v in tf.global_variables():
            if "bias" in v.name:
                v.load(np.linspace(-1, 1, v.shape[0]), session)
        y_v, kernel_v, bias_v = session.run([y, kernel, bias])
    assert (kernel_v.shape, bias_v.shape) == ((5, 6), (6,))
    np.testing.assert_allclose(y_v, np.maximum(x @ kernel_v + bias_v, 0), rtol=1e-5, atol=1e-6)


def test_dense_starts_glorot_uniform_without_bias():
    layers.dense(tf.zeros([1, 300]), 200, "layer")
    kernel, bias = _run(tf.global_variables())
    limit = np.sqrt(6 / (300 + 200))
    assert 0.99 * limit < np.abs(kernel).max() <= limit
    np.testing.assert_allclose(kernel.std(), limit / np.sqrt(3), rtol=0.01)
    assert not bias.any()


def test_variables_are_named_after_the_layer():
    with tf.variable_scope("net"):
        layers.conv2d(tf.zeros([1, 4, 4, 2]), 3, 5, "conv")
        layers.dense(tf.zeros([1, 2]), 3, "out")
        layers.embedding("items", VOCAB, DIM, tf.zeros([1], tf.int64))
    assert {v.op.name: v.shape.as_list() for v in tf.trainable_variables()} == {
        "net/conv/kernel": [5, 5, 2, 3],
        "net/conv/bias": [3],
        "net/out/kernel": [2, 3],
        "net/out/bias": [3],
        "net/items": [VOCAB, DIM],
    }


def test_layers_work_where_get_variable_gives_a_tensor():
    def as_tensor(getter, *args, **kwargs):
        return tf.identity(getter(*args, **kwargs))

    with tf.variable_scope("", custom_getter=as_tensor):
        x = layers.conv2d(tf.ones([2, 4, 4, 1]), 3, 3, "conv")
        y = layers.dense(layers.flatten(x), 5, "out")
        rows = layers.embedding("items", VOCAB, DIM, tf.constant([[1, 1], [0, 2]]))
    y_v, rows_v = _run([y, rows])
    assert (y_v.shape, rows_v.shape) == ((2, 5), (2, 2, DIM))


@pytest.mark.parametrize(("padding", "strides"), [("SAME", 1), ("VALID", 1), ("SAME", 2)])
def test_conv2d_equals_numpy(padding, strides):
    x = np.random.RandomState(0).normal(size=(2, 5, 6, 2)).astype(np.float32)
    y = layers.conv2d(tf.constant(x), 4, 3, "conv", strides=strides, padding=padding)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        kernel, bias = tf.global_variables()
        bias.load([0.5, -0.5, 1, 2], session)
        y_v, kernel_v = session.run([y, kernel])
    if padding == "SAME":
        out = [-(-size // strides) for size in x.shape[1:3]]
        total = [max((n - 1) * strides + 3 - size, 0) for n, size in zip(out, x.shape[1:3], strict=True)]
        x = np.pad(x, [(0, 0), *((t // 2, t - t // 2) for t in total), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::strides, ::strides]
    expected = np.einsum("bhwcij,ijcf->bhwf", windows, kernel_v) + [0.5, -0.5, 1, 2]
    np.testing.assert_allclose(y_v, expected, rtol=1e-4, atol=1e-5)


def test_conv2d_without_bias_has_only_a_kernel_with_the_given_initial_value():
    layers.conv2d(tf.zeros([1, 4, 4, 2]), 3, 3, "layer", use_bias=False, kernel_initializer=tf.ones_initializer())
    (kernel,) = _run(tf.global_variables())
    np.testing.assert_array_equal(kernel, np.ones((3, 3, 2, 3)))


@pytest.mark.parametrize("num_parts", [1, 2])
def test_batch_norm_equals_numpy_in_training_and_evaluation(num_parts):
    x = np.random.RandomState(0).normal(2, 3, size=(4, 3, 2, 5)).astype(np.float32)
    with _partitioned(num_parts):
        y = layers.batch_norm(tf.constant(x), "bn", training=True, momentum=0.8, epsilon=1e-3)
    with _partitioned(num_parts) as scope:
        scope.reuse_variables()
        y_later = layers.batch_norm(tf.constant(x), "bn", training=False, epsilon=1e-3)
    moving = [v for v in tf.global_variables() if "moving" in v.op.name]
    gamma = [v for v in tf.global_variables() if "gamma" in v.op.name]
    assert moving == [v for v in tf.global_variables() if v not in tf.trainable_variables()]
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    unbiased = variance * 24 / 23
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for v in gamma:
            v.load(np.full(v.shape, 2, np.float32), session)
        wanted = 2 * (x - mean) / np.sqrt(variance + 1e-3)
        np.testing.assert_allclose(session.run(y), wanted, rtol=1e-4, atol=1e-5)
        for step in (1, 2):
            session.run(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
            kept = 0.8**step
            moved = [(1 - kept) * mean, kept + (1 - kept) * unbiased]
            np.testing.assert_allclose(session.run(moving), moved, rtol=1e-4)
        wanted = 2 * (x - moved[0]) / np.sqrt(moved[1] + 1e-3)
        np.testing.assert_allclose(session.run(y_later), wanted, rtol=1e-4, atol=1e-5)


def test_weight_decay_counts_variables_of_two_dimensions():
    layers.batch_norm(layers.conv2d(tf.zeros([1, 4, 4, 2]), 3, 3, "conv"), "bn", training=True)
    layers.dense(tf.zeros([1, 4]), 2, "dense")
    values = {variable.op.name: variable for variable in tf.trainable_variables()}
    squares, kernels = _run([layers.weight_decay(0.1), [values["conv/kernel"], values["dense/kernel"]]])
    assert squares == pytest.approx(0.05 * sum(np.sum(kernel**2) for kernel in kernels), rel=1e-5)


def test_global_average_pool_is_the_mean_over_pixels():
    x = np.random.RandomState(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_allclose(_run(layers.global_average_pool(tf.constant(x))), x.mean(axis=(1, 2)), rtol=1e-5)


def test_max_pool_keeps_the_incomplete_window():
    x = tf.reshape(tf.range(9, dtype=tf.float32), [1, 3, 3, 1])
    np.testing.assert_array_equal(_run(layers.max_pool2d(x))[0, :, :, 0], [[4, 5], [7, 8]])


def test_flatten_keeps_the_batch():
    images = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    x = tf.placeholder(tf.int64, [None, 3, 4, 5])
    flat = layers.flatten(x)
    assert flat.shape.as_list() == [None, 60]
    np.testing.assert_array_equal(_run(flat, {x: images}), images.reshape(2, 60))


def test_dropout_acts_in_training_only():
    x = tf.ones([10_000])
    dropped, kept, without = _run(
        [
            layers.dropout(x, 0.25, training=True),
            layers.dropout(x, 0.25, training=False),
            layers.dropout(x, 0.0, training=True),
        ]
    )
    assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)}
    # Binomial: standard deviation sqrt(0.25 * 0.75 / 10000) = 0.0043.
    assert abs((dropped == 0).mean() - 0.25) < 5 * 0.0044
    assert kept.min() == without.min() == 1


def test_wrong_ranks_are_rejected_with_the_layer_and_the_shape():
    with pytest.raises(ValueError, match=r"dense layer 'out' needs \[batch, …, features\].*\(4,\)"):
        layers.dense(tf.zeros([4]), 5, "out")
    with pytest.raises(ValueError, match=r"dense layer 'out' needs .* known features"):
        layers.dense(tf.placeholder(tf.float32, [2, 3, None]), 5, "out")
    with pytest.raises(ValueError, match=r"convolution 'conv' needs .*\(2, 3\)"):
        layers.conv2d(tf.zeros([2, 3]), 5, 3, "conv")
    with pytest.raises(ValueError, match="flatten needs static dimensions"):
        layers.flatten(tf.placeholder(tf.float32, [2, None, 3]))


def test_classifier_output_equals_numpy():
    logits = np.random.RandomState(0).normal(size=(5, 4)).astype(np.float32)
    labels = np.array([0, 3, 1, 1, 2])
    output = _run(layers.classifier_output(tf.constant(logits), tf.constant(labels)))
    probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(output.predictions, probability, rtol=1e-5)
    np.testing.assert_allclose(output.loss, -np.log(probability[np.arange(5), labels]).mean(), rtol=1e-5)
    np.testing.assert_array_equal(output.metrics["accuracy"], (logits.argmax(axis=1) == labels).astype(np.float32))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_embedding_equals_numpy_with_repeated_ids(num_parts, dtype):
    ids = np.array([[6, 0, 3], [3, 2, 6]], dtype)
    with _partitioned(num_parts):
        rows = layers.embedding("items", VOCAB, DIM, tf.constant(ids))
    assert len(tf.global_variables()) == num_parts
    assert rows.shape.as_list() == [2, 3, DIM]
    rows_v, table = _run([rows, _all_rows()])
    assert table.shape == (VOCAB, DIM)
    np.testing.assert_array_equal(rows_v, table[ids])


@pytest.mark.parametrize("num_parts", [1, 3])
def test_embedding_reads_every_row_from_its_own_part(num_parts):
    with _partitioned(num_parts):
        rows = layers.embedding("items", VOCAB, DIM, tf.range(VOCAB))
    rows_v, table = _run([rows, _all_rows()])
    np.testing.assert_array_equal(rows_v, table)


@pytest.mark.parametrize("num_parts", [1, 3])
def test_embedding_of_no_ids_is_empty(num_parts):
    with _partitioned(num_parts):
        rows = layers.embedding("items", VOCAB, DIM, tf.zeros([0, 2], tf.int64))
    assert _run(rows).shape == (0, 2, DIM)


@pytest.mark.parametrize("num_parts", [1, 3])
def test_embedding_gradient_is_sparse_with_each_row_once(num_parts):
    ids = np.array([6, 0, 6, 3, 6, 0])
    weights = np.arange(1, len(ids) * DIM + 1, dtype=np.float32).reshape(-1, DIM)
    with _partitioned(num_parts):
        rows = layers.embedding("items", VOCAB, DIM, tf.constant(ids))
    parts = tf.trainable_variables()
    gradients = tf.gradients(tf.reduce_sum(rows * weights), parts)
    assert all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients)
    expected = np.zeros((VOCAB, DIM), np.float32)
    np.add.at(expected, ids, weights)
    got = np.zeros_like(expected)
    begin = 0
    for part, gradient in zip(parts, _run(gradients), strict=True):
        assert len(set(gradient.indices)) == len(gradient.indices)
        got[begin + gradient.indices] = gradient.values
        begin += int(part.shape[0])
    np.testing.assert_array_equal(got, expected)
    touched = sum(len(gradient.indices) for gradient in _run(gradients))
    assert touched == len(set(ids))


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("bad", [-1, VOCAB, VOCAB + 5, -100])
def test_embedding_rejects_ids_out_of_range_and_names_table_and_id(num_parts, bad):
    ids = tf.placeholder(tf.int64, [None])
    with _partitioned(num_parts):
        rows = layers.embedding("items", VOCAB, DIM, ids)
    low, high = min(bad, 2), max(bad, 2)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"table model/items has the ids 0 to 6; .*\[{low}\] \[{high}\]"
    ):
        _run(rows, {ids: [2, bad]})


def test_embedding_rejects_ids_that_are_not_integers():
    with pytest.raises(ValueError, match="embedding 'items': ids must be int32 or int64, got float32"):
        layers.embedding("items", VOCAB, DIM, tf.zeros([2]))


@pytest.mark.parametrize("num_parts", [1, 3])
def test_embedding_table_is_marked_trainable_and_global(num_parts):
    with _partitioned(num_parts):
        layers.embedding("items", VOCAB, DIM, tf.zeros([1], tf.int64))
    names = [v.name for v in tf.global_variables()]
    assert len(names) == num_parts
    assert [v.name for v in tf.trainable_variables()] == names
    assert [v.name for v in tf.get_collection(layers.EMBEDDING_TABLES)] == names


def test_the_store_uses_the_same_mark_of_embedding_tables():
    assert layers.EMBEDDING_TABLES == trace.EMBEDDING_TABLES


def test_the_guide_to_embeddings_compares_a_table_with_a_plain_variable():
    page = (ROOT / "docs" / "howto" / "embeddings.md").read_text(encoding="utf-8")
    example: dict[str, type] = {}
    exec(re.search(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)[1], example)
    tables = {}
    for name in ("SparseWords", "DenseWords"):
        with tf.Graph().as_default() as graph:
            batch = {"center": tf.zeros([4], tf.int64), "context": tf.zeros([4, 2], tf.int64)}
            example[name]().build(batch, training=True)
            assert tf.trainable_variables()[0].op.name == "words"
            tables[name] = [variable.op.name for variable in graph.get_collection(layers.EMBEDDING_TABLES)]
    assert tables == {"SparseWords": ["words"], "DenseWords": []}
