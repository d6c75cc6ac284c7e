"""Multi-layer perceptron."""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from models import layers


class Mlp:
    """Multi-layer perceptron: dense layers with ReLU, then a dense layer to the classes.

    Shape suffixes: B batch, H height, W width, C channels, D features, N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Mlp`; ValueError where one is out of range."""

        num_classes: int = dataclasses.field(default=10, metadata={"help": "number of classes"})
        hidden: tuple[int, ...] = dataclasses.field(default=(128,), metadata={"help": "units of each hidden layer"})
        num_stages: int = dataclasses.field(
            default=1, metadata={"help": "stages among which the layers are spread, for --placement=model_parallel"}
        )
        dropout: float = dataclasses.field(default=0.0, metadata={"help": "share of hidden units dropped in training"})

        def __post_init__(self):
            if self.num_classes < 2:
                raise ValueError(f"num_classes={self.num_classes}: a classifier needs at least 2")
            if any(units < 1 for units in self.hidden):
                raise ValueError(f"hidden={self.hidden}: each hidden layer needs at least 1 unit")
            if not 1 <= self.num_stages <= len(self.hidden) + 1:
                raise ValueError(f"num_stages={self.num_stages}: there are {len(self.hidden) + 1} layers to spread")
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
        x_BD = layers.flatten(batch["image"])
        num_layers = len(self.options.hidden) + 1
        for i, units in enumerate(self.options.hidden):
            with layers.stage(layers.spread(i, num_layers, self.options.num_stages)):
                x_BD = layers.dense(x_BD, units, f"hidden{i}", activation=tf.nn.relu)
                x_BD = layers.dropout(x_BD, self.options.dropout, training)
        with layers.stage(self.options.num_stages - 1):
            logits_BN = layers.dense(x_BD, self.options.num_classes, "logits")
            return layers.classifier_output(logits_BN, batch["label"])
