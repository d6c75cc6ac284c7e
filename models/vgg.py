"""VGG networks for small images."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import tensorflow.compat.v1 as tf

from . import layers

STAGES = {
    11: ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    16: ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)),
}
"""Filters of the convolutions in each stage, by depth of the network."""


class Vgg:
    """VGG-11 or VGG-16 for small images: stages of 3x3 convolutions, then two wide dense layers.

    The networks are configurations A and D of the paper. Their dense layers have `hidden` units, instead of 4,096 units
    on 7x7x512 features. A stage halves the image by 2x2 pooling, unless the image has only one pixel.

    For large images the first dense layer is by far the largest variable. With 224x224 pixels and 4,096 units it has
    102,760,448 of 138 million weights, so no placement of whole variables can balance the ps tasks. The placement in a
    run's output shows it.

    Source: K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015,
    table 1. The initial values are those of K. He et al., "Delving Deep into Rectifiers", ICCV 2015, so that the
    networks can be trained without training smaller ones first.

    Shape suffixes: B batch, H height, W width, C channels, D features, N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Vgg`."""

        num_classes: int = layers.option(10, "number of classes", least=2)
        depth: int = layers.option(11, "number of layers with weights", choices=tuple(STAGES))
        width: float = layers.option(1.0, "factor of the number of filters in all convolutions", above=0)
        hidden: int = layers.option(512, "units of each hidden dense layer", least=1)
        dropout: float = layers.option(0.5, "share of hidden units dropped in training", least=0, below=1)
        weight_decay: float = layers.option(
            0.0, "factor of half the sum of the squared kernels, added to the loss", least=0
        )

    defaults = layers.TrainingSettings(optimizer="adam", learning_rate=0.001)
    presets: ClassVar = {
        "paper": layers.Preset(
            model_option=("depth=16", "hidden=4096", "dropout=0.5", "weight_decay=0.0005"),
            optimizer="momentum",
            learning_rate=0.01,
            batch_size=256,
            max_steps=370_000,
            source='K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks", ICLR 2015, section 3.1, net D',
            differences=(
                "the paper divides the rate by 10 three times, when the accuracy stops improving; crops, mirrors and"
                " recolours the images at random; and starts from the layers of a smaller net"
            ),
        )
    }

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float:
        """Returns the loss of a guess that knows nothing."""
        return math.log(self.options.num_classes)

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "image" float32 [B, H, W, C] in 0..1, with static H and W; "label" int64 [B].
            training: Whether to apply dropout, and the loss has weight decay.

        Returns:
            Loss, class probabilities [B, N] and "accuracy".
        """
        x_BHWC = batch["image"] * 2 - 1
        for stage, all_filters in enumerate(STAGES[self.options.depth]):
            for i, filters in enumerate(all_filters):
                x_BHWC = layers.conv2d(
                    x_BHWC,
                    max(1, round(filters * self.options.width)),
                    3,
                    f"stage{stage}/conv{i}",
                    activation=tf.nn.relu,
                    kernel_initializer=tf.initializers.he_normal(),
                )
            # A small image is down to one pixel before the last stage, and pooling would not change it.
            if max(x_BHWC.shape[1:3].as_list()) > 1:
                x_BHWC = layers.max_pool2d(x_BHWC)
        x_BD = layers.flatten(x_BHWC)
        for i in range(2):
            x_BD = layers.dense(x_BD, self.options.hidden, f"hidden{i}", activation=tf.nn.relu)
            x_BD = layers.dropout(x_BD, self.options.dropout, training=training)
        logits_BN = layers.dense(x_BD, self.options.num_classes, "logits")
        output = layers.classifier_output(logits_BN, batch["label"])
        # The loss of the evaluation is without decay, so that runs with different rates of decay can be compared.
        if not training or not self.options.weight_decay:
            return output
        return output._replace(loss=output.loss + layers.weight_decay(self.options.weight_decay))
