"""Shuffled passes over the examples of a shard, from any example of any pass on."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def shuffled(
    records: tf.data.Dataset,
    *,
    num_examples: int,
    num_shuffled: int,
    seed: int,
    num_epochs: int | None,
    start: int | tf.Tensor = 0,
) -> tf.data.Dataset:
    """Pass after pass over `records`, each in another order.

    The order is that of `records.shuffle(num_shuffled, seed=seed).repeat(num_epochs)`. That dataset knows the order
    of a pass only after all passes before it. This one draws the two numbers from which TensorFlow shuffles each pass
    from the same generator, so it passes over whole epochs without reading them. Of the epoch in which `start` lies it
    reads the records before `start`, and nothing is decoded for them.

    Args:
        records: of the shard, in file order.
        num_examples: how many they are.
        num_shuffled: records among which the next one is drawn.
        seed: of the shard; the graph's seed counts as well.
        num_epochs: passes; None = endless.
        start: records to pass over, counted over all epochs; int64 scalar. Beyond the last epoch nothing is left.
    """
    start = tf.convert_to_tensor(start, tf.int64)
    seeds = tf.data.Dataset.random(seed=seed).batch(2, drop_remainder=True)
    seeds = seeds.take(-1 if num_epochs is None else num_epochs).skip(start // num_examples)
    return seeds.flat_map(lambda pair: _shuffled_once(records, num_shuffled, pair)).skip(start % num_examples)


def _shuffled_once(records: tf.data.Dataset, num_shuffled: int, seeds: tf.Tensor) -> tf.data.Dataset:
    """`Dataset.shuffle` takes one number as its seed; the op that it is made of takes both."""
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
