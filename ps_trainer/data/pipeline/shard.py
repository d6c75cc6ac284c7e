"""`Shard`: the part of the training examples that one worker reads in the whole run."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shard:
    """The part of the training examples that one worker reads: `index`, `index + count` and so on.

    Attributes:
        index: Index of the worker, 0 <= index < count.
        count: Number of workers.
    """

    index: int
    count: int

    def num_examples(self, total: int) -> int:
        """Counts the examples of this shard among `total`."""
        return len(range(self.index, total, self.count))
