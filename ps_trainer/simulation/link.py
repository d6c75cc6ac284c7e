"""`SharedLink`: transfers that share a link evenly."""

from __future__ import annotations

import heapq


class SharedLink:
    """A link with simultaneous transfers of equal size and equal rate.

    With k transfers, each moves min(flow, capacity / k) bytes per second. All have the same rate at any moment, so one
    number is enough to find the next end: the bytes that a transfer would have moved since time 0. A transfer ends when
    this number has grown by its size since it began.

    Args:
        capacity_bytes_per_sec: Bandwidth of all transfers together.
        flow_bytes_per_sec: Largest bandwidth of one transfer.
        size_bytes: Size of a transfer.

    Attributes:
        num_changes: Number of transfers begun and ended so far. While it does not change, `next_end` does not either.
    """

    def __init__(self, capacity_bytes_per_sec: float, flow_bytes_per_sec: float, size_bytes: int):
        self._capacity = capacity_bytes_per_sec
        self._flow = flow_bytes_per_sec
        self._size = size_bytes
        self._moved = 0.0
        self._now = 0.0
        self._under_way: list[tuple[float, int, int]] = []  # (bytes moved when it ends, order, worker)
        self.num_changes = 0

    def begin(self, worker: int, now: float) -> None:
        """Begins a worker's transfer at `now`, in seconds. Later calls must not have a smaller `now`."""
        # Without a transfer nothing moves, and the rate would be a division by 0.
        if self._under_way:
            self._moved += (now - self._now) * self._rate()
        self._now = now
        self.num_changes += 1
        heapq.heappush(self._under_way, (self._moved + self._size, self.num_changes, worker))

    def end(self, now: float) -> int:
        """Removes the transfer that ends at `now` = `next_end` and returns its worker."""
        self._moved, _, worker = heapq.heappop(self._under_way)
        self._now = now
        self.num_changes += 1
        return worker

    def next_end(self) -> float | None:
        """Returns when the next transfer ends if none begins before; None if there is no transfer."""
        if not self._under_way:
            return None
        # Rounding can make the rest a little less than 0, which would let time go backwards.
        return self._now + max(self._under_way[0][0] - self._moved, 0.0) / self._rate()

    def _rate(self) -> float:
        return min(self._flow, self._capacity / len(self._under_way))
