"""LeNet-5 for handwritten digits."""

from __future__ import annotations

import dataclasses
import math

import tensorflow.compat.v1 as tf

from . import layers


class LeNet:
    """LeNet with rectifiers: two convolutions with pooling, then two hidden dense layers.

        conv 5x5, 6   pool 2x2   conv 5x5, 16   pool 2x2   dense 120   dense 84   dense N

    The layers and their sizes are those of the original. Rectifiers, maximum pooling, full connections between the
    convolutions and a softmax are today's usual choices. Convolutions keep the size of the image, so that 8x8 pixels
    are enough.

    Parameters for 10 classes: 21,386 with 8x8 pixels of 1 channel, 107,786 with 28x28.

    Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-Based Learning Applied to Document Recognition",
    Proceedings of the IEEE 86(11), 1998, section II-B, with 0.95 % test error on MNIST without distortions.

    Shape suffixes: B batch, H height, W width, C channels, D features, N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `LeNet`."""

        num_classes: int = layers.option(10, "number of classes", least=2)

    no_preset = (
        "the paper updates after each image, by rates that"
        " it divides by second derivatives, which no optimizer here computes"
    )

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float:
        """Returns the loss of a guess that knows nothing."""
        return math.log(self.options.num_classes)

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "image" float32 [B, H, W, C] in 0..1; "label" int64 [B].
            training: Not used.

        Returns:
            Loss, class probabilities [B, N] and "accuracy".
        """
        x_BHWC = layers.conv2d(batch["image"], 6, 5, "conv0", activation=tf.nn.relu)
        x_BHWC = layers.conv2d(layers.max_pool2d(x_BHWC), 16, 5, "conv1", activation=tf.nn.relu)
        x_BD = layers.dense(layers.flatten(layers.max_pool2d(x_BHWC)), 120, "hidden0", activation=tf.nn.relu)
        x_BD = layers.dense(x_BD, 84, "hidden1", activation=tf.nn.relu)
        logits_BN = layers.dense(x_BD, self.options.num_classes, "logits")
        return layers.classifier_output(logits_BN, batch["label"])
