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
    use_bias: bool = True,
    kernel_initializer: Callable | None = None,
) -> tf.Tensor:
    """Two-dimensional convolution.

    Variables: `<name>/kernel` [kernel_size, kernel_size, C, filters]; `<name>/bias` [filters], zeros.

    Args:
        x_BHWC: float32 [B, H, W, C]; C is known when the graph is built.
        filters: number of output channels.
        kernel_size: height and width of the kernel.
        name: variable scope.
        strides: step in both directions.
        padding: "SAME" or "VALID", as in `tf.nn.conv2d`.
        activation: such as `tf.nn.relu`; None for none.
        use_bias: False where batch normalisation follows, which takes every bias away again.
        kernel_initializer: None = Glorot uniform.

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
        kernel = tf.get_variable(
            "kernel", kernel_shape, initializer=kernel_initializer or tf.glorot_uniform_initializer()
        )
        y_BHWC = tf.nn.conv2d(x_BHWC, kernel, strides=strides, padding=padding)
        if use_bias:
            y_BHWC = tf.nn.bias_add(y_BHWC, tf.get_variable("bias", [filters], initializer=tf.zeros_initializer()))
        return y_BHWC if activation is None else activation(y_BHWC)


def batch_norm(x_BHWC: tf.Tensor, name: str, training: bool, momentum: float = 0.9, epsilon: float = 1e-5) -> tf.Tensor:
    """Batch normalisation: `gamma * (x - mean) / sqrt(variance + epsilon) + beta`, by channel.

    In training mean and variance are those of the worker's own batch; in evaluation they are moving averages:

        moving <- momentum * moving + (1 - momentum) * of the batch

    Every worker adds its batches to the same moving averages, which lie on the parameter servers, by an assignment
    of the difference, so that none is overwritten by another: with n workers they forget n times as fast per step of
    a worker, and stand for the data of all of them. The variance is the unbiased one, B * H * W / (B * H * W - 1)
    times that of the batch. The assignments are in the collection UPDATE_OPS, which training runs with each step.

    Variables: `<name>/gamma` [C], ones; `<name>/beta` [C], zeros; `<name>/moving_mean` [C], zeros, and
    `<name>/moving_variance` [C], ones, both not trained.

    Source: S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift", ICML 2015.

    Args:
        x_BHWC: float32 [B, H, W, C]; C is known when the graph is built.
        name: variable scope.
        training: whether the batch's own mean and variance are used, and the averages moved.
        momentum: share of the old value that a moving average keeps.
        epsilon: added to the variance.

    Returns:
        float32 [B, H, W, C].

    Raises:
        ValueError: `x_BHWC` is not of rank 4, or C is unknown.
    """
    if x_BHWC.shape.rank != 4 or x_BHWC.shape[3] is None:
        raise ValueError(
            f"batch norm {name!r} needs [batch, height, width, channels] with known channels, got shape {x_BHWC.shape}"
        )
    with tf.variable_scope(name) as scope:
        size = [int(x_BHWC.shape[3])]
        gamma_C = tf.get_variable("gamma", size, initializer=tf.ones_initializer())
        beta_C = tf.get_variable("beta", size, initializer=tf.zeros_initializer())
        scope.set_partitioner(None)  # a partitioned variable cannot be assigned as a whole
        mean = tf.get_variable("moving_mean", size, initializer=tf.zeros_initializer(), trainable=False)
        variance = tf.get_variable("moving_variance", size, initializer=tf.ones_initializer(), trainable=False)
        scale_C, offset_C = tf.convert_to_tensor(gamma_C), tf.convert_to_tensor(beta_C)
        if not training:
            y_BHWC, _, _ = tf.nn.fused_batch_norm(
                x_BHWC, scale_C, offset_C, mean=mean, variance=variance, epsilon=epsilon, is_training=False
            )
            return y_BHWC
        y_BHWC, mean_C, variance_C = tf.nn.fused_batch_norm(x_BHWC, scale_C, offset_C, epsilon=epsilon)
        for moving, value_C in ((mean, mean_C), (variance, variance_C)):
            # Where the variable is, so that the batch's value travels and nothing else.
            with tf.device(moving.device):
                update_op = moving.assign_sub((moving.read_value() - value_C) * (1 - momentum), read_value=False)
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update_op)
        return y_BHWC


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


def global_average_pool(x_BHWC: tf.Tensor) -> tf.Tensor:
    """[B, C]: the mean over all pixels."""
    return tf.reduce_mean(x_BHWC, axis=[1, 2])


def dropout(x: tf.Tensor, rate: float, training: bool) -> tf.Tensor:
    """In training sets a share `rate` of the values to 0 and multiplies the rest by 1 / (1 - rate).

    Args:
        x: any shape, float32.
        rate: 0 <= rate < 1.
        training: False leaves `x` as it is.
    """
    return tf.nn.dropout(x, rate=rate) if training and rate > 0 else x


def embedding(name: str, vocab_size: int, dim: int, ids: tf.Tensor, initializer: Callable | None = None) -> tf.Tensor:
    """Rows of a trainable table [vocab_size, dim], one per id.

    Each distinct id of the batch is looked up once, so that with the table on parameter servers one row
    per distinct id travels to the worker, and one gradient row per distinct id travels back: the
    gradient of the table is a `tf.IndexedSlices` whose indices do not repeat.

    Args:
        name: variable name of the table.
        vocab_size: number of rows.
        dim: length of a row.
        ids: int32 or int64, any shape, 0 <= id < vocab_size.
        initializer: of the table; None = normal with deviation dim ** -0.5.

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
        initializer=initializer or tf.truncated_normal_initializer(stddev=dim**-0.5),
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


def weight_decay(rate: float) -> tf.Tensor:
    """`rate / 2` times the sum of the squares of all that is trained and has two dimensions or more: of no bias.

    To be added to the loss, after all layers have been built. An embedding table is among them; its gradient is then
    as large as the table.
    """
    kernels = [kernel for kernel in tf.trainable_variables() if kernel.shape.rank > 1]
    return rate * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])


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
