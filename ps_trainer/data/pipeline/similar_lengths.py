"""An order of shuffled records in which a batch holds examples of similar length, so that little of it is padding.

The records are taken in pools of several batches. Within a pool they are sorted by length, cut into batches, and the
batches follow each other in random order. The order follows from the seed, so a run can begin at any record again.

Source: M. Ott et al., "fairseq: A Fast, Extensible Toolkit for Sequence Modeling", NAACL 2019, section 3 (batching).
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

Records = dict[str, tf.Tensor]

POOL_BATCHES = 32
"""Batches of a pool: more would leave less padding, and make the batches less random."""


def group_records(
    read: Callable[[tf.Tensor], tf.data.Dataset],
    lengths_of: Callable[[Records], tf.Tensor],
    *,
    batch_size: int,
    num_examples: int,
    seed: int,
    start: int | tf.Tensor,
) -> tf.data.Dataset:
    """Groups the records of a shard for batches of one size.

    Args:
        read: Function that returns the shuffled records of all epochs from a given one on, int64 scalar.
        lengths_of: Function that returns the lengths of some records, int [n].
        batch_size: Number of records of a batch.
        num_examples: Number of records of an epoch, at least `batch_size`; no pool is larger.
        seed: Seed of the order.
        start: Number of records to skip, int64 scalar.

    Returns:
        The same records in another order.
    """
    pool_size = batch_size * min(POOL_BATCHES, num_examples // batch_size)
    start = tf.convert_to_tensor(start, tf.int64)

    def order(number: tf.Tensor, pool: Records) -> Records:
        lengths = lengths_of(pool)
        num_records = tf.size(lengths, out_type=tf.int64)
        sizes = tf.minimum(num_records - tf.range(0, num_records, batch_size), batch_size)
        return _order_pool(pool, lengths, sizes, tf.stack([seed, number]))

    pools = read(start - start % pool_size).batch(pool_size).enumerate(start // pool_size)
    return pools.map(order).unbatch().skip(start % pool_size)


def group_shard(
    records: tf.data.Dataset,
    lengths_of: Callable[[Records], tf.Tensor],
    *,
    sizes: tf.Tensor,
    seed: tf.Tensor,
) -> tf.data.Dataset:
    """Groups the records of one shard for batches of given sizes.

    Args:
        records: Shuffled records of the shard.
        lengths_of: Function that returns the lengths of some records, int [n].
        sizes: Number of records of each batch, int64 [n].
        seed: Seed of the order, int64 scalar.

    Returns:
        The same records in another order.
    """
    ends = tf.concat([[0], tf.cumsum(sizes)], axis=0)
    bounds = tf.concat([ends[:-1:POOL_BATCHES], ends[-1:]], axis=0)

    def order(number: tf.Tensor, pool: Records) -> Records:
        first = number * POOL_BATCHES
        return _order_pool(pool, lengths_of(pool), sizes[first : first + POOL_BATCHES], tf.stack([seed, number]))

    pools = records.batch(POOL_BATCHES).rebatch(bounds[1:] - bounds[:-1])
    return pools.enumerate().map(order).unbatch()


def _order_pool(pool: Records, lengths: tf.Tensor, sizes: tf.Tensor, seed: tf.Tensor) -> Records:
    """Returns the records of a pool so that each part of one of the `sizes` has records of similar length."""
    by_length = tf.argsort(lengths, stable=True)
    places = tf.argsort(tf.random.stateless_uniform(tf.shape(sizes), seed))  # of the shortest batch, the next, …
    ends = tf.cumsum(tf.gather(sizes, places))
    ends_by_place = tf.gather(ends, tf.argsort(places))
    chosen = tf.gather(by_length, tf.ragged.range(ends_by_place - sizes, ends_by_place).values)
    return {name: tf.gather(value, chosen) for name, value in pool.items()}
