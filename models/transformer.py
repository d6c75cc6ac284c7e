"""Transformer for translation: encoder and decoder."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import ClassVar

import tensorflow.compat.v1 as tf

from . import layers


class Transformer:
    """Encoder and decoder of attention blocks, for the translation of texts.

        encoder   embedding * sqrt(dim) + positions, `num_layers` blocks, norm
        decoder   the same for the target shifted by one; its blocks attend to the encoder's output and to no later
                  symbol; dense layer to the logits of the next symbol

    The blocks are `layers.transformer_block`, with the norm in front. Training predicts each symbol from the true
    symbols before it. Evaluation translates with `layers.decode`, by greedy or beam search.

    Parameters with the defaults, for dataset `numbers`: 238,226.

    Source: A. Vaswani et al., "Attention Is All You Need", NIPS 2017. Expected on dataset `numbers`: the exact
    translation of 95 % of the test numbers.

    Shape suffixes: B batch, S symbols of the source, T symbols of the target, D features, V vocabulary.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Transformer`."""

        source_vocab_size: int = layers.option(34, "size of the source's vocabulary; ids must be smaller", least=1)
        target_vocab_size: int = layers.option(18, "size of the target's vocabulary; ids must be smaller", least=1)
        num_layers: int = layers.option(2, "number of blocks of the encoder, and of the decoder", least=1)
        dim: int = layers.option(64, "number of features, even", least=1)
        num_heads: int = layers.option(4, "heads of each attention; divides dim", least=1)
        hidden: int = layers.option(256, "units of the feed-forward part of a block", least=1)
        num_stages: int = layers.option(1, "number of stages of the blocks, for --placement=model_parallel", least=1)
        dropout: float = layers.option(0.0, "share of values set to 0 in training", least=0, below=1)
        label_smoothing: float = layers.option(
            0.0, "share of the target's probability that is spread over all symbols", least=0, below=1
        )
        beam_size: int = layers.option(1, "hypotheses of the beam search; 1: greedy search", least=1)
        length_penalty: float = layers.option(
            0.6, "exponent of the length penalty; larger values favour longer translations, 0: none", least=0
        )

        def __post_init__(self) -> None:
            if self.dim % 2 or self.dim % self.num_heads:
                raise ValueError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")
            if self.num_stages > 2 * self.num_layers:
                raise ValueError(f"num_stages={self.num_stages} exceeds the {2 * self.num_layers} blocks")
            if self.beam_size > self.target_vocab_size:
                raise ValueError(f"beam_size={self.beam_size} exceeds target_vocab_size={self.target_vocab_size}")

    defaults = layers.TrainingSettings(
        optimizer="adam",
        optimizer_option=("beta2=0.98",),
        learning_rate=0.003,
        schedule="inverse_sqrt",
        schedule_option=("warmup_steps=100",),
    )
    presets: ClassVar = {
        "paper": layers.Preset(
            model_option=(
                "num_layers=6",
                "dim=512",
                "num_heads=8",
                "hidden=2048",
                "dropout=0.1",
                "label_smoothing=0.1",
                "beam_size=4",
                "length_penalty=0.6",
            ),
            optimizer="adam",
            optimizer_option=("beta2=0.98", "epsilon=1e-9"),
            learning_rate=0.000698771,  # 512 ** -0.5 * 4000 ** -0.5, the peak
            schedule="inverse_sqrt",
            schedule_option=("warmup_steps=4000",),
            max_steps=100_000,
            source='A. Vaswani et al., "Attention Is All You Need", NIPS 2017, sections 5.2 to 6.1, base model',
            differences="the paper fills a batch with 25,000 source and target tokens, and averages 5 checkpoints",
        )
    }

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float:
        """Returns the loss of a guess that knows nothing."""
        return math.log(self.options.target_vocab_size)

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "source" int64 [B, S] and "target" int64 [B, T]: numbers of symbols, then 2 (the end), then zeros.
            training: Whether to apply dropout and label smoothing instead of translating.

        Returns:
            Mean loss over the target's symbols. Predictions int64 [B, T]: in training the most probable symbol after
            each of the target's, in evaluation the translation. Metrics: "log_loss", the mean over an example's
            symbols; in evaluation "exact_match", 1 if the translation equals the target.
        """
        source_BS, target_BT = batch["source"], batch["target"]
        memory_BSD = self._encode(source_BS, training=training)
        before_BT = tf.pad(target_BT[:, :-1], [[0, 0], [1, 0]], constant_values=layers.START_ID)
        logits_BTV = self._decode(before_BT, memory_BSD, source_BS, training=training)
        with layers.stage(self.options.num_stages - 1):
            output = self._output(logits_BTV, target_BT, training=training)
        if training:
            return output
        options = self.options
        translation_BT = self._translate(
            source_BS, memory_BSD, int(target_BT.shape[1]), options.beam_size, options.length_penalty
        )
        is_exact_B = tf.reduce_all(tf.equal(translation_BT, target_BT), axis=1)
        metrics = {**output.metrics, "exact_match": tf.cast(is_exact_B, tf.float32)}
        return output._replace(predictions=translation_BT, metrics=metrics)

    def translate(
        self,
        source_BS: tf.Tensor,
        length: int,
        *,
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> tf.Tensor:
        """Translates texts by beam search, as in evaluation.

        Args:
            source_BS: int64 [B, S], S static, numbers of symbols, then 2 (the end), then zeros.
            length: Most symbols of a translation including the end, L.
            beam_size: Number of hypotheses; None = the model's option.
            length_penalty: Exponent of the length penalty; None = the model's option.

        Returns:
            int64 [B, L]: the symbols, the end, then zeros; a translation of L symbols has no end.
        """
        memory_BSD = self._encode(source_BS, training=False)
        # Creates the variables, which the loop of the search must not do.
        self._decode(tf.ones_like(source_BS[:, :1]) * layers.START_ID, memory_BSD, source_BS, training=False)
        return self._translate(
            source_BS,
            memory_BSD,
            length,
            self.options.beam_size if beam_size is None else beam_size,
            self.options.length_penalty if length_penalty is None else length_penalty,
        )

    def _encode(self, source_BS: tf.Tensor, *, training: bool) -> tf.Tensor:
        with tf.variable_scope("encoder"):
            x_BSD = self._embed(source_BS, "source_vocab_size", training=training)
            for layer in range(self.options.num_layers):
                with self._stage(layer):
                    # Built inside of the stage: the worker that computes it receives the ids and makes its own mask.
                    mask = layers.padding_mask(source_BS)
                    x_BSD = self._block(x_BSD, layer, training=training, mask=mask)
            with self._stage(self.options.num_layers - 1):
                return layers.layer_norm(x_BSD, "norm")

    def _decode(
        self,
        before_BT: tf.Tensor,
        memory_BSD: tf.Tensor,
        source_BS: tf.Tensor,
        *,
        training: bool,
        last_only: bool = False,
    ) -> tf.Tensor:
        """Computes the logits [B, T, V] of the symbol after each position, or [B, 1, V] after the last one only."""
        with tf.variable_scope("decoder"):
            with self._stage(self.options.num_layers):
                # In the stage of the first block, so that the rows do not travel to another worker first.
                x_BTD = self._embed(before_BT, "target_vocab_size", training=training)
            for layer in range(self.options.num_layers):
                with self._stage(self.options.num_layers + layer):
                    memory = layers.Memory(memory_BSD, layers.padding_mask(source_BS))
                    mask = layers.causal_mask(layers.length_of(x_BTD))
                    x_BTD = self._block(x_BTD, layer, training=training, mask=mask, memory=memory)
            with self._stage(2 * self.options.num_layers - 1):
                return layers.dense(
                    layers.layer_norm(x_BTD[:, -1:] if last_only else x_BTD, "norm"),
                    self.options.target_vocab_size,
                    "logits",
                    kernel_initializer=tf.truncated_normal_initializer(stddev=0.02),
                )

    def _stage(self, block: int) -> contextlib.AbstractContextManager[None]:
        """Enters the stage of a block, counted from the encoder's first to the decoder's last."""
        return layers.stage(layers.spread(block, 2 * self.options.num_layers, self.options.num_stages))

    def _embed(self, ids_BT: tf.Tensor, size_option: str, *, training: bool) -> tf.Tensor:
        dim = self.options.dim
        vocab_size = getattr(self.options, size_option)
        x_BTD = layers.embedding("embedding", vocab_size, dim, ids_BT, size_option=size_option) * dim**0.5
        return layers.dropout(
            x_BTD + layers.sinusoidal_positions(layers.length_of(ids_BT), dim), self.options.dropout, training=training
        )

    def _block(
        self, x_BTD: tf.Tensor, layer: int, *, training: bool, mask: tf.Tensor, memory: layers.Memory | None = None
    ) -> tf.Tensor:
        block = layers.BlockOptions(self.options.num_heads, self.options.hidden, self.options.dropout)
        return layers.transformer_block(x_BTD, block, f"block{layer}", training=training, mask=mask, memory=memory)

    def _output(self, logits_BTV: tf.Tensor, target_BT: tf.Tensor, *, training: bool) -> layers.ModelOutput:
        """Returns the mean loss over all symbols, the most probable symbols, and the loss of each example."""
        is_symbol_BT = tf.cast(tf.not_equal(target_BT, layers.PADDING_ID), tf.float32)
        loss_BT = self._loss_of_symbols(logits_BTV, target_BT, training=training) * is_symbol_BT
        num_symbols = tf.reduce_sum(is_symbol_BT)
        # At least 1, so that a text without symbols has the loss 0 and not 0 / 0.
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

    def _translate(
        self, source_BS: tf.Tensor, memory_BSD: tf.Tensor, length: int, beam_size: int, length_penalty: float
    ) -> tf.Tensor:
        source_NS, memory_NSD = (tf.repeat(x, beam_size, axis=0) for x in (source_BS, memory_BSD))

        def next_logits(before_NT: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
            # The body of a loop must not create variables. The callers have created these before.
            with tf.variable_scope("", reuse=True):
                so_far = before_NT[:, : at + 1]
                return self._decode(so_far, memory_NSD, source_NS, training=False, last_only=True)[:, 0]

        return layers.decode(
            next_logits, tf.shape(source_BS)[0], length=length, beam_size=beam_size, length_penalty=length_penalty
        )
