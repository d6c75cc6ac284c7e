"""Residual network for small images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import tensorflow.compat.v1 as tf

from . import layers

STAGE_FILTERS = (16, 32, 64)
"""Number of filters in each of the three stages."""


class ResNet:
    """Residual network of 6 n + 2 layers for small images, as for CIFAR-10 in the paper.

        conv 3x3, 16
        n blocks with 16 filters, n with 32 (the first halves the image), n with 64 (the first halves it)
        mean over the pixels, dense

    A block is relu(x + bn(conv(relu(bn(conv(x)))))). Some blocks halve the image and double the channels. There the
    shortcut takes every second pixel of x and adds channels of zeros (the paper's option A, without parameters). All
    convolutions are 3x3 without bias, and their kernels start normal with variance 2 / fan_in.

    Parameters for 10 classes and 3 channels: 269,722 (`depth` 20), 464,154 (32), 853,018 (56), and two moving averages
    for each channel of the batch norms.

    Source: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2
    and table 6: test error on CIFAR-10 8.75 % (20), 7.51 % (32), 6.97 % (56), with momentum 0.9, weight decay 1e-4,
    batch 128, rate 0.1, and images padded, cropped and mirrored at random.

    Shape suffixes: B batch, H height, W width, C channels, N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `ResNet`."""

        num_classes: int = layers.option(10, "number of classes", least=2)
        depth: int = layers.option(20, "number of layers with weights: 6 n + 2, such as 20, 32, 56", least=8)
        weight_decay: float = layers.option(
            1e-4, "factor of half the sum of the squared kernels, added to the loss", least=0
        )

        def __post_init__(self) -> None:
            if self.depth % 6 != 2:
                raise ValueError(f"depth={self.depth} must be 6 n + 2 with n at least 1: 8, 14, 20, 26, 32, …")

    defaults = layers.TrainingSettings(optimizer="momentum", learning_rate=0.05)
    presets: ClassVar = {
        "paper": layers.Preset(
            optimizer="momentum",
            learning_rate=0.1,
            schedule="piecewise",
            schedule_option=("boundaries=32000,48000", "factors=1,0.1,0.01"),
            batch_size=128,
            max_steps=64000,
            source='K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2',
            differences="the paper shifts and mirrors the images at random; 128 images are the batch of all its GPUs",
        )
    }

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "image" float32 [B, H, W, C] in 0..1; "label" int64 [B].
            training: Whether batch norms use the batch's own statistics, and the loss has weight decay.

        Returns:
            Loss, class probabilities [B, N] and "accuracy".
        """
        num_blocks = (self.options.depth - 2) // 6
        # From 0..1 to -1..1, so that the pixels have both signs.
        x_BHWC = _conv_bn(batch["image"] * 2 - 1, STAGE_FILTERS[0], 1, "first", tf.nn.relu, training=training)
        for stage, filters in enumerate(STAGE_FILTERS):
            for block in range(num_blocks):
                strides = 2 if stage > 0 and block == 0 else 1
                x_BHWC = _block(x_BHWC, filters, strides, f"stage{stage}/block{block}", training=training)
        logits_BN = layers.dense(layers.global_average_pool(x_BHWC), self.options.num_classes, "logits")
        output = layers.classifier_output(logits_BN, batch["label"])
        # The loss of the evaluation is without decay, so that runs with different rates of decay can be compared.
        if not training:
            return output
        return output._replace(loss=output.loss + layers.weight_decay(self.options.weight_decay))


def _block(x_BHWC: tf.Tensor, filters: int, strides: int, name: str, *, training: bool) -> tf.Tensor:
    with tf.variable_scope(name):
        y_BHWC = _conv_bn(x_BHWC, filters, strides, "conv0", tf.nn.relu, training=training)
        y_BHWC = _conv_bn(y_BHWC, filters, 1, "conv1", training=training)
        return tf.nn.relu(_shortcut(x_BHWC, filters, strides) + y_BHWC)


def _conv_bn(
    x_BHWC: tf.Tensor,
    filters: int,
    strides: int,
    name: str,
    activation: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    *,
    training: bool,
) -> tf.Tensor:
    with tf.variable_scope(name):
        # Without bias, because the batch norm that follows subtracts the mean and adds its own offset.
        x_BHWC = layers.conv2d(
            x_BHWC, filters, 3, "conv", strides, use_bias=False, kernel_initializer=tf.initializers.he_normal()
        )
        return activation(layers.batch_norm(x_BHWC, "bn", training=training))


def _shortcut(x_BHWC: tf.Tensor, filters: int, strides: int) -> tf.Tensor:
    """Takes every second pixel if `strides` is 2, and adds channels of zeros on both sides up to `filters`."""
    more = filters - int(x_BHWC.shape[3])
    if strides > 1:
        x_BHWC = x_BHWC[:, ::strides, ::strides]
    return tf.pad(x_BHWC, [[0, 0], [0, 0], [0, 0], [more // 2, more - more // 2]]) if more else x_BHWC
