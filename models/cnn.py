"""Convolutional network for small images."""

from __future__ import annotations

import dataclasses
import math

import tensorflow.compat.v1 as tf

from . import layers


class Cnn:
    """Convolutional network: 3x3 convolutions with ReLU and 2x2 pooling, then two dense layers.

    Shape suffixes: B batch, H height, W width, C channels, D features, N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Cnn`."""

        num_classes: int = layers.option(10, "number of classes", least=2)
        filters: tuple[int, ...] = layers.option(
            (32, 64), "filters of each convolution; 2x2 pooling follows each", least=1
        )
        hidden: int = layers.option(64, "units of the hidden dense layer", least=1)
        dropout: float = layers.option(0.0, "share of hidden units dropped in training", least=0, below=1)

        def __post_init__(self) -> None:
            if not self.filters:
                raise ValueError("filters is empty; give at least one convolution")

    defaults = layers.TrainingSettings(optimizer="adam", learning_rate=0.002)

    no_preset = "the model follows no publication"

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float:
        """Returns the loss of a guess that knows nothing."""
        return math.log(self.options.num_classes)

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "image" float32 [B, H, W, C] in 0..1; "label" int64 [B].
            training: Whether to apply dropout.

        Returns:
            Loss, class probabilities [B, N] and "accuracy".
        """
        x_BHWC = batch["image"]
        for i, filters in enumerate(self.options.filters):
            x_BHWC = layers.conv2d(x_BHWC, filters, 3, f"conv{i}", activation=tf.nn.relu)
            x_BHWC = layers.max_pool2d(x_BHWC)
        x_BD = layers.dense(layers.flatten(x_BHWC), self.options.hidden, "hidden", activation=tf.nn.relu)
        x_BD = layers.dropout(x_BD, self.options.dropout, training=training)
        logits_BN = layers.dense(x_BD, self.options.num_classes, "logits")
        return layers.classifier_output(logits_BN, batch["label"])
