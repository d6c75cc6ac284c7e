"""Softmax regression."""

from __future__ import annotations

import dataclasses
import math

import tensorflow.compat.v1 as tf

from . import layers


class Softmax:
    """Softmax regression: one dense layer from pixels to classes.

    Shape suffixes: B batch, H height, W width, C channels, D pixels (H * W * C), N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Softmax`."""

        num_classes: int = layers.option(10, "number of classes", least=2)

    defaults = layers.TrainingSettings(optimizer="adam", learning_rate=0.01)

    no_preset = "the model is older than publications with its settings"

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
        del training
        pixels_BD = layers.flatten(batch["image"])
        logits_BN = layers.dense(pixels_BD, self.options.num_classes, "logits")
        return layers.classifier_output(logits_BN, batch["label"])
