"""DeepFM: a factorization machine and a deep model of the same embeddings, trained together."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import tensorflow.compat.v1 as tf

from . import layers


class DeepFm:
    """Predicts clicks with the sum of a factorization machine and an MLP, which share the vectors of the values.

        P(label = 1) = 1 / (1 + exp(-(bias + linear + pairs + deep)))
        linear = sum of a weight for each column's value, and of one for each number, times the number
        pairs  = sum of the dot products of all pairs of vectors; a number's vector is multiplied by the number
        deep   = MLP with ReLU of all these vectors

    Compared with `wide_deep` it needs no crossed columns: `pairs` has a weight for each pair of values. A row of the
    table "values" is the vector and the weight of one value; only a batch's rows travel.

    Settings that reach a sensible result: `--optimizer=adagrad --learning_rate=0.05 --batch_size=64`. With few epochs,
    `--optimizer_option=initial_accumulator_value=1e-4` lets rare values move.

    Source: H. Guo, R. Tang, Y. Ye, Z. Li, X. He, "DeepFM: A Factorization-Machine based Neural Network for CTR
    Prediction", IJCAI 2017, equations 1 to 4.

    Shape suffixes: B batch, N numbers, C columns of categories, V = C + N vectors, F factors, R = F + 1, H units.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `DeepFm`."""

        num_buckets: int = layers.option(2**12, "number of ids in each column of categories", least=1)
        dim: int = layers.option(8, "number of factors of a value", least=1)
        hidden: tuple[int, ...] = layers.option((64, 32), "units of the hidden layers", least=1)
        stddev: float = layers.option(0.01, "standard deviation of the vectors' initial values", above=0)

    defaults = layers.TrainingSettings(
        optimizer="adagrad", optimizer_option=("initial_accumulator_value=0.0001",), learning_rate=0.05, batch_size=256
    )
    presets: ClassVar = {
        "paper": layers.Preset(
            model_option=("dim=10", "hidden=400,400,400"),
            optimizer="adam",
            learning_rate=0.001,
            source='H. Guo et al., "DeepFM", IJCAI 2017, section 3.1',
            differences="the paper drops half of the hidden units, and gives no rate and no batch size",
        )
    }

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float:
        """Returns the loss of a guess that knows nothing."""
        return math.log(2)

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "dense" float32 [B, N]; "ids" int64 [B, C], 0 <= id < num_buckets; "label" int64 [B], 0 or 1.
            training: Not used.

        Returns:
            Mean log loss; the probability of label 1, float32 [B]; "accuracy", "log_loss", and "auc" of all examples.
        """
        dim, dense_BN = self.options.dim, batch["dense"]
        rows_BVR = tf.concat([self._rows(batch["ids"]), self._number_rows(dense_BN)], axis=1)
        num_vectors = batch["ids"].shape[1] + dense_BN.shape[1]
        bias = tf.convert_to_tensor(tf.get_variable("bias", [], initializer=tf.zeros_initializer()))
        vectors_BVF = rows_BVR[..., :dim]
        logit_B = bias + tf.reduce_sum(rows_BVR[..., dim], axis=1) + layers.pair_products(vectors_BVF)
        x_BH = tf.reshape(vectors_BVF, [-1, num_vectors * dim])
        with tf.variable_scope("deep"):
            for number, units in enumerate(self.options.hidden):
                x_BH = layers.dense(x_BH, units, f"hidden_{number}", activation=tf.nn.relu)
            logit_B += layers.dense(x_BH, 1, "out")[:, 0]
        return layers.click_output(logit_B, batch["label"])

    def _rows(self, ids_BC: tf.Tensor) -> tf.Tensor:
        """Looks up vectors and weights of the values, [B, C, R]."""
        row_BC = layers.column_rows("values", ids_BC, self.options.num_buckets)
        num_rows = self.options.num_buckets * ids_BC.shape[1]
        return layers.embedding("values", num_rows, self.options.dim + 1, row_BC, self._start())

    def _number_rows(self, dense_BN: tf.Tensor) -> tf.Tensor:
        """Returns vectors and weights of the numbers, each multiplied by its number, [B, N, R]."""
        shape = [dense_BN.shape[1], self.options.dim + 1]
        rows_NR = tf.convert_to_tensor(tf.get_variable("numbers", shape, initializer=self._start()))
        return dense_BN[..., tf.newaxis] * rows_NR

    def _start(self) -> tf.keras.initializers.Initializer:
        return tf.random_normal_initializer(stddev=self.options.stddev)
