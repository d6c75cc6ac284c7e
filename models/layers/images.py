"""Layers for images.

Shape suffixes: B batch, H height, W width, C channels.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

from .averages import moving_average_update


def conv2d(
    x_BHWC: tf.Tensor,
    filters: int,
    kernel_size: int,
    name: str,
    strides: int = 1,
    padding: str = "SAME",
    activation: Callable[[tf.Tensor], tf.Tensor] | None = None,
    *,
    use_bias: bool = True,
    kernel_initializer: Callable[..., tf.Tensor] | None = None,
) -> tf.Tensor:
    """Builds a two-dimensional convolution.

    Variables: `<name>/kernel` [kernel_size, kernel_size, C, filters]; `<name>/bias` [filters], zeros.

    Args:
        x_BHWC: float32 [B, H, W, C], with static C.
        filters: Number of output channels.
        kernel_size: Height and width of the kernel.
        name: Name of the variable scope.
        strides: Step in both directions.
        padding: "SAME" or "VALID", as in `tf.nn.conv2d`.
        activation: Activation function such as `tf.nn.relu`; None for none.
        use_bias: Whether to add a bias; useless before batch normalisation, which subtracts it again.
        kernel_initializer: Initializer of the kernel; None = Glorot uniform.

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


def batch_norm(
    x_BHWC: tf.Tensor, name: str, momentum: float = 0.9, epsilon: float = 1e-5, *, training: bool
) -> tf.Tensor:
    """Normalises a batch: `gamma * (x - mean) / sqrt(variance + epsilon) + beta`, by channel.

    Training uses mean and variance of the worker's own batch. Evaluation uses moving averages:

        moving <- momentum * moving + (1 - momentum) * value of the batch

    All workers update the same averages on the parameter servers, one update after the other (`moving_average_update`).
    After k steps of each of n workers the averages have seen n * k batches. So per step of a worker they forget n times
    as fast as with a single worker. The variance is the unbiased one, which is B * H * W / (B * H * W - 1) times the
    variance of the batch. The updates are in the collection UPDATE_OPS.

    Variables: `<name>/gamma` [C], ones; `<name>/beta` [C], zeros; `<name>/moving_mean` [C], zeros, and
    `<name>/moving_variance` [C], ones, both not trained.

    Source: S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift", ICML 2015.

    Args:
        x_BHWC: float32 [B, H, W, C], with static C.
        name: Name of the variable scope.
        momentum: Share of the old value that a moving average keeps.
        epsilon: Number added to the variance, against a division by 0.
        training: Whether to use the batch's own mean and variance, and to update the averages.

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
        # The op takes tensors only, and a partitioner may have split these two variables.
        scale_C, offset_C = tf.convert_to_tensor(gamma_C), tf.convert_to_tensor(beta_C)
        if not training:
            y_BHWC, _, _ = tf.nn.fused_batch_norm(
                x_BHWC, scale_C, offset_C, mean=mean, variance=variance, epsilon=epsilon, is_training=False
            )
            return y_BHWC
        y_BHWC, mean_C, variance_C = tf.nn.fused_batch_norm(x_BHWC, scale_C, offset_C, epsilon=epsilon)
        moving_average_update(mean, mean_C, momentum)
        moving_average_update(variance, variance_C, momentum)
        return y_BHWC


def max_pool2d(x_BHWC: tf.Tensor, pool_size: int = 2, strides: int = 2, padding: str = "SAME") -> tf.Tensor:
    """Takes the maximum over windows of `pool_size` x `pool_size`; "SAME" keeps the last, incomplete window."""
    return tf.nn.max_pool2d(x_BHWC, ksize=pool_size, strides=strides, padding=padding)


def global_average_pool(x_BHWC: tf.Tensor) -> tf.Tensor:
    """Takes the mean over all pixels, [B, C]."""
    return tf.reduce_mean(x_BHWC, axis=[1, 2])
