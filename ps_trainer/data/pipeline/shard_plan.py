"""The plan by which training examples are divided into small shards, which workers take in turn (`--sharding dynamic`).

The ps task hands out the shards, a worker reads them, and the chief sums up what was read. All three compute with the
numbers of this file, so it imports no TensorFlow.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

SHARDS_PER_WORKER = 8
"""Default number of shards per worker and epoch."""

ROWS = 32
"""Number of latest epochs whose batches are counted one by one; of earlier epochs only sums are kept."""


class Coverage(NamedTuple):
    """Number of examples by how often they were seen.

    Attributes:
        never: Examples that were not seen.
        once: Examples that were seen once.
        twice: Examples that were seen twice.
        more: Examples that were seen three times or more often.
    """

    never: int
    once: int
    twice: int
    more: int


class Lease(NamedTuple):
    """A shard that a ps task hands to a worker.

    Attributes:
        epoch: Number of the epoch, from 0.
        shard: Number of the shard, from 0.
        first: Number of the first batch to train on; another worker has trained on the batches before it.
    """

    epoch: int
    shard: int
    first: int


class ShardPlan(NamedTuple):
    """Shard k of K has the examples k, k + K, k + 2 K, …, in batches of equal size, to within one example.

    The batches have equal size because update rules give them equal weight: they average gradients, or apply each with
    the same learning rate.

    Attributes:
        num_examples: Number of examples of an epoch.
        batch_size: Largest number of examples in a batch.
        num_shards: Number of shards, K.
        num_epochs: Number of passes of all workers together over all examples; None = endless.
        seed: Seed of the run.
    """

    num_examples: int
    batch_size: int
    num_shards: int
    num_epochs: int | None
    seed: int

    @property
    def rows(self) -> int:
        """Number of epochs that are counted at the same time; epoch e is counted in row e modulo `rows`."""
        return min(ROWS, self.num_epochs or ROWS)

    @property
    def max_batches(self) -> int:
        """Number of batches of the largest shard, which is the number of places of every shard in a row."""
        return self.num_batches(0)  # no shard is larger than the first

    def size(self, shard: int) -> int:
        """Counts the examples of a shard."""
        return len(range(shard, self.num_examples, self.num_shards))

    def num_batches(self, shard: int) -> int:
        """Counts the batches of a shard."""
        return -(-self.size(shard) // self.batch_size)  # rounded up

    def batch_sizes(self, shard: int) -> list[int]:
        """Returns the number of examples in each batch of a shard, as `DataSource.train_leased` cuts them."""
        size, count = self.size(shard), self.num_batches(shard)
        return [size * (i + 1) // count - size * i // count for i in range(count)]

    def order(self, epoch: int) -> list[int]:
        """Returns the shards of an epoch in the order in which the ps task hands them out."""
        # A ps task that restarts has to draw the same order again, so it follows from seed and epoch alone.
        return np.random.RandomState([self.seed % 2**32, epoch]).permutation(self.num_shards).tolist()

    def first_unseen(self, shard: int, row: np.ndarray) -> int | None:
        """Finds the first batch of a shard that no worker has trained on, or None.

        Args:
            shard: Number of the shard.
            row: int [num_shards * max_batches], how often each batch of the epoch was trained on.
        """
        start = shard * self.max_batches
        unseen = np.flatnonzero(row[start : start + self.num_batches(shard)] == 0)
        return int(unseen[0]) if unseen.size else None

    def coverage(self, row: np.ndarray) -> Coverage:
        """Counts the examples of an epoch by how often they were seen.

        Args:
            row: int [num_shards * max_batches], how often each batch of the epoch was trained on.
        """
        counts = [0] * len(Coverage._fields)
        for shard in range(self.num_shards):
            for batch, size in enumerate(self.batch_sizes(shard)):
                times = int(row[shard * self.max_batches + batch])
                counts[min(times, len(counts) - 1)] += size
        return Coverage(*counts)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return self._asdict()


def plan(
    num_examples: int, batch_size: int, num_epochs: int | None, num_workers: int, size: int, seed: int
) -> ShardPlan:
    """Makes the plan of a run.

    Args:
        num_examples: Number of training examples.
        batch_size: Largest number of examples in a batch.
        num_epochs: Number of passes of all workers together over all examples; None = endless.
        num_workers: Number of workers that take the shards.
        size: Largest number of examples in a shard; 0 = whole batches, about `SHARDS_PER_WORKER` shards per worker.
        seed: Seed of the run.

    Returns:
        A plan, which may have fewer shards than there are workers. The caller has to reject that, because only the
        caller can name the flags to change.
    """
    size = size or batch_size * max(1, num_examples // (batch_size * SHARDS_PER_WORKER * num_workers))
    return ShardPlan(num_examples, batch_size, math.ceil(num_examples / size), num_epochs, seed)
