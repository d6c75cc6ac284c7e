"""Multi-layer perceptron."""

from __future__ import annotations

import dataclasses
import math

import tensorflow.compat.v1 as tf

from . import layers


class Mlp:
    """Multi-layer perceptron: dense layers with ReLU, then a dense layer to the classes.

    Shape suffixes: B batch, H height, W width, C channels, D features, N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Mlp`."""

        num_classes: int = layers.option(10, "number of classes", least=2)
        hidden: tuple[int, ...] = layers.option((128,), "units of each hidden layer", least=1)
        num_stages: int = layers.option(1, "number of stages of the layers, for --placement=model_parallel", least=1)
        dropout: float = layers.option(0.0, "share of hidden units dropped in training", least=0, below=1)

        def __post_init__(self) -> None:
            if self.num_stages > len(self.hidden) + 1:
                raise ValueError(f"num_stages={self.num_stages} exceeds the {len(self.hidden) + 1} layers")

    defaults = layers.TrainingSettings(optimizer="adam", learning_rate=0.004)

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
        x_BD = layers.flatten(batch["image"])
        num_layers = len(self.options.hidden) + 1
        for i, units in enumerate(self.options.hidden):
            with layers.stage(layers.spread(i, num_layers, self.options.num_stages)):
                x_BD = layers.dense(x_BD, units, f"hidden{i}", activation=tf.nn.relu)
                x_BD = layers.dropout(x_BD, self.options.dropout, training=training)
        with layers.stage(self.options.num_stages - 1):
            logits_BN = layers.dense(x_BD, self.options.num_classes, "logits")
            return layers.classifier_output(logits_BN, batch["label"])
