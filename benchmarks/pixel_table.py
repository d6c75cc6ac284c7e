"""A small model with an embedding table, for update rules that need one."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from models import layers

_LEVELS = 17  # a pixel of the digits is one of 0..16
_NUM_PIXELS = 8 * 8
_DIM = 8


class PixelTable:
    """The digits by an embedding table of 1,088 rows (a row per pixel and grey level) and two dense layers.

    A batch of 32 images looks up about half of the rows. Shape suffixes: B batch, P pixels, D features of all
    pixels.
    """

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> layers.ModelOutput:
        """The graph of one batch.

        Args:
            batch: "image" float32 [B, 8, 8, 1] in 0..1; "label" int64 [B], 0..9.
            training: not used, both graphs are the same.

        Returns:
            Loss, class probabilities [B, 10] and "accuracy".
        """
        del training
        level_BP = tf.cast(tf.round(layers.flatten(batch["image"]) * (_LEVELS - 1)), tf.int64)
        row_BP = level_BP + _LEVELS * tf.range(_NUM_PIXELS, dtype=tf.int64)
        x_BD = layers.flatten(layers.embedding("pixels", _LEVELS * _NUM_PIXELS, _DIM, row_BP))
        x_BD = layers.dense(x_BD, 64, "hidden", activation=tf.nn.relu)
        return layers.classifier_output(layers.dense(x_BD, 10, "logits"), batch["label"])
