"""Sparse logistic regression."""

from __future__ import annotations

import dataclasses
import math

import tensorflow.compat.v1 as tf

from . import layers


class LogisticRegression:
    """Logistic regression over sparse features, with one weight for each in a table; only a batch's rows travel.

        P(label = 1) = 1 / (1 + exp(-(bias + sum over j of weights[ids[j]] * values[j])))

    The optimizer `--optimizer=ftrl --optimizer_option l1=…` makes the weights of useless features exactly 0.

    Source: H. B. McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013; M. Li et al., "Scaling
    Distributed Machine Learning with the Parameter Server", OSDI 2014, section 5.1 (sparse, with l1).

    Shape suffixes: B batch, M features of an example.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `LogisticRegression`."""

        num_features: int = layers.option(500, "number of features; indices must be smaller", least=1)

    defaults = layers.TrainingSettings(
        optimizer="ftrl", optimizer_option=("initial_accumulator_value=0.0001",), learning_rate=0.1, batch_size=64
    )

    no_preset = "the sources train on clicks that are not public, at rates chosen for them"

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float:
        """Returns the loss of a guess that knows nothing."""
        return math.log(2)

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "ids" int64 [B, M]; "values" float32 [B, M], 0 after the last feature of an example; "label" int64
                [B], 0 or 1.
            training: Not used.

        Returns:
            Mean log loss; the probability of label 1, float32 [B]; "accuracy" and "log_loss".
        """
        # Zeros will do, because the loss is convex. A feature that never occurs in training keeps the weight 0.
        weights_BM1 = layers.embedding(
            "weights",
            self.options.num_features,
            1,
            batch["ids"],
            initializer=tf.zeros_initializer(),
            size_option="num_features",
        )
        bias = tf.convert_to_tensor(tf.get_variable("bias", [1], initializer=tf.zeros_initializer()))
        logits_B = tf.reduce_sum(weights_BM1[..., 0] * batch["values"], axis=1) + bias
        label_B = tf.cast(batch["label"], tf.float32)
        loss_B = tf.nn.sigmoid_cross_entropy_with_logits(labels=label_B, logits=logits_B)
        is_right_B = tf.equal(logits_B > 0, label_B > 0)
        return layers.ModelOutput(
            loss=tf.reduce_mean(loss_B),
            predictions=tf.sigmoid(logits_B),
            metrics={"accuracy": tf.cast(is_right_B, tf.float32), "log_loss": loss_B},
        )
