"""Layers for models: functions over `tf.get_variable` and `tf.nn`.

A variable is created by `tf.get_variable` under the caller's variable scope, and only its value is used:
the parameter store hands out worker-side tensors or partitioned variables in its place. Initial values
carry no seed of their own; the graph's seed or the parameter store decides them.

Shape suffixes: B batch, H height, W width, C channels, D features, U units, N classes, R distinct ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow.compat.v1 as tf

EMBEDDING_TABLES = "embedding_tables"
"""Collection of the tables that `embedding` makes; the parameter store keeps these as sparse tables."""


class ModelOutput(NamedTuple):
    """What `build` of a model gives.

    Attributes:
        loss: scalar float32, the mean over the batch; what training makes small.
        predictions: [B, ...]; a classifier gives the probability of each class, float32 [B, N].
        metrics: name -> float32 [B], one value per example; its mean over the data is what is reported.
    """

    loss: tf.Tensor
    predictions: tf.Tensor
    metrics: dict[str, tf.Tensor]


def dense(x_BD: tf.Tensor, units: int, name: str, activation: Callable | None = None) -> tf.Tensor:
    """`activation(x @ kernel + bias)`.

    Variables: `<name>/kernel` [D, U], Glorot uniform; `<name>/bias` [U], zeros.

    Args:
        x_BD: float32 [B, D]; D is known when the graph is built.
        units: U.
        name: variable scope.
        activation: such as `tf.nn.relu`; None for none.

    Returns:
        float32 [B, U].

    Raises:
        ValueError: `x_BD` is not of rank 2, or D is unknown.
    """
    if x_BD.shape.rank != 2 or x_BD.shape[1] is None:
        raise ValueError(f"dense layer {name!r} needs [batch, features] with known features, got shape {x_BD.shape}")
    with tf.variable_scope(name):
        kernel_DU = tf.get_variable("kernel", [int(x_BD.shape[1]), units], initializer=tf.glorot_uniform_initializer())
        bias_U = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
        y_BU = tf.nn.bias_add(tf.matmul(x_BD, kernel_DU), bias_U)
        return y_BU if activation is None else activation(y_BU)


def conv2d(
    x_BHWC: tf.Tensor,
    filters: int,
    kernel_size: int,
    name: str,
    strides: int = 1,
    padding: str = "SAME",
    activation: Callable | None = None,
) -> tf.Tensor:
    """Two-dimensional convolution with bias.

    Variables: `<name>/kernel` [kernel_size, kernel_size, C, filters], Glorot uniform; `<name>/bias`
    [filters], zeros.

    Args:
        x_BHWC: float32 [B, H, W, C]; C is known when the graph is built.
        filters: number of output channels.
        kernel_size: height and width of the kernel.
        name: variable scope.
        strides: step in both directions.
        padding: "SAME" or "VALID", as in `tf.nn.conv2d`.
        activation: such as `tf.nn.relu`; None for none.

    Returns:
        float32 [B, H', W', filters]; H' = ceil(H / strides) for "SAME".

    Raises:
        ValueError: `x_BHWC` is not of rank 4, or C is unknown.
    """
    if x_BHWC.shape.rank != 4 or x_BHWC.shape[3] is None:
        raise ValueError(
            f"convolution {name!r} needs [batch, height, width, channels] with known channels, got shape {x_BHWC.shape}"
        )
    with tf.variable_scope(name):
        kernel_shape = [kernel_size, kernel_size, int(x_BHWC.shape[3]), filters]
        kernel = tf.get_variable("kernel", kernel_shape, initializer=tf.glorot_uniform_initializer())
        bias = tf.get_variable("bias", [filters], initializer=tf.zeros_initializer())
        y_BHWC = tf.nn.bias_add(tf.nn.conv2d(x_BHWC, kernel, strides=strides, padding=padding), bias)
        return y_BHWC if activation is None else activation(y_BHWC)


def max_pool2d(x_BHWC: tf.Tensor, pool_size: int = 2, strides: int = 2, padding: str = "SAME") -> tf.Tensor:
    """Maximum over windows of `pool_size` x `pool_size`; "SAME" keeps the last, incomplete window."""
    return tf.nn.max_pool2d(x_BHWC, ksize=pool_size, strides=strides, padding=padding)


def flatten(x: tf.Tensor) -> tf.Tensor:
    """[B, ...] as [B, D], D the product of the other dimensions.

    Raises:
        ValueError: a dimension other than the batch is unknown when the graph is built.
    """
    if x.shape.rank is None or not x.shape[1:].is_fully_defined():
        raise ValueError(f"flatten needs every dimension but the batch known, got shape {x.shape}")
    return tf.reshape(x, [-1, math.prod(x.shape[1:].as_list())])


def dropout(x: tf.Tensor, rate: float, training: bool) -> tf.Tensor:
    """In training sets a share `rate` of the values to 0 and multiplies the rest by 1 / (1 - rate).

    Args:
        x: any shape, float32.
        rate: 0 <= rate < 1.
        training: False leaves `x` as it is.
    """
    return tf.nn.dropout(x, rate=rate) if training and rate > 0 else x


def embedding(name: str, vocab_size: int, dim: int, ids: tf.Tensor) -> tf.Tensor:
    """Rows of a trainable table [vocab_size, dim], one per id.

    Each distinct id of the batch is looked up once, so that with the table on parameter servers one row
    per distinct id travels to the worker, and one gradient row per distinct id travels back: the
    gradient of the table is a `tf.IndexedSlices` whose indices do not repeat.

    Args:
        name: variable name of the table; its initial values are normal with deviation dim ** -0.5.
        vocab_size: number of rows.
        dim: length of a row.
        ids: int32 or int64, any shape, 0 <= id < vocab_size.

    Returns:
        float32, shape of `ids` + [dim].

    Raises:
        ValueError: `ids` are not int32 or int64.
        tf.errors.InvalidArgumentError: when it runs, an id is out of range; names the table. TensorFlow's
            own lookup names no table, and on a GPU it gives rows of zeros.
    """
    if ids.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"embedding {name!r}: ids must be int32 or int64, got {ids.dtype.name}")
    table = tf.get_variable(
        name,
        [vocab_size, dim],
        initializer=tf.truncated_normal_initializer(stddev=dim**-0.5),
        collections=[tf.GraphKeys.GLOBAL_VARIABLES, EMBEDDING_TABLES],
    )
    scope = tf.get_variable_scope().name
    with tf.name_scope(f"{name}_lookup"):
        ids_R, position = tf.unique(tf.reshape(ids, [-1]))
        with tf.control_dependencies([_assert_ids(f"{scope}/{name}" if scope else name, vocab_size, ids_R)]):
            ids_R = tf.identity(ids_R)
        # A partitioned table is cut into ranges of consecutive rows, which is what "div" reads. The default,
        # "mod", takes row i from part i % parts: the wrong rows, without an error.
        rows_RD = tf.nn.embedding_lookup(table, ids_R, partition_strategy="div")
        rows = tf.gather(rows_RD, position)
        return tf.reshape(rows, tf.concat([tf.shape(ids), [dim]], axis=0), name="rows")


def classifier_output(logits_BN: tf.Tensor, label_B: tf.Tensor) -> ModelOutput:
    """Mean softmax cross-entropy, class probabilities, and "accuracy".

    Args:
        logits_BN: float32 [B, N].
        label_B: int64 [B], 0 <= label < N; another label ends the run with an error (on a CPU) or a loss of NaN.
    """
    loss_B = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_B, logits=logits_BN)
    is_right_B = tf.equal(tf.argmax(logits_BN, axis=1, output_type=label_B.dtype), label_B)
    return ModelOutput(
        loss=tf.reduce_mean(loss_B),
        predictions=tf.nn.softmax(logits_BN),
        metrics={"accuracy": tf.cast(is_right_B, tf.float32)},
    )


def _assert_ids(table_name: str, vocab_size: int, ids_R: tf.Tensor) -> tf.Operation:
    lowest, highest = tf.reduce_min(ids_R), tf.reduce_max(ids_R)
    is_valid = tf.logical_and(lowest >= 0, highest < vocab_size)
    message = f"embedding table {table_name} has the ids 0 to {vocab_size - 1}; lowest and highest id of the batch:"
    # The raw op, because tf.debugging.Assert wraps it into a tf.cond.
    return tf.raw_ops.Assert(condition=is_valid, data=[tf.constant(message), lowest, highest])
