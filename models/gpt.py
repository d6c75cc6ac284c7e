"""Language model of causal transformer blocks."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import tensorflow.compat.v1 as tf

from . import layers

_HASH_FACTOR = 1_000_003


class Gpt:
    """Blocks of causal attention that predict the next symbol of a text.

        embedding * sqrt(dim) + positions, `num_layers` blocks with a causal mask, norm, dense layer to the logits

    The blocks are `layers.transformer_block`, with GELU. The embedding of a symbol is the sum of its own and those of
    the 2, 3, … `max_ngram` symbols that end with it. Each length has its own table, and a hash of the symbols
    selects the row. So a small model does not have to learn first what counts of such sequences predict. Only a batch's
    rows of these tables travel. `max_ngram=1` is the model of the first source.

    Parameters with the defaults: 8,497,256, of which 8,383,744 are in the tables of several symbols.

    Source: A. Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018. The norms are in
    front as in A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019. The hashed tables are
    from A. Pagnoni et al., "Byte Latent Transformer: Patches Scale Better Than Tokens", 2024, section 3.2.1. Expected
    on Python's documentation: fewer bits per character than interpolated Kneser-Ney smoothing of five characters, which
    has 1.86 (`benchmarks.ngram`).

    Shape suffixes: B batch, T symbols, D features, V vocabulary.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Gpt`."""

        vocab_size: int = layers.option(104, "number of different symbols; ids must be smaller", least=1)
        num_layers: int = layers.option(2, "number of blocks", least=1)
        dim: int = layers.option(64, "number of features, even", least=1)
        num_heads: int = layers.option(4, "heads of each attention; divides dim", least=1)
        hidden: int = layers.option(256, "units of the feed-forward part of a block", least=1)
        dropout: float = layers.option(0.0, "share of a block's values set to 0 in training", least=0, below=1)
        max_ngram: int = layers.option(
            5, "longest sequence of symbols with an embedding; 1: only single symbols", least=1
        )
        num_buckets: int = layers.option(32749, "rows of the table of each length of sequences", least=1)
        ngram_dropout: float = layers.option(0.3, "share of these rows' values set to 0 in training", least=0, below=1)

        def __post_init__(self) -> None:
            if self.dim % 2 or self.dim % self.num_heads:
                raise ValueError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")

    defaults = layers.TrainingSettings(
        optimizer="lazy_adam",
        optimizer_option=("beta2=0.98",),
        learning_rate=0.003,
        schedule="inverse_sqrt",
        schedule_option=("warmup_steps=200",),
        batch_size=16,
    )
    presets: ClassVar = {
        "paper": layers.Preset(
            model_option=("num_layers=12", "dim=768", "num_heads=12", "hidden=3072", "dropout=0.1", "max_ngram=1"),
            optimizer="adam",
            learning_rate=0.00025,
            schedule="cosine",
            schedule_option=("warmup_steps=2000", "decay_steps=1000000"),
            batch_size=64,
            max_steps=1_000_000,
            source=(
                'A. Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018, section 4.1;'
                ' the number of steps is from J. Devlin et al., "BERT", NAACL 2019, section A.4'
            ),
            differences=(
                "the paper has learned positions, norms behind the blocks, weight decay of 0.01, and windows of 512"
                " byte pairs; --dataset_option=context_length=512 gives windows of 512 symbols"
            ),
        )
    }

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float:
        """Returns the loss of a guess that knows nothing."""
        return math.log(self.options.vocab_size)

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "ids" int64 [B, T + 1]; the model predicts each of ids[:, 1:] from the ids before it.
            training: Whether to apply dropout.

        Returns:
            Loss in nats per symbol; predictions int64 [B, T], the most probable symbols; "bits_per_symbol", the mean
            over an example's symbols (bits per character if symbols are characters), and "accuracy".
        """
        ids_BT, next_BT = batch["ids"][:, :-1], batch["ids"][:, 1:]
        logits_BTV = self._logits(ids_BT, training=training)
        loss_BT = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=next_BT, logits=logits_BTV)
        loss_B = tf.reduce_mean(loss_BT, axis=1)
        predicted_BT = tf.argmax(logits_BTV, axis=2)
        metrics = {
            "bits_per_symbol": loss_B / math.log(2),
            "accuracy": tf.reduce_mean(tf.cast(tf.equal(predicted_BT, next_BT), tf.float32), axis=1),
        }
        return layers.ModelOutput(tf.reduce_mean(loss_B), predicted_BT, metrics)

    def logits(self, ids_BT: tf.Tensor) -> tf.Tensor:
        """Computes the logits of the symbol after each position, to generate text.

        Args:
            ids_BT: int64 [B, T], T static; a position's logits do not depend on the ids after it.

        Returns:
            float32 [B, T, V].
        """
        return self._logits(ids_BT, training=False)

    def _logits(self, ids_BT: tf.Tensor, *, training: bool) -> tf.Tensor:
        length = int(ids_BT.shape[1])
        x_BTD = self._embed(ids_BT, training=training) + layers.sinusoidal_positions(length, self.options.dim)
        options = self.options
        block = layers.BlockOptions(options.num_heads, options.hidden, options.dropout, layers.gelu)
        for layer in range(options.num_layers):
            mask = layers.causal_mask(length)
            x_BTD = layers.transformer_block(x_BTD, block, f"block{layer}", training=training, mask=mask)
        return layers.dense(
            layers.layer_norm(x_BTD, "norm"),
            self.options.vocab_size,
            "logits",
            kernel_initializer=tf.truncated_normal_initializer(stddev=0.02),
        )

    def _embed(self, ids_BT: tf.Tensor, *, training: bool) -> tf.Tensor:
        """Sums up each symbol's own embedding and those of the sequences that end with it."""
        options = self.options
        x_BTD = layers.embedding("embedding", options.vocab_size, options.dim, ids_BT, size_option="vocab_size")
        bucket_BT = ids_BT
        for length in range(2, options.max_ngram + 1):
            # The hash of a sequence extends the hash of the shorter sequence that ends one symbol earlier. Before the
            # start of a text stands bucket 0. A bucket is below num_buckets, so the product fits an int64.
            before_BT = tf.pad(bucket_BT[:, :-1], [[0, 0], [1, 0]])
            bucket_BT = tf.math.floormod(before_BT * _HASH_FACTOR + ids_BT + 1, options.num_buckets)
            rows_BTD = layers.embedding(f"ngram{length}", options.num_buckets, options.dim, bucket_BT)
            x_BTD += layers.dropout(rows_BTD, options.ngram_dropout, training=training)
        # Rows start with a standard deviation of dim ** -0.5; scaled, they are as large as the positions.
        return x_BTD * options.dim**0.5
