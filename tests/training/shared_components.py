"""A model and a dataset whose evaluation takes long in little CPU time, for tests of its division among workers."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from models import layers
from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.options import option

BATCH_SIZE = 256
NUM_FEATURES = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlowOptions:
    """Options of `Slow`."""

    num_examples: int = option(20 * BATCH_SIZE - 100, "test examples; the last batch is not full")
    secs: float = option(0.0, "time to prepare a batch of test examples")
    notes: str = option("", "folder in which each process notes each test batch that it has prepared")


class Slow(ArraySource):
    """Rows with a label; each test batch takes a while."""

    Options = SlowOptions

    def __init__(self, options: SlowOptions, *, data_dir: str | None = None):
        random = np.random.RandomState(5)

        def rows(count: int) -> dict[str, np.ndarray]:
            return {
                "number": np.arange(count, dtype=np.int64),
                "x": random.standard_normal([count, NUM_FEATURES]).astype(np.float32),
                "label": random.randint(0, 2, count).astype(np.int64),
            }

        super().__init__(rows(64), rows(options.num_examples), num_classes=2)
        self._options = options

    def _batches(self, records, batch_size, **settings):
        batches = super()._batches(records, batch_size, **settings)
        return batches if "draw_from" in settings else batches.map(self._prepare, num_parallel_calls=1)

    def _prepare(self, batch):
        def wait(number):
            if self._options.notes:
                (pathlib.Path(self._options.notes) / f"{os.getpid()}-{number[0]}").touch()
            time.sleep(self._options.secs)
            return number

        number = tf.numpy_function(wait, [batch["number"]], tf.int64)
        number.set_shape(batch["number"].shape)
        return batch | {"number": number}


class Clicks:
    """A linear model with means, a weight of each batch that is not its size, and a pooled metric."""

    def build(self, batch, training):
        logit_B = layers.dense(batch["x"], 1, "logits")[:, 0]
        loss_B = tf.nn.sigmoid_cross_entropy_with_logits(logits=logit_B, labels=tf.cast(batch["label"], tf.float32))
        is_used_B = tf.cast(batch["number"] % 3 > 0, tf.float32)
        weight = tf.maximum(tf.reduce_sum(is_used_B), 1.0)
        return layers.ModelOutput(
            tf.reduce_sum(loss_B * is_used_B) / weight,
            logit_B,
            {"number": tf.cast(batch["number"], tf.float32), "logit": logit_B},
            loss_weight=weight,
            pooled={"auc": layers.roc_auc(logit_B, batch["label"])},
        )


class Embedded(Clicks):
    """`Clicks` with the row of each example in a table of 64 MiB."""

    num_rows, dim = 2**20, 16

    def build(self, batch, training):
        output = super().build(batch, training)
        rows_BD = layers.embedding("table", self.num_rows, self.dim, batch["number"])
        row_B = tf.reduce_sum(rows_BD, axis=1)
        return output._replace(loss=output.loss + tf.reduce_mean(row_B), metrics=output.metrics | {"row": row_B})


class StreamingOutput(NamedTuple):
    """Output with metrics of `tf.metrics`."""

    loss: tf.Tensor
    streaming: dict[str, tuple[tf.Tensor, tf.Tensor]]
    metrics: dict[str, tf.Tensor] = {}


class Streaming:
    """A model with a metric of `tf.metrics`, which one session must compute."""

    def build(self, batch, training):
        loss = tf.reduce_mean(layers.dense(batch["x"], 1, "logits"))
        return StreamingOutput(loss, {"mean": tf.metrics.mean(batch["x"])})
