"""Deep bidirectional recurrent network with connectionist temporal classification (CTC), for speech."""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from . import layers

CELLS = {"lstm": layers.lstm, "gru": layers.gru}
"""Kinds of recurrent layers."""


class Speech:
    """Speech recognition: predicts a sequence of symbols with bidirectional recurrent layers and CTC.

    For each frame of a spectrogram the layers compute the probability of each symbol and of an extra one, the blank. An
    alignment has a symbol or the blank in each frame. It becomes a sequence by merging repetitions and then removing
    blanks. The loss of an example is

        -log sum over the alignments of the transcript of the product over the frames of P(symbol in that frame)

    With `beam_width=0` the prediction is the sequence of the most probable alignment. Otherwise it is the most probable
    sequence that a beam search with `beam_width` hypotheses finds.

    Source: A. Graves et al., "Connectionist Temporal Classification: Labelling Unsegmented Sequence Data with Recurrent
    Neural Networks", ICML 2006; D. Amodei et al., "Deep Speech 2", ICML 2016. Expected on dataset `tones`: a label
    error rate below 0.05.

    Shape suffixes: B batch, T frames, F frequencies, L symbols of a transcript, N symbols and the blank.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Speech`."""

        num_classes: int = layers.option(10, "number of symbols, without the blank", least=1)
        cell: str = layers.option("lstm", "kind of recurrent layer", choices=CELLS)
        units: tuple[int, ...] = layers.option((48, 48), "units of each layer in each direction", least=1)
        dropout: float = layers.option(0.0, "share of each layer's inputs set to 0 in training", least=0, below=1)
        beam_width: int = layers.option(0, "hypotheses of the beam search; 0: the best symbol of each frame", least=0)

        def __post_init__(self) -> None:
            if not self.units:
                raise ValueError("units is empty; give at least one layer")

    defaults = layers.TrainingSettings(optimizer="adam", learning_rate=0.003, batch_size=16)

    no_preset = "Deep Speech 2 has convolutions and batch norms, which this model lacks"

    def __init__(self, options: Options):
        self.options = options

    def chance_metrics(self) -> dict[str, float]:
        """Returns the test metric of empty transcripts: CTC begins with those, and may stay there for some epochs."""
        return {"label_error_rate": 1.0}

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "frames" float32 [B, T, F]; "num_frames" int64 [B]; "ids" int64 [B, L], padded with -1; "num_ids"
                int64 [B], at least 1.
            training: Whether to apply dropout.

        Returns:
            Mean CTC loss; predictions int64 [B, T], padded with -1; "label_error_rate", the edit distance from
            prediction to transcript divided by the length of the transcript.
        """
        x_BTF, num_frames_B = batch["frames"], batch["num_frames"]
        for number, units in enumerate(self.options.units):
            x_BTF = layers.dropout(x_BTF, self.options.dropout, training=training)
            cell = CELLS[self.options.cell]
            x_BTF = layers.bidirectional(cell, x_BTF, units, f"layer{number}", length_B=num_frames_B)
        logits_BTN = layers.dense(x_BTF, self.options.num_classes + 1, "logits")
        # CTC's ops expect time as first dimension, 32-bit lengths, sparse transcripts, and the blank as last symbol.
        logits_TBN, length_B = tf.transpose(logits_BTN, [1, 0, 2]), tf.cast(num_frames_B, tf.int32)
        truth = _to_sparse(batch["ids"])
        loss_B = tf.nn.ctc_loss(tf.cast(truth, tf.int32), logits_TBN, length_B)
        decoded = self._decode(logits_TBN, length_B)
        predictions_BT = tf.sparse.to_dense(
            tf.SparseTensor(decoded.indices, decoded.values, tf.shape(logits_BTN, out_type=tf.int64)[:2]),
            default_value=-1,
        )
        # Divided by the length of the transcript, which must not be 0: the quotient would be infinite.
        error_rate_B = tf.edit_distance(decoded, truth)
        return layers.ModelOutput(tf.reduce_mean(loss_B), predictions_BT, {"label_error_rate": error_rate_B})

    def _decode(self, logits_TBN: tf.Tensor, length_B: tf.Tensor) -> tf.SparseTensor:
        """Returns the predicted sequences, int64 [B, up to T]."""
        if self.options.beam_width:
            # The search has merged the repetitions of each alignment. `merge_repeated` would also merge symbols that
            # really occur twice, as in "hello".
            (decoded,), _ = tf.nn.ctc_beam_search_decoder(
                logits_TBN, length_B, beam_width=self.options.beam_width, merge_repeated=False
            )
        else:
            (decoded,), _ = tf.nn.ctc_greedy_decoder(logits_TBN, length_B)
        return decoded


def _to_sparse(ids_BL: tf.Tensor) -> tf.SparseTensor:
    """Converts padded sequences to a sparse tensor without the padding, -1."""
    where = tf.where(ids_BL >= 0)
    return tf.SparseTensor(where, tf.gather_nd(ids_BL, where), tf.shape(ids_BL, out_type=tf.int64))
