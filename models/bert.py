"""Masked language model, and a text classifier that fine-tunes it."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import tensorflow.compat.v1 as tf

from . import layers

_HIDDEN_SHARE, _RANDOM_SHARE = 0.8, 0.1  # of the symbols to predict; the rest stays as it is


class Bert:
    """Blocks of bidirectional attention that predict masked symbols or, fine-tuned, the class of a text.

        embedding * sqrt(dim) + positions, `num_layers` blocks, norm
        without classes   at the masked positions: dense layer, GELU, norm, dense layer to the logits of the symbols
        with classes      the mean over the positions: dense layer, tanh, dense layer to the logits of the classes

    Each batch draws the share `mask_share` of a text's positions, whose symbols the model predicts. The symbol there is
    replaced by a special symbol, "hidden", with probability 80 %, by a random symbol with 10 %, and unchanged with
    10 %. Evaluation draws the same positions and replacements each time.

    A run with `num_classes` and `--init_from` of a run without takes embedding and blocks from that run. (The paper
    reads the class at an extra symbol, whose vector it trains by predicting whether one sentence follows another. This
    model has no such task and uses the mean instead.)

    Parameters with the defaults: 117,864 without classes, 111,496 with 8.

    Source: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    NAACL 2019, sections 3.1 and A.1.

    Shape suffixes: B batch, T symbols, K positions to predict, D features, V vocabulary, N classes.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Bert`."""

        vocab_size: int = layers.option(104, "number of different symbols; ids must be smaller", least=1)
        num_classes: int = layers.option(0, "number of classes of texts; 0: predict masked symbols", least=0)
        mask_share: float = layers.option(0.15, "share of the positions to mask and predict", above=0, most=1)
        num_layers: int = layers.option(2, "number of blocks", least=1)
        dim: int = layers.option(64, "number of features, even", least=1)
        num_heads: int = layers.option(4, "heads of each attention; divides dim", least=1)
        hidden: int = layers.option(256, "units of the feed-forward part of a block", least=1)
        dropout: float = layers.option(0.0, "share of values set to 0 in training", least=0, below=1)

        def __post_init__(self) -> None:
            if self.dim % 2 or self.dim % self.num_heads:
                raise ValueError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")
            if self.num_classes == 1:
                raise ValueError("num_classes=1: give at least 2 classes, or 0 to predict masked symbols")

    defaults = layers.TrainingSettings(
        optimizer="adam",
        optimizer_option=("beta2=0.98",),
        learning_rate=0.003,
        schedule="inverse_sqrt",
        schedule_option=("warmup_steps=200",),
        batch_size=16,
    )
    presets: ClassVar = {
        "paper": layers.Preset(
            model_option=("num_layers=12", "dim=768", "num_heads=12", "hidden=3072", "dropout=0.1", "mask_share=0.15"),
            optimizer="adam",
            learning_rate=1e-4,
            schedule="polynomial",
            schedule_option=("warmup_steps=10000", "decay_steps=1000000"),
            batch_size=256,
            max_steps=1_000_000,
            source='J. Devlin et al., "BERT", NAACL 2019, sections 3 and A.2, BERT-base',
            differences="the paper also predicts the next sentence, and decays the weights by 0.01",
        )
    }

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float:
        """Returns the loss of a guess that knows nothing."""
        return math.log(self.options.num_classes or self.options.vocab_size)

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "ids" int64 [B, T]; with classes also "label" int64 [B].
            training: Whether to apply dropout and to mask other positions in each batch.

        Returns:
            With classes: loss, class probabilities [B, N] and "accuracy". Without classes: the mean loss over the
            masked positions, the most probable symbols there, int64 [B, K], and "masked_accuracy", the share of these
            that is right. "unigram_accuracy" is the share that would be right if each prediction were symbol 0, the
            most frequent one of dataset `text`.
        """
        ids_BT = batch["ids"]
        if self.options.num_classes:
            return layers.classifier_output(self._class_logits(self._encode(ids_BT, training=training)), batch["label"])
        place_BK, seen_BT = self._hide(ids_BT, training=training)
        # Logits have a value for each symbol of the vocabulary, so only the masked positions go into that layer.
        true_BK = tf.gather(ids_BT, place_BK, axis=1, batch_dims=1)
        logits_BKV = self._symbol_logits(
            tf.gather(self._encode(seen_BT, training=training), place_BK, axis=1, batch_dims=1)
        )
        loss_BK = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=true_BK, logits=logits_BKV)
        predicted_BK = tf.argmax(logits_BKV, axis=2)
        metrics = {
            "masked_accuracy": tf.reduce_mean(tf.cast(tf.equal(predicted_BK, true_BK), tf.float32), axis=1),
            "unigram_accuracy": tf.reduce_mean(tf.cast(tf.equal(true_BK, 0), tf.float32), axis=1),
        }
        return layers.ModelOutput(tf.reduce_mean(loss_BK), predicted_BK, metrics)

    def _hide(self, ids_BT: tf.Tensor, *, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the positions to predict, int32 [B, K], as many in each text, and the masked texts."""
        length = int(ids_BT.shape[1])
        # The largest K of T random numbers: K different positions, all equally likely.
        place_BK = tf.nn.top_k(
            _uniform(ids_BT, 0, training=training), max(1, round(self.options.mask_share * length))
        ).indices
        is_masked_BT = tf.reduce_any(tf.one_hot(place_BK, length, on_value=True, off_value=False), axis=1)
        kind_BT = _uniform(ids_BT, 1, training=training)
        any_BT = tf.cast(_uniform(ids_BT, 2, training=training) * self.options.vocab_size, tf.int64)
        other_BT = tf.where_v2(kind_BT < _HIDDEN_SHARE + _RANDOM_SHARE, any_BT, ids_BT)
        other_BT = tf.where_v2(kind_BT < _HIDDEN_SHARE, tf.constant(self.options.vocab_size, tf.int64), other_BT)
        return place_BK, tf.where_v2(is_masked_BT, other_BT, ids_BT)

    def _encode(self, ids_BT: tf.Tensor, *, training: bool) -> tf.Tensor:
        dim = self.options.dim
        with tf.variable_scope("encoder"):
            # The table has one row more than symbols; the last row is the special symbol "hidden".
            # Rows start with a standard deviation of dim ** -0.5; scaled, they are as large as the positions.
            x_BTD = (
                layers.embedding("embedding", self.options.vocab_size + 1, dim, ids_BT, size_option="vocab_size")
                * dim**0.5
            )
            x_BTD += layers.sinusoidal_positions(int(ids_BT.shape[1]), dim)
            options = self.options
            block = layers.BlockOptions(options.num_heads, options.hidden, options.dropout, layers.gelu)
            for layer in range(options.num_layers):
                x_BTD = layers.transformer_block(x_BTD, block, f"block{layer}", training=training)
            return layers.layer_norm(x_BTD, "norm")

    def _symbol_logits(self, x_BKD: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope("masked"):
            x_BKD = layers.layer_norm(layers.dense(x_BKD, self.options.dim, "dense", layers.gelu), "norm")
            return _logits(x_BKD, self.options.vocab_size)

    def _class_logits(self, x_BTD: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope("classifier"):
            pooled_BD = layers.dense(tf.reduce_mean(x_BTD, axis=1), self.options.dim, "pooled", tf.nn.tanh)
            return _logits(pooled_BD, self.options.num_classes)


def _logits(x: tf.Tensor, units: int) -> tf.Tensor:
    # So small that the first predictions are nearly uniform, and the first loss is about log(units).
    return layers.dense(x, units, "logits", kernel_initializer=tf.truncated_normal_initializer(stddev=0.02))


def _uniform(ids_BT: tf.Tensor, purpose: int, *, training: bool) -> tf.Tensor:
    """Draws numbers, float32 [B, T] in [0, 1); in evaluation the same each time, from a seed of `purpose`."""
    if training:
        return tf.random.uniform(tf.shape(ids_BT))
    return tf.random.stateless_uniform(tf.shape(ids_BT), seed=[0, purpose])
