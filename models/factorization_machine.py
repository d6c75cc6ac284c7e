"""Factorization machine of sparse features."""

from __future__ import annotations

import dataclasses
import math

import tensorflow.compat.v1 as tf

from . import layers


class FactorizationMachine:
    """Logistic regression over sparse features and all their pairs; the weight of a pair is a product of vectors.

        P(label = 1) = 1 / (1 + exp(-(bias + sum over j of w[ids[j]] * values[j] + pairs)))
        pairs        = sum over i < j of (v[ids[i]] . v[ids[j]]) * values[i] * values[j]
                     = 1/2 * sum over f of ((sum over j of v[ids[j], f] * values[j]) ** 2
                                            - sum over j of (v[ids[j], f] * values[j]) ** 2)

    The second form of `pairs` takes time in proportion to the features of an example, not to their pairs. A row of the
    table "features" is v and w of one feature; only a batch's rows travel. Values should be of about the same size:
    `--dataset_option=normalize=true` for dataset libsvm; csv scales its numbers itself.

    Settings that reach a sensible result: `--optimizer=adagrad --learning_rate=0.05 --batch_size=64`. With few epochs,
    `--optimizer_option=initial_accumulator_value=1e-4` lets rare features move.

    Source: S. Rendle, "Factorization Machines", ICDM 2010, equations 1 and 3.

    Shape suffixes: B batch, M features of an example, F factors.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `FactorizationMachine`."""

        num_features: int = layers.option(500, "number of features; indices must be smaller", least=1)
        dim: int = layers.option(8, "number of factors of a feature", least=1)
        stddev: float = layers.option(0.01, "standard deviation of the table's initial values", above=0)

    defaults = layers.TrainingSettings(
        optimizer="adagrad", optimizer_option=("initial_accumulator_value=0.0001",), learning_rate=0.05, batch_size=64
    )

    no_preset = "the source presents the model, and no training with all settings"

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
            Mean log loss; the probability of label 1, float32 [B]; "accuracy", "log_loss", and "auc" of all examples.
        """
        dim = self.options.dim
        # Not zeros: the gradient of a feature's factors is a multiple of the others' factors, so all would stay 0.
        start = tf.random_normal_initializer(stddev=self.options.stddev)
        rows_BMR = layers.embedding(
            "features", self.options.num_features, dim + 1, batch["ids"], start, size_option="num_features"
        )
        bias = tf.convert_to_tensor(tf.get_variable("bias", [], initializer=tf.zeros_initializer()))
        x_BMR = rows_BMR * batch["values"][..., tf.newaxis]
        logit_B = bias + tf.reduce_sum(x_BMR[..., dim], axis=1) + layers.pair_products(x_BMR[..., :dim])
        return layers.click_output(logit_B, batch["label"])
