"""The model and the data of an old TF1 script, as two classes: see docs/howto/bring-a-tf1-model.md."""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource, Shard
from ps_trainer.models.layers import ModelOutput

NUM_EXAMPLES = {"train": 4096, "test": 512}


def input_fn(split: str) -> tf.data.Dataset:
    """The script's own function: single examples, the same in every task."""
    random = np.random.RandomState(len(split))
    x = random.normal(size=[NUM_EXAMPLES[split], 64]).astype(np.float32)
    label = np.argmax(x[:, :4], axis=1)
    return tf.data.Dataset.from_tensor_slices({"x": x, "label": label})


class Input(DataSource):
    """The examples of `input_fn`: "x" float32 [B, 64]; "label" int64 [B], 0..3."""

    num_train_examples = NUM_EXAMPLES["train"]
    num_test_examples = NUM_EXAMPLES["test"]

    def __init__(self, *, data_dir: str | None = None):
        del data_dir  # the value of --data_dir

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        return input_fn(split).shard(shard.count, shard.index)

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return batch


class Model:
    """Softmax regression, as the script built it."""

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> ModelOutput:
        """Loss, class probabilities and accuracy of a batch."""
        del training
        w = tf.get_variable("w", [64, 4])
        b = tf.get_variable("b", [4], initializer=tf.zeros_initializer())
        logits = tf.matmul(batch["x"], w) + b
        is_right = tf.equal(tf.argmax(logits, 1), batch["label"])
        return ModelOutput(
            loss=tf.losses.sparse_softmax_cross_entropy(batch["label"], logits),
            predictions=tf.nn.softmax(logits),
            metrics={"accuracy": tf.cast(is_right, tf.float32)},
        )
