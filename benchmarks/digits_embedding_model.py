"""The CNN behind a small embedding table, for update rules that need a table."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_trainer.models import layers
from ps_trainer.models.cnn import Cnn

_LEVELS = 17  # a pixel of the digits is one of 0..16
_DIM = 8


class PixelTable:
    """The CNN on the digits, whose pixels' grey levels are first looked up in an embedding table, a row per level.

    Shape suffixes: B batch, H height, W width, C channels.
    """

    def __init__(self) -> None:
        self._cnn = Cnn(Cnn.Options())

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "image" float32 [B, 8, 8, 1] in 0..1; "label" int64 [B], 0..9.
            training: Not used; both graphs are the same.

        Returns:
            Loss, class probabilities [B, 10] and "accuracy".
        """
        level_BHW = tf.cast(tf.round(batch["image"][..., 0] * (_LEVELS - 1)), tf.int64)
        x_BHWC = layers.embedding("levels", _LEVELS, _DIM, level_BHW)
        return self._cnn.build({**batch, "image": x_BHWC}, training=training)
