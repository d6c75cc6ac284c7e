"""Recurrent language model, as for the Penn Treebank: embedding, LSTM layers, softmax over the words."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import tensorflow.compat.v1 as tf

from . import layers

LOSSES = ("full_softmax", "sampled_softmax")
"""Names of the losses of training."""


class LstmLm:
    """LSTM language model with a softmax over all words or, in training, over a sample of them.

    Embedding, `num_layers` LSTM layers of `units`, softmax. Dropout is before each layer and after the last, but not
    between time steps. Each window starts with a state of zeros. With full_softmax the output's matrix is a dense
    variable. With sampled_softmax it is a table, and in training only the rows of the batch's words and of
    `num_sampled` others travel. Evaluation computes the loss over all words.

    On text from a Markov chain the loss must come near the chain's entropy rate. On PTB words, the source's small model
    has a test perplexity of 115.9, but keeps the state from window to window. It has dim = units = 200, 2 layers, T =
    20, batch 20, and gradients clipped to norm 5.

    Source: W. Zaremba, I. Sutskever, O. Vinyals, "Recurrent Neural Network Regularization", 2014; for the sample: S.
    Jean et al., "On Using Very Large Target Vocabulary for Neural Machine Translation", ACL 2015.

    Shape suffixes: B batch, T time, D features, N the B * T words of a batch, V vocabulary.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `LstmLm`."""

        vocab_size: int = layers.option(10000, "number of different words; ids must be smaller", least=1)
        dim: int = layers.option(64, "features of a word", least=1)
        units: int = layers.option(128, "units of each LSTM layer", least=1)
        num_layers: int = layers.option(1, "number of LSTM layers", least=1)
        num_stages: int = layers.option(
            1, "number of stages of LSTM layers and softmax, for --placement=model_parallel", least=1
        )
        dropout: float = layers.option(0.0, "share of values set to 0 in training", least=0, below=1)
        loss: str = layers.option("full_softmax", "loss of training", choices=LOSSES)
        num_sampled: int = layers.option(64, "number of words that sampled_softmax draws for a batch", least=1)

        def __post_init__(self) -> None:
            if self.num_stages > self.num_layers + 1:
                raise ValueError(
                    f"num_stages={self.num_stages} exceeds the {self.num_layers + 1} layers, the softmax included"
                )
            if self.loss == "sampled_softmax" and self.num_sampled > self.vocab_size:
                raise ValueError(f"num_sampled={self.num_sampled} exceeds vocab_size={self.vocab_size}")

    defaults = layers.TrainingSettings(optimizer="adam", learning_rate=0.005, batch_size=16)
    presets: ClassVar = {
        "paper": layers.Preset(
            model_option=("dim=650", "units=650", "num_layers=2", "dropout=0.5"),
            # The loss is the mean over 35 words, and not their sum: 35 times the rate, and 1 / 35 of the norm.
            optimizer="sgd",
            learning_rate=35.0,
            gradient_transform=("clip_norm:norm=0.142857",),
            # An epoch of the 929,589 words of PTB has 1,327 steps of 20 * 35 words. The 7th is the first with a lower
            # rate.
            schedule="exponential",
            schedule_option=("hold_steps=6635", "decay_steps=1327", "decay_rate=0.833333", "staircase=true"),
            batch_size=20,
            max_steps=51_753,
            source='W. Zaremba et al., "Recurrent Neural Network Regularization", 2014, section 4.1, medium LSTM',
            differences=(
                "the paper keeps the state from window to window, starts with values of at most 0.05, and sums the loss"
                " over the 35 words of a window, so that its rate is 1 and its largest norm 5; steps are those of PTB"
                " with --dataset_option=unit=word --dataset_option=context_length=35"
            ),
        )
    }

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float | None:
        """Returns the loss of a guess that knows nothing; None for a sampled loss, which is another one."""
        return math.log(self.options.vocab_size) if self.options.loss == "full_softmax" else None

    def chance_metrics(self) -> dict[str, float]:
        """Returns the test metric of such a guess, where the loss of training is a sampled one."""
        return {} if self.options.loss == "full_softmax" else {"nats_per_token": math.log(self.options.vocab_size)}

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "ids" int64 [B, T + 1]; the model predicts each of ids[:, 1:] from the ids before it.
            training: Whether to apply dropout, and whether a sampled loss uses a sample.

        Returns:
            Loss in nats per word. The most probable word at each place, int64 [B, T]; the true word if the loss uses a
            sample. "nats_per_token", whose mean has the perplexity as its exponential. Unless the loss uses a sample,
            also "accuracy".
        """
        h_BTD = self._hidden(batch["ids"][:, :-1], training=training)
        with layers.stage(self.options.num_stages - 1):
            return self._output(h_BTD, batch["ids"], training=training)

    def logits(self, ids_BT: tf.Tensor) -> tf.Tensor:
        """Computes the logits of the word after each place, to generate text.

        Args:
            ids_BT: int64 [B, T]; a place's logits do not depend on the ids after it.

        Returns:
            float32 [B, T, V].
        """
        h_BTD = self._hidden(ids_BT, training=False)
        with layers.stage(self.options.num_stages - 1):
            logits_NV = self._logits(tf.reshape(h_BTD, [-1, self.options.units]))
        return tf.reshape(logits_NV, tf.concat([tf.shape(ids_BT), [-1]], axis=0))

    def _output(self, h_BTD: tf.Tensor, ids_BS: tf.Tensor, *, training: bool) -> layers.ModelOutput:
        """Builds the output layer, the loss and the metrics; S = T + 1."""
        true_BT = ids_BS[:, 1:]
        h_BTD = layers.dropout(h_BTD, self.options.dropout, training=training)
        h_ND = tf.reshape(h_BTD, [-1, self.options.units])
        if training and self.options.loss == "sampled_softmax":
            loss_N = layers.sampled_loss(
                h_ND,
                tf.reshape(true_BT, [-1, 1]),
                self._rows,
                vocab_size=self.options.vocab_size,
                num_sampled=self.options.num_sampled,
            )
            loss_B = tf.reduce_mean(tf.reshape(loss_N, tf.shape(true_BT)), axis=1)
            return layers.ModelOutput(tf.reduce_mean(loss_B), true_BT, {"nats_per_token": loss_B})
        logits_NV = self._logits(h_ND)
        loss_BT = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=true_BT, logits=tf.reshape(logits_NV, tf.concat([tf.shape(true_BT), [-1]], axis=0))
        )
        likeliest_BT = tf.reshape(tf.argmax(logits_NV, axis=1), tf.shape(true_BT))
        is_right_BT = tf.cast(tf.equal(likeliest_BT, true_BT), tf.float32)
        loss_B = tf.reduce_mean(loss_BT, axis=1)
        metrics = {"nats_per_token": loss_B, "accuracy": tf.reduce_mean(is_right_BT, axis=1)}
        return layers.ModelOutput(tf.reduce_mean(loss_B), likeliest_BT, metrics)

    def _hidden(self, ids_BT: tf.Tensor, *, training: bool) -> tf.Tensor:
        h_BTD = layers.embedding(
            "embedding", self.options.vocab_size, self.options.dim, ids_BT, size_option="vocab_size"
        )
        # The look-up computes its shape in the graph, but the LSTM needs the number of features when it is built.
        h_BTD.set_shape([*ids_BT.shape, self.options.dim])
        for number in range(self.options.num_layers):
            with layers.stage(layers.spread(number, self.options.num_layers + 1, self.options.num_stages)):
                h_BTD = layers.dropout(h_BTD, self.options.dropout, training=training)
                h_BTD = layers.lstm(h_BTD, self.options.units, f"lstm{number}").output_BTU
        return h_BTD

    def _rows(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Looks up vectors and biases of words in the table."""
        units = self.options.units
        # The bias is the last column of the same table, so that a word needs one row and one look-up.
        rows = layers.embedding("output", self.options.vocab_size, units + 1, ids, size_option="vocab_size")
        return rows[..., :units], rows[..., units]

    def _logits(self, h_ND: tf.Tensor) -> tf.Tensor:
        if self.options.loss == "full_softmax":
            return layers.dense(h_ND, self.options.vocab_size, "logits")
        vector_VD, bias_V = self._rows(tf.range(self.options.vocab_size, dtype=tf.int64))
        return tf.matmul(h_ND, vector_VD, transpose_b=True) + bias_V
