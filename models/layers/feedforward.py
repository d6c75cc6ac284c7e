"""Dense layers, layer normalisation, dropout and GELU.

Shape suffixes: B batch, D features, U units; … stands for any number of dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow.compat.v1 as tf


def dense(
    x_BD: tf.Tensor,
    units: int,
    name: str,
    activation: Callable[[tf.Tensor], tf.Tensor] | None = None,
    kernel_initializer: Callable[..., tf.Tensor] | None = None,
) -> tf.Tensor:
    """Computes `activation(x @ kernel + bias)` over the last dimension of `x`.

    Variables: `<name>/kernel` [D, U]; `<name>/bias` [U], zeros.

    Args:
        x_BD: float32 [B, D] or [B, …, D], with static D.
        units: Number of units, U.
        name: Name of the variable scope.
        activation: Activation function such as `tf.nn.relu`; None for none.
        kernel_initializer: Initializer of the kernel; None = Glorot uniform.

    Returns:
        float32 [B, U], or [B, …, U].

    Raises:
        ValueError: `x_BD` has fewer than 2 dimensions, or D is unknown.
    """
    if x_BD.shape.rank is None or x_BD.shape.rank < 2 or x_BD.shape[-1] is None:
        raise ValueError(f"dense layer {name!r} needs [batch, …, features] with known features, got shape {x_BD.shape}")
    with tf.variable_scope(name):
        kernel_DU = tf.get_variable(
            "kernel", [int(x_BD.shape[-1]), units], initializer=kernel_initializer or tf.glorot_uniform_initializer()
        )
        bias_U = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
        # `tensordot` adds reshapes to the graph, which a matrix does not need.
        product = tf.matmul if x_BD.shape.rank == 2 else _over_last_dimension
        y_BU = tf.nn.bias_add(product(x_BD, kernel_DU), bias_U)
        return y_BU if activation is None else activation(y_BU)


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Computes `x * P(X <= x)` for a standard normal X, for any shape; `tf.nn` of TensorFlow 1 does not have it.

    Source: D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016.
    """
    return 0.5 * x * (1 + tf.math.erf(x * 0.5**0.5))


def layer_norm(x: tf.Tensor, name: str, epsilon: float = 1e-6) -> tf.Tensor:
    """Normalises a layer: `gamma * (x - mean) / sqrt(variance + epsilon) + beta`, over the last dimension.

    Variables: `<name>/gamma` [D], ones; `<name>/beta` [D], zeros.

    Source: J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", 2016, equation 4.

    Args:
        x: float32 [B, …, D], with static D.
        name: Name of the variable scope.
        epsilon: Number added to the variance, against a division by 0.

    Returns:
        Tensor with the shape of `x`.
    """
    with tf.variable_scope(name):
        size = [int(x.shape[-1])]
        gamma_D = tf.get_variable("gamma", size, initializer=tf.ones_initializer())
        beta_D = tf.get_variable("beta", size, initializer=tf.zeros_initializer())
        # Not mean(x^2) - mean(x)^2, which loses its digits, and may become negative, where |mean| is large.
        centered = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
        return centered * tf.math.rsqrt(variance + epsilon) * gamma_D + beta_D


def flatten(x: tf.Tensor) -> tf.Tensor:
    """Reshapes [B, ...] to [B, D], where D is the product of the other dimensions.

    Raises:
        ValueError: A dimension other than the batch is unknown when the graph is built.
    """
    if x.shape.rank is None or not x.shape[1:].is_fully_defined():
        raise ValueError(f"flatten needs static dimensions except the batch, got shape {x.shape}")
    return tf.reshape(x, [-1, math.prod(x.shape[1:].as_list())])


def dropout(x: tf.Tensor, rate: float, *, training: bool) -> tf.Tensor:
    """Sets a share `rate` of the values to 0 in training, and multiplies the rest by 1 / (1 - rate).

    Args:
        x: float32 of any shape.
        rate: Share of the values to drop, 0 <= rate < 1.
        training: Whether to drop values; False returns `x` itself.
    """
    return tf.nn.dropout(x, rate=rate) if training and rate > 0 else x


def _over_last_dimension(x: tf.Tensor, kernel_DU: tf.Tensor) -> tf.Tensor:
    """Multiplies the last dimension of `x` by a matrix."""
    return tf.tensordot(x, kernel_DU, axes=1)
