"""Transformer that translates: encoder and decoder."""

from __future__ import annotations

import contextlib
import dataclasses

import tensorflow.compat.v1 as tf

from . import layers


class Transformer:
    """Encoder and decoder of attention, for the translation of texts.

        encoder   embedding * sqrt(dim) + positions, `num_layers` blocks, norm
        decoder   the same for the target moved by one, its blocks looking at the encoder's output and at no later
                  symbol; dense layer to the logits of the next symbol

    The blocks are `layers.transformer_block`, with the norm in front. Trained on the target's own symbols; in
    evaluation the translation is made by `layers.decode`, greedily or by beam search.

    Parameters with the defaults, for the data `numbers`: 238,226.

    Source: A. Vaswani et al., "Attention Is All You Need", NIPS 2017. Expected: the exact translation for 95 % of the
    numbers that are none of the training.

    Shape suffixes: B batch, S symbols of the source, T of the target, D features, V vocabulary.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Transformer`."""

        source_vocab_size: int = layers.option(34, "numbers of the source's symbols", least=1)
        target_vocab_size: int = layers.option(18, "numbers of the target's symbols", least=1)
        num_layers: int = layers.option(2, "blocks of encoder and of decoder", least=1)
        dim: int = layers.option(64, "features, an even number", least=1)
        num_heads: int = layers.option(4, "of each attention; divides dim", least=1)
        hidden: int = layers.option(256, "units of the feed-forward part of a block", least=1)
        num_stages: int = layers.option(
            1, "stages among which the blocks are spread, for --placement=model_parallel", least=1
        )
        dropout: float = layers.option(0.0, "share of values set to 0 in training", least=0, below=1)
        label_smoothing: float = layers.option(
            0.0, "share of the target's probability that all symbols have alike", least=0, below=1
        )
        beam_size: int = layers.option(1, "translations kept; 1 = greedy", least=1)
        length_penalty: float = layers.option(0.6, "0 = none; favours long translations", least=0)

        def __post_init__(self) -> None:
            if self.dim % 2 or self.dim % self.num_heads:
                raise ValueError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")
            if self.num_stages > 2 * self.num_layers:
                raise ValueError(f"num_stages={self.num_stages}: there are {2 * self.num_layers} blocks to spread")
            if self.beam_size > self.target_vocab_size:
                raise ValueError(f"beam_size={self.beam_size} exceeds target_vocab_size={self.target_vocab_size}")

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """The graph of one batch.

        Args:
            batch: "source" int64 [B, S] and "target" int64 [B, T]: numbers of symbols, 2 at the end, then zeros.
            training: whether there are dropout and label smoothing, and no translation is made.

        Returns:
            Loss: the mean over the target's symbols. Predictions int64 [B, T]: in training the most probable symbol
            after those of the target; in evaluation the translation. Metrics: "log_loss", the mean over an example's
            symbols; in evaluation "exact_match", 1 where the translation is the target.
        """
        source_BS, target_BT = batch["source"], batch["target"]
        memory_BSD = self._encode(source_BS, training=training)
        before_BT = tf.pad(target_BT[:, :-1], [[0, 0], [1, 0]], constant_values=layers.START_ID)
        logits_BTV = self._decode(before_BT, memory_BSD, source_BS, training=training)
        with layers.stage(self.options.num_stages - 1):
            output = self._output(logits_BTV, target_BT, training=training)
        if training:
            return output
        translation_BT = self._translate(source_BS, memory_BSD, int(target_BT.shape[1]))
        is_exact_B = tf.reduce_all(tf.equal(translation_BT, target_BT), axis=1)
        metrics = {**output.metrics, "exact_match": tf.cast(is_exact_B, tf.float32)}
        return output._replace(predictions=translation_BT, metrics=metrics)

    def _encode(self, source_BS: tf.Tensor, *, training: bool) -> tf.Tensor:
        with tf.variable_scope("encoder"):
            x_BSD = self._embed(source_BS, self.options.source_vocab_size, training=training)
            for layer in range(self.options.num_layers):
                with self._stage(layer):
                    x_BSD = self._block(x_BSD, layer, training=training, mask=layers.padding_mask(source_BS))
            with self._stage(self.options.num_layers - 1):
                return layers.layer_norm(x_BSD, "norm")

    def _decode(
        self, before_BT: tf.Tensor, memory_BSD: tf.Tensor, source_BS: tf.Tensor, *, training: bool
    ) -> tf.Tensor:
        """Logits [B, T, V] of the symbol at each position, given those before it."""
        with tf.variable_scope("decoder"):
            with self._stage(self.options.num_layers):
                x_BTD = self._embed(before_BT, self.options.target_vocab_size, training=training)
            for layer in range(self.options.num_layers):
                with self._stage(self.options.num_layers + layer):
                    memory = {"memory_BKD": memory_BSD, "memory_mask": layers.padding_mask(source_BS)}
                    x_BTD = self._block(
                        x_BTD, layer, training=training, mask=layers.causal_mask(int(x_BTD.shape[1])), **memory
                    )
            with self._stage(2 * self.options.num_layers - 1):
                return layers.dense(
                    layers.layer_norm(x_BTD, "norm"),
                    self.options.target_vocab_size,
                    "logits",
                    kernel_initializer=tf.truncated_normal_initializer(stddev=0.02),
                )

    def _stage(self, block: int) -> contextlib.AbstractContextManager[None]:
        """The stage of a block, counted from the encoder's first to the decoder's last."""
        return layers.stage(layers.spread(block, 2 * self.options.num_layers, self.options.num_stages))

    def _embed(self, ids_BT: tf.Tensor, vocab_size: int, *, training: bool) -> tf.Tensor:
        dim = self.options.dim
        x_BTD = layers.embedding("embedding", vocab_size, dim, ids_BT) * dim**0.5
        return layers.dropout(
            x_BTD + layers.sinusoidal_positions(int(ids_BT.shape[1]), dim), self.options.dropout, training=training
        )

    def _block(self, x_BTD: tf.Tensor, layer: int, *, training: bool, **attention: tf.Tensor) -> tf.Tensor:
        return layers.transformer_block(
            x_BTD,
            num_heads=self.options.num_heads,
            hidden=self.options.hidden,
            name=f"block{layer}",
            training=training,
            dropout_rate=self.options.dropout,
            **attention,
        )

    def _output(self, logits_BTV: tf.Tensor, target_BT: tf.Tensor, *, training: bool) -> layers.ModelOutput:
        """The loss as the mean over all symbols, the most probable symbols, and the loss by example."""
        is_symbol_BT = tf.cast(tf.not_equal(target_BT, layers.PADDING_ID), tf.float32)
        loss_BT = self._loss_of_symbols(logits_BTV, target_BT, training=training) * is_symbol_BT
        num_symbols = tf.reduce_sum(is_symbol_BT)
        num_symbols_B = tf.maximum(tf.reduce_sum(is_symbol_BT, axis=1), 1)
        return layers.ModelOutput(
            loss=tf.reduce_sum(loss_BT) / tf.maximum(num_symbols, 1),
            predictions=tf.argmax(logits_BTV, axis=2),
            metrics={"log_loss": tf.reduce_sum(loss_BT, axis=1) / num_symbols_B},
            loss_weight=num_symbols,
        )

    def _loss_of_symbols(self, logits_BTV: tf.Tensor, target_BT: tf.Tensor, *, training: bool) -> tf.Tensor:
        smoothing = self.options.label_smoothing if training else 0.0
        loss_BT = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target_BT, logits=logits_BTV)
        if not smoothing:
            return loss_BT
        of_all_BT = -tf.reduce_mean(tf.nn.log_softmax(logits_BTV), axis=2)
        return (1 - smoothing) * loss_BT + smoothing * of_all_BT

    def _translate(self, source_BS: tf.Tensor, memory_BSD: tf.Tensor, length: int) -> tf.Tensor:
        beam_size = self.options.beam_size
        source_NS, memory_NSD = (tf.repeat(x, beam_size, axis=0) for x in (source_BS, memory_BSD))

        def next_logits(before_NT: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
            with tf.variable_scope("", reuse=True):
                return self._decode(before_NT[:, :-1], memory_NSD, source_NS, training=False)[:, at]

        return layers.decode(
            next_logits,
            tf.shape(source_BS)[0],
            length=length,
            beam_size=beam_size,
            length_penalty=self.options.length_penalty,
        )
