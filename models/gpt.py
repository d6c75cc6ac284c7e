"""Language model of a decoder's blocks."""

from __future__ import annotations

import dataclasses
import math

import tensorflow.compat.v1 as tf

from . import layers

_HASH_FACTOR = 1_000_003


class Gpt:
    """Blocks of attention to what came before, which tell the next symbol of a text.

        embedding * sqrt(dim) + positions, `num_layers` blocks without a look ahead, norm, dense layer to the logits

    The blocks are `layers.transformer_block`, with GELU. To the embedding of a symbol are added those of the 2, 3, …
    `max_ngram` symbols that end there, from a table each, in the row that a hash of them gives: so that a small model
    need not learn first what counting tells. Only a batch's rows of these tables travel. `max_ngram=1` is the model of
    the first source.

    Parameters with the defaults: 8,497,256, of which 8,383,744 in the tables of symbols together.

    Source: A. Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018; with the norms in
    front as in A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; the hashed tables as in
    A. Pagnoni et al., "Byte Latent Transformer: Patches Scale Better Than Tokens", 2024, section 3.2.1. Expected, on
    Python's documentation: fewer bits than interpolated Kneser-Ney smoothing of five symbols, 1.86
    (`benchmarks.ngram`).

    Shape suffixes: B batch, T symbols, D features, V vocabulary.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Gpt`."""

        vocab_size: int = layers.option(104, "more than the largest number of a symbol", least=1)
        num_layers: int = layers.option(2, "blocks", least=1)
        dim: int = layers.option(64, "features, an even number", least=1)
        num_heads: int = layers.option(4, "of each attention; divides dim", least=1)
        hidden: int = layers.option(256, "units of the feed-forward part of a block", least=1)
        dropout: float = layers.option(0.0, "share of a block's values set to 0", least=0, below=1)
        max_ngram: int = layers.option(
            5, "most symbols that have an embedding together; 1 = each has only its own", least=1
        )
        num_buckets: int = layers.option(32749, "rows of each table of symbols together", least=1)
        ngram_dropout: float = layers.option(0.3, "the same for these rows", least=0, below=1)

        def __post_init__(self) -> None:
            if self.dim % 2 or self.dim % self.num_heads:
                raise ValueError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """The graph of one batch.

        Args:
            batch: "ids" int64 [B, T + 1]; ids[:, 1:] are to be told, each from those before it.
            training: whether there is dropout.

        Returns:
            Loss in nats per symbol; predictions int64 [B, T], the most probable symbols; "bits_per_symbol", the mean
            over an example's symbols (bits per character, where symbols are characters), and "accuracy".
        """
        ids_BT, next_BT = batch["ids"][:, :-1], batch["ids"][:, 1:]
        logits_BTV = self._logits(ids_BT, training=training)
        loss_BT = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=next_BT, logits=logits_BTV)
        loss_B = tf.reduce_mean(loss_BT, axis=1)
        told_BT = tf.argmax(logits_BTV, axis=2)
        metrics = {
            "bits_per_symbol": loss_B / math.log(2),
            "accuracy": tf.reduce_mean(tf.cast(tf.equal(told_BT, next_BT), tf.float32), axis=1),
        }
        return layers.ModelOutput(tf.reduce_mean(loss_B), told_BT, metrics)

    def _logits(self, ids_BT: tf.Tensor, *, training: bool) -> tf.Tensor:
        """Logits [B, T, V] of the symbol after each position."""
        length = int(ids_BT.shape[1])
        x_BTD = self._embed(ids_BT, training=training) + layers.sinusoidal_positions(length, self.options.dim)
        for layer in range(self.options.num_layers):
            x_BTD = layers.transformer_block(
                x_BTD,
                num_heads=self.options.num_heads,
                hidden=self.options.hidden,
                name=f"block{layer}",
                training=training,
                mask=layers.causal_mask(length),
                dropout_rate=self.options.dropout,
                activation=layers.gelu,
            )
        return layers.dense(
            layers.layer_norm(x_BTD, "norm"),
            self.options.vocab_size,
            "logits",
            kernel_initializer=tf.truncated_normal_initializer(stddev=0.02),
        )

    def _embed(self, ids_BT: tf.Tensor, *, training: bool) -> tf.Tensor:
        """Each symbol's own embedding, and those of the symbols that end there together."""
        options = self.options
        x_BTD = layers.embedding("embedding", options.vocab_size, options.dim, ids_BT)
        bucket_BT = ids_BT
        for length in range(2, options.max_ngram + 1):
            before_BT = tf.pad(bucket_BT[:, :-1], [[0, 0], [1, 0]])
            bucket_BT = tf.math.floormod(before_BT * _HASH_FACTOR + ids_BT + 1, options.num_buckets)
            rows_BTD = layers.embedding(f"ngram{length}", options.num_buckets, options.dim, bucket_BT)
            x_BTD += layers.dropout(rows_BTD, options.ngram_dropout, training=training)
        return x_BTD * options.dim**0.5
