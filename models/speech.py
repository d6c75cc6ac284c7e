"""A deep bidirectional recurrent network with connectionist temporal classification, for speech."""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from . import layers

CELLS = {"lstm": layers.lstm, "gru": layers.gru}


class Speech:
    """What was said, as a sequence of symbols, by bidirectional recurrent layers and CTC.

    From each frame of a spectrogram, and those before and after it, the layers tell the probability of each symbol, and
    of one more, the blank. An alignment says a symbol or the blank in each frame; it stands for what is left when
    repetitions are made one and then the blanks are taken out. The loss of an example is

        -log sum over the alignments that stand for the transcript of the product over the frames of P(symbol there)

    The prediction is the most probable alignment's (`beam_width=0`), or the most probable sequence's, as
    far as a search finds it that follows the `beam_width` best beginnings.

    Batch: "frames" float32 [B, T, F]; "num_frames" int64 [B]; "ids" int64 [B, L], filled up with -1; "num_ids" int64
    [B], at least 1. The predictions are int64 [B, T], filled up with -1. Metric: "label_error_rate", the edit distance
    from prediction to transcript divided by the length of the transcript.

    Source: A. Graves et al., "Connectionist Temporal Classification: Labelling Unsegmented Sequence Data with Recurrent
    Neural Networks", ICML 2006; D. Amodei et al., "Deep Speech 2", ICML 2016. On the `tones` it comes to a label error
    rate below 0.05.

    Shape suffixes: B batch, T frames, F frequencies, L symbols of a transcript, N symbols and the blank.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Speech`."""

        num_classes: int = layers.option(10, "symbols, without the blank", least=1)
        cell: str = layers.option("lstm", "kind of recurrent layer", choices=CELLS)
        units: tuple[int, ...] = layers.option((48, 48), "of each layer in each direction, with commas", least=1)
        dropout: float = layers.option(0.0, "share of each layer's inputs left out", least=0, below=1)
        beam_width: int = layers.option(
            0, "beginnings that the search follows; 0: the best symbol of each frame", least=0
        )

        def __post_init__(self) -> None:
            if not self.units:
                raise ValueError("units is empty: give at least one layer")

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """See the class.

        Args:
            batch: see the class.
            training: whether dropout is applied.
        """
        x_BTF, num_frames_B = batch["frames"], batch["num_frames"]
        for number, units in enumerate(self.options.units):
            x_BTF = layers.dropout(x_BTF, self.options.dropout, training=training)
            cell = CELLS[self.options.cell]
            x_BTF = layers.bidirectional(cell, x_BTF, units, f"layer{number}", length_B=num_frames_B)
        logits_BTN = layers.dense(x_BTF, self.options.num_classes + 1, "logits")
        # CTC's ops take time first, 32-bit lengths, sparse transcripts, and the blank as the last symbol.
        logits_TBN, length_B = tf.transpose(logits_BTN, [1, 0, 2]), tf.cast(num_frames_B, tf.int32)
        truth = _to_sparse(batch["ids"])
        loss_B = tf.nn.ctc_loss(tf.cast(truth, tf.int32), logits_TBN, length_B)
        said = self._decode(logits_TBN, length_B)
        predictions_BT = tf.sparse.to_dense(
            tf.SparseTensor(said.indices, said.values, tf.shape(logits_BTN, out_type=tf.int64)[:2]), default_value=-1
        )
        error_rate_B = tf.edit_distance(said, truth)
        return layers.ModelOutput(tf.reduce_mean(loss_B), predictions_BT, {"label_error_rate": error_rate_B})

    def _decode(self, logits_TBN: tf.Tensor, length_B: tf.Tensor) -> tf.SparseTensor:
        """int64 [B, up to T]."""
        if self.options.beam_width:
            (said,), _ = tf.nn.ctc_beam_search_decoder(
                logits_TBN, length_B, beam_width=self.options.beam_width, merge_repeated=False
            )
        else:
            (said,), _ = tf.nn.ctc_greedy_decoder(logits_TBN, length_B)
        return said


def _to_sparse(ids_BL: tf.Tensor) -> tf.SparseTensor:
    """Without the -1s."""
    where = tf.where(ids_BL >= 0)
    return tf.SparseTensor(where, tf.gather_nd(ids_BL, where), tf.shape(ids_BL, out_type=tf.int64))
