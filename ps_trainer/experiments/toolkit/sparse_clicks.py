"""`SparseClicks`: the clicks of `planted_clicks` as sparse examples, for `logistic_regression`. Imports TensorFlow."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_trainer.data.generators.ad_clicks import PlantedClicks


class SparseClicks(PlantedClicks):
    """Clicks whose features are the values of all columns of categories, which follow Zipf's law.

    Batches: "ids" int64 [B, 26], distinct between columns; "values" float32 [B, 26], all 1; "label" int64 [B]. There
    are 26 · num_buckets features. 8 of the 26 columns have weights that a linear model can learn.
    """

    def __init__(self, options: PlantedClicks.Options, *, data_dir: str | None = None):
        super().__init__(options, data_dir=data_dir)
        self._num_buckets = options.num_buckets

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = super()._decode(batch)["ids"]
        ids += self._num_buckets * tf.range(ids.shape[-1], dtype=tf.int64)
        return {"ids": ids, "values": tf.ones_like(ids, tf.float32), "label": batch["label"]}
