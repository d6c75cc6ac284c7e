"""Shuffled passes over the examples of a shard, which can begin at any example of any pass."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def shuffle_epochs(
    records: tf.data.Dataset,
    *,
    num_examples: int,
    num_shuffled: int,
    seed: int,
    num_epochs: int | None,
    start: int | tf.Tensor = 0,
) -> tf.data.Dataset:
    """Reads `records` again in each epoch, each time in another order.

    The order is the same as with `records.shuffle(num_shuffled, seed=seed).repeat(num_epochs)`. That dataset knows the
    order of an epoch only after it has read all epochs before it. TensorFlow shuffles each epoch from two random
    numbers. This function draws them from the same generator, so it skips whole epochs without reading them. In the
    epoch of `start` it reads the records before `start`, but does not decode them.

    Args:
        records: Records of the shard, in file order.
        num_examples: Number of records.
        num_shuffled: Size of the shuffle buffer in records.
        seed: Seed of the shard; the order depends on the graph's seed as well.
        num_epochs: Number of passes; None = endless.
        start: Number of records to skip, counted over all epochs; int64 scalar. The result is empty if `start` is
            beyond the last epoch.
    """
    start = tf.convert_to_tensor(start, tf.int64)
    # Two numbers for each epoch, drawn for skipped epochs as well.
    seeds = tf.data.Dataset.random(seed=seed).batch(2, drop_remainder=True)
    seeds = seeds.take(-1 if num_epochs is None else num_epochs).skip(start // num_examples)
    return seeds.flat_map(lambda pair: _shuffle_once(records, num_shuffled, pair)).skip(start % num_examples)


def _shuffle_once(records: tf.data.Dataset, num_shuffled: int, seeds: tf.Tensor) -> tf.data.Dataset:
    """Shuffles `records` from two seeds, int64 [2]."""
    # The op itself, because `Dataset.shuffle` takes only one seed and derives the other from the graph's.
    components = tf.nest.flatten(records.element_spec)
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(records),
        buffer_size=tf.constant(num_shuffled, tf.int64),
        seed=seeds[0],
        seed2=seeds[1],
        output_types=[component.dtype for component in components],
        output_shapes=[component.shape for component in components],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, records.element_spec)
