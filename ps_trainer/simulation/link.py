"""`SharedLink`: transfers that share a link evenly."""

from __future__ import annotations

import heapq


class SharedLink:
    """A link with several transfers of equal size at the same time, each as fast as all others.

    With k under way each moves at min(flow, capacity / k) bytes per second. As all have the same rate at any
    moment, a transfer is over when every one of them has moved on by its size since it began: one number, the
    bytes that a transfer would have moved since time 0, tells who is next.

    Args:
        capacity_bytes_per_sec: of all transfers together.
        flow_bytes_per_sec: largest of one transfer.
        size_bytes: of a transfer.

    Attributes:
        num_changes: transfers begun and ended so far; while it stays, so does `next_end`.
    """

    def __init__(self, capacity_bytes_per_sec: float, flow_bytes_per_sec: float, size_bytes: int):
        self._capacity = capacity_bytes_per_sec
        self._flow = flow_bytes_per_sec
        self._size = size_bytes
        self._moved = 0.0
        self._now = 0.0
        self._under_way: list[tuple[float, int, int]] = []  # (bytes moved when it is over, order, worker)
        self.num_changes = 0

    def begin(self, worker: int, now: float) -> None:
        """A worker begins a transfer at `now`, seconds, which never falls."""
        if self._under_way:
            self._moved += (now - self._now) * self._rate()
        self._now = now
        self.num_changes += 1
        heapq.heappush(self._under_way, (self._moved + self._size, self.num_changes, worker))

    def end(self, now: float) -> int:
        """Takes off the transfer that is over at `now` = `next_end`; returns its worker."""
        self._moved, _, worker = heapq.heappop(self._under_way)
        self._now = now
        self.num_changes += 1
        return worker

    def next_end(self) -> float | None:
        """When the next transfer is over if none begins before; None when none is under way."""
        if not self._under_way:
            return None
        return self._now + max(self._under_way[0][0] - self._moved, 0.0) / self._rate()

    def _rate(self) -> float:
        return min(self._flow, self._capacity / len(self._under_way))
