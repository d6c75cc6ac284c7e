"""Reads datasets to their end, for tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.shard_plan import ShardPlan


def read_batches(
    make_dataset: Callable[[], tf.data.Dataset], max_batches: int | None = None
) -> list[dict[str, np.ndarray]]:
    """The batches of the dataset that `make_dataset` builds in a separate graph; `max_batches` of an endless one.

    AutoGraph, Grappler and `tf.data` leave it as it is: to translate or optimize it takes longer than to read it.
    """
    options = tf.data.Options()
    options.autotune.enabled = options.experimental_optimization.apply_default_optimizations = False
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # as in a training (`runtime/server.py`)
    as_written = tf.autograph.experimental.do_not_convert(make_dataset)
    with tf.Graph().as_default():
        iterator = tf.data.make_initializable_iterator(as_written().with_options(options))
        batch = iterator.get_next()
        batches: list[dict[str, np.ndarray]] = []
        with tf.Session(config=config) as session:
            session.run([iterator.initializer, tf.tables_initializer()])
            while max_batches is None or len(batches) < max_batches:
                try:
                    batches.append(session.run(batch))
                except tf.errors.OutOfRangeError:
                    break
    return batches


def read_column(make_dataset: Callable[[], tf.data.Dataset], name: str) -> np.ndarray:
    """One column of all batches, concatenated."""
    return np.concatenate([batch[name] for batch in read_batches(make_dataset)])


def read_shards(source: DataSource, num_workers: int) -> dict[str, np.ndarray]:
    """The training examples of all workers as one batch, shard after shard, each in file order.

    One pipeline reads all shards, which takes much less time to build than one for each.
    """

    def make_dataset() -> tf.data.Dataset:
        records = source._records("train", Shard(0, num_workers))
        for index in range(1, num_workers):
            records = records.concatenate(source._records("train", Shard(index, num_workers)))
        return source._batches(records, source.num_train_examples, drop_remainder=False)

    (batch,) = read_batches(make_dataset)
    return batch


def read_leased(source: DataSource, name: str) -> np.ndarray:
    """One column of the training examples as read by a worker that is given all shards of an epoch."""
    num_examples = source.num_train_examples
    plan = ShardPlan(num_examples, batch_size=2, num_shards=min(2, num_examples), num_epochs=1, seed=0)
    leases = np.array([[0, shard, 0] for shard in plan.order(0)])

    def make_dataset() -> tf.data.Dataset:
        leased = source.train_leased(tf.data.Dataset.from_tensor_slices(leases), plan)
        return leased.map(lambda position, batch: batch)

    return read_column(make_dataset, name)


def numbered_columns(num_examples):
    """Columns with label i at position i, and an image whose first pixel is i."""
    images = np.zeros((num_examples, 2, 3, 1), np.uint8)
    images[:, 0, 0, 0] = np.arange(num_examples)
    return {"image": images, "label": np.arange(num_examples, dtype=np.int64)}
