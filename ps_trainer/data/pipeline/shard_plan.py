"""How training examples are cut into small shards that workers take one after the other (`--sharding dynamic`).

No TensorFlow here: the ps task that hands out the shards, the worker that reads them, and the chief that sums up what
was read count with the same numbers.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

SHARDS_PER_WORKER = 8
"""Shards of an epoch for each worker, where the user gives no size."""

ROWS = 32
"""Epochs whose examples are counted one by one; those before them are only summed up."""


class Lease(NamedTuple):
    """What a worker is to train on next.

    Attributes:
        epoch: from 0.
        shard: from 0.
        first: the batch of the shard to begin with: those before it have been trained on.
    """

    epoch: int
    shard: int
    first: int


class ShardPlan(NamedTuple):
    """Shard k of K has the examples k, k + K, k + 2 K, …, in batches of equal size, to within one example.

    No batch has much less weight than another: rules that average, or apply each gradient with the same rate, take
    them as equals.

    Attributes:
        num_examples: of an epoch.
        batch_size: the most examples of a batch.
        num_shards: K.
        num_epochs: passes of all workers together over all examples; None = without end.
        seed: of the run.
    """

    num_examples: int
    batch_size: int
    num_shards: int
    num_epochs: int | None
    seed: int

    @property
    def rows(self) -> int:
        """Epochs that are counted at the same time; epoch e is counted in row e modulo `rows`."""
        return min(ROWS, self.num_epochs or ROWS)

    @property
    def max_batches(self) -> int:
        """Batches of the largest shard: the places that each shard has in a row."""
        return self.num_batches(0)

    def size(self, shard: int) -> int:
        """Examples of a shard."""
        return len(range(shard, self.num_examples, self.num_shards))

    def num_batches(self, shard: int) -> int:
        """Batches of a shard."""
        return -(-self.size(shard) // self.batch_size)

    def batch_sizes(self, shard: int) -> list[int]:
        """Examples of each batch of a shard; `DataSource.train_leased` cuts it so."""
        size, count = self.size(shard), self.num_batches(shard)
        return [size * (i + 1) // count - size * i // count for i in range(count)]

    def order(self, epoch: int) -> list[int]:
        """The order in which the shards of an epoch are handed out."""
        return np.random.RandomState([self.seed % 2**32, epoch]).permutation(self.num_shards).tolist()

    def first_unseen(self, shard: int, row: np.ndarray) -> int | None:
        """The first batch of a shard that nobody has trained on, or None.

        Args:
            shard: which one.
            row: int [num_shards * max_batches], how often each batch of the epoch was trained on.
        """
        start = shard * self.max_batches
        unseen = np.flatnonzero(row[start : start + self.num_batches(shard)] == 0)
        return int(unseen[0]) if unseen.size else None

    def coverage(self, row: np.ndarray) -> dict[str, int]:
        """How many examples of an epoch were seen "never", "once", "twice", or "more" often; `row` as above."""
        counts = {"never": 0, "once": 0, "twice": 0, "more": 0}
        for shard in range(self.num_shards):
            for batch, size in enumerate(self.batch_sizes(shard)):
                times = int(row[shard * self.max_batches + batch])
                counts[_NAMES[min(times, len(_NAMES) - 1)]] += size
        return counts

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return self._asdict()


def plan(
    num_examples: int, batch_size: int, num_epochs: int | None, num_workers: int, size: int, seed: int
) -> ShardPlan:
    """The plan of a run.

    Args:
        num_examples: training examples.
        batch_size: the most examples of a batch.
        num_epochs: see `ShardPlan`.
        num_workers: who take the shards.
        size: most examples of a shard; 0 = so many whole batches that each worker gets `SHARDS_PER_WORKER` of them.
        seed: of the run.

    Returns:
        Its shards may be fewer than the workers; who refuses that knows what to say.
    """
    size = size or batch_size * max(1, num_examples // (batch_size * SHARDS_PER_WORKER * num_workers))
    return ShardPlan(num_examples, batch_size, math.ceil(num_examples / size), num_epochs, seed)


_NAMES = ("never", "once", "twice", "more")
