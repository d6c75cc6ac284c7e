"""Convolutional network for small images."""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from models import layers


class Cnn:
    """Convolutional network: 3x3 convolutions with ReLU and 2x2 pooling, then two dense layers.

    Shape suffixes: B batch, H height, W width, C channels, D features, N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Cnn`; ValueError where one is out of range."""

        num_classes: int = dataclasses.field(default=10, metadata={"help": "number of classes"})
        filters: tuple[int, ...] = dataclasses.field(
            default=(32, 64), metadata={"help": "filters of each convolution; each is followed by 2x2 pooling"}
        )
        hidden: int = dataclasses.field(default=64, metadata={"help": "units of the hidden dense layer"})
        dropout: float = dataclasses.field(default=0.0, metadata={"help": "share of hidden units dropped in training"})

        def __post_init__(self):
            if self.num_classes < 2:
                raise ValueError(f"num_classes={self.num_classes}: a classifier needs at least 2")
            if not self.filters or any(filters < 1 for filters in self.filters):
                raise ValueError(f"filters={self.filters}: at least one convolution, each with at least 1 filter")
            if self.hidden < 1:
                raise ValueError(f"hidden={self.hidden}: the hidden layer needs at least 1 unit")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout={self.dropout} must be at least 0 and less than 1")

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> layers.ModelOutput:
        """The graph of one batch.

        Args:
            batch: "image" float32 [B, H, W, C] in 0..1; "label" int64 [B].
            training: whether dropout acts.

        Returns:
            Loss, class probabilities [B, N] and "accuracy".
        """
        x_BHWC = batch["image"]
        for i, filters in enumerate(self.options.filters):
            x_BHWC = layers.conv2d(x_BHWC, filters, 3, f"conv{i}", activation=tf.nn.relu)
            x_BHWC = layers.max_pool2d(x_BHWC)
        x_BD = layers.dense(layers.flatten(x_BHWC), self.options.hidden, "hidden", activation=tf.nn.relu)
        x_BD = layers.dropout(x_BD, self.options.dropout, training)
        logits_BN = layers.dense(x_BD, self.options.num_classes, "logits")
        return layers.classifier_output(logits_BN, batch["label"])
