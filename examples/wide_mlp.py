"""Your own model: plain TF1 graph code on `tf.get_variable`."""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from ps_trainer.models import layers


class WideMlp:
    """Two hidden layers over points in the plane.

    Shape suffixes: B batch, D features, U units, N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `WideMlp`."""

        units: int = layers.option(32, "units of each hidden layer", least=1)

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """The graph of one batch. ps_trainer calls it more than once, for training and for evaluation.

        Args:
            batch: "point" float32 [B, 2]; "label" int64 [B].
            training: Not used: the model has neither dropout nor batch norm.
        """
        del training
        hidden_BU = batch["point"]
        for index in range(2):
            with tf.variable_scope(f"hidden_{index}"):
                kernel_DU = tf.get_variable("kernel", [hidden_BU.shape[1], self.options.units])
                bias_U = tf.get_variable("bias", [self.options.units], initializer=tf.zeros_initializer())
                hidden_BU = tf.nn.relu(tf.matmul(hidden_BU, kernel_DU) + bias_U)
        logits_BN = layers.dense(hidden_BU, 2, "logits")
        return layers.classifier_output(logits_BN, batch["label"])
