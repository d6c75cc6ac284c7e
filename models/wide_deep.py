"""Wide & Deep: a linear model of crossed columns and a deep model of embeddings, trained together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import tensorflow.compat.v1 as tf

from . import layers

_MULTIPLIER = 0x9E3779B97F4A7C15 - 2**64  # 2**64 divided by the golden ratio, as a signed number: Fibonacci hashing
_SHIFT = 33  # the multiplication mixes the upper bits best; the shift keeps a sign, which `floormod` removes


class WideDeep:
    """Predicts clicks with the sum of two models of the same columns, a wide and a deep one.

        P(label = 1) = 1 / (1 + exp(-(bias + wide + deep)))
        wide = sum of a weight for each column's value, one for each number, and one for each crossed pair of values
        deep = MLP with ReLU of the values' embeddings and the numbers

    The wide part memorises pairs of values that it has seen; the deep part generalises to other pairs. Their variables
    are in the scopes `wide` and `deep`, so that each part can have its own optimizer. The paper uses FTRL with l1
    and AdaGrad: `--optimizer=adagrad --optimizer_for='wide/*=ftrl:learning_rate=…,l1=…'`. Only a batch's rows of each
    table travel. Hashing maps the pairs of values to `cross_buckets` weights.

    Source: H.-T. Cheng et al., "Wide & Deep Learning for Recommender Systems", DLRS 2016, sections 3.1 to 3.3.

    Shape suffixes: B batch, N numbers, C columns of categories, X crossed pairs, D embedding, H hidden units.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `WideDeep`."""

        num_buckets: int = layers.option(2**12, "number of ids in each column of categories", least=1)
        crosses: tuple[str, ...] = layers.option(
            ("auto",), "pairs of columns to cross, numbered from 0; auto = 8x9,10x11 if there are 12 columns, else none"
        )
        cross_buckets: int = layers.option(2**14, "number of weights of each crossed pair", least=1)
        dim: int = layers.option(8, "number of features of an embedding", least=1)
        hidden: tuple[int, ...] = layers.option((64, 32), "units of the hidden layers", least=1)

        def __post_init__(self) -> None:
            self.pairs(0)

        def pairs(self, num_columns: int) -> list[tuple[int, int]]:
            """Parses `crosses` into pairs of column numbers; raises ValueError if one is malformed.

            Args:
                num_columns: Number of columns of categories, on which `auto` depends.
            """
            if self.crosses == ("auto",):
                return [(8, 9), (10, 11)] if num_columns >= 12 else []
            pairs = [tuple(cross.split("x")) for cross in self.crosses]
            if not all(len(pair) == 2 and all(number.isdecimal() for number in pair) for pair in pairs):
                raise ValueError(f"crosses={','.join(self.crosses)}: write the numbers of two columns, such as 0x3,2x5")
            return [(int(one), int(other)) for one, other in pairs]

    defaults = layers.TrainingSettings(
        optimizer="adagrad",
        optimizer_option=("initial_accumulator_value=0.0001",),
        optimizer_for=("wide/*=ftrl:learning_rate=0.2,initial_accumulator_value=0.0001",),
        learning_rate=0.05,
        batch_size=256,
    )
    presets: ClassVar = {
        "paper": layers.Preset(
            model_option=("dim=32", "hidden=1024,512,256"),
            optimizer="adagrad",
            optimizer_for=("wide/*=ftrl:learning_rate=0.1,l1=0.001",),
            learning_rate=0.05,
            source='H.-T. Cheng et al., "Wide & Deep Learning for Recommender Systems", DLRS 2016, figure 4',
            differences="the paper gives no rates, no strength of l1 and no batch size",
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

        Raises:
            ValueError: A crossed column is not one of the C columns.
        """
        dense_BN, ids_BC = batch["dense"], batch["ids"]
        num_columns = ids_BC.shape[1]
        for one, other in self.options.pairs(num_columns):
            if max(one, other) >= num_columns:
                raise ValueError(
                    f"crosses: the data have no column {max(one, other)} of {one}x{other};"
                    f" columns: 0 to {num_columns - 1};"
                    " --model_option=crosses= crosses none"
                )
        row_BC = layers.column_rows("wide/weights", ids_BC, self.options.num_buckets)
        bias = tf.convert_to_tensor(tf.get_variable("bias", [], initializer=tf.zeros_initializer()))
        logit_B = bias + self._wide(dense_BN, ids_BC, row_BC) + self._deep(dense_BN, row_BC)
        return layers.click_output(logit_B, batch["label"])

    def _wide(self, dense_BN: tf.Tensor, ids_BC: tf.Tensor, row_BC: tf.Tensor) -> tf.Tensor:
        zeros, options = tf.zeros_initializer(), self.options
        with tf.variable_scope("wide"):
            num_rows = options.num_buckets * row_BC.shape[1]
            logit_B = tf.reduce_sum(layers.embedding("weights", num_rows, 1, row_BC, zeros)[..., 0], axis=1)
            slopes_N = tf.convert_to_tensor(tf.get_variable("numbers", [dense_BN.shape[1]], initializer=zeros))
            logit_B += tf.reduce_sum(dense_BN * slopes_N, axis=1)
            pairs = options.pairs(row_BC.shape[1])
            if not pairs:
                return logit_B
            row_BX = self._crossed(ids_BC, pairs)
            num_rows = options.cross_buckets * len(pairs)
            return logit_B + tf.reduce_sum(layers.embedding("crosses", num_rows, 1, row_BX, zeros)[..., 0], axis=1)

    def _crossed(self, ids_BC: tf.Tensor, pairs: Sequence[tuple[int, int]]) -> tf.Tensor:
        """Computes the row of each crossed pair's weight, int64 [B, X]."""
        rows = []
        for number, (one, other) in enumerate(pairs):
            pair_B = ids_BC[:, one] * self.options.num_buckets + ids_BC[:, other]
            # The product overflows on purpose: hashing needs only its upper bits.
            mixed_B = tf.bitwise.right_shift(pair_B * _MULTIPLIER, tf.constant(_SHIFT, tf.int64))
            rows.append(tf.math.floormod(mixed_B, self.options.cross_buckets) + number * self.options.cross_buckets)
        return tf.stack(rows, axis=1)

    def _deep(self, dense_BN: tf.Tensor, row_BC: tf.Tensor) -> tf.Tensor:
        options = self.options
        with tf.variable_scope("deep"):
            num_columns = row_BC.shape[1]
            vectors_BCD = layers.embedding("embeddings", options.num_buckets * num_columns, options.dim, row_BC)
            x_BH = tf.concat([tf.reshape(vectors_BCD, [-1, num_columns * options.dim]), dense_BN], axis=1)
            for number, units in enumerate(options.hidden):
                x_BH = layers.dense(x_BH, units, f"hidden_{number}", activation=tf.nn.relu)
            return layers.dense(x_BH, 1, "out")[:, 0]
