"""`HostLinks`: transfers between hosts, each of which has a link that carries both directions at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

_SAME = 1e-9  # relative difference of two rates or amounts that differ by rounding alone


class HostLinks:
    """A network of hosts whose links are its only bottlenecks.

    A *transfer* consists of flows, each from one host to another, and ends with its last flow. All flows share the
    links fairly (max-min): to speed one up, a flow that is not faster would have to slow down. TCP connections with
    equal round trips share links in this way. A flow within a host passes no link and takes no time.

    Args:
        bytes_per_sec: Bandwidth of each host's link in each direction; the length is the number of hosts.

    Attributes:
        num_changes: Number of changes of the flows so far. While it does not change, `next_end` does not either.
    """

    def __init__(self, bytes_per_sec: Sequence[float]):
        self._num_hosts = len(bytes_per_sec)
        self._capacity = np.tile(np.asarray(bytes_per_sec, float), 2)  # what hosts send, then what they receive
        self._out = self._in = np.empty(0, np.intp)  # of each flow: the two places in `_capacity`
        self._owner = np.empty(0, np.intp)  # of each flow: its transfer
        self._left = np.empty(0)  # of each flow: bytes
        self._rate = np.empty(0)  # of each flow: bytes per second
        self._size = 0.0  # of the largest flow so far
        self._ended: deque[int] = deque()  # transfers whose flows have ended
        self._now = 0.0
        self.num_changes = 0

    def begin(self, transfer: int, now: float, sources: np.ndarray, targets: np.ndarray, size_bytes: float) -> None:
        """Begins a transfer at `now`, in seconds. Later calls must not have a smaller `now`.

        Args:
            transfer: A number that no transfer under way has.
            now: Time in seconds.
            sources: Host that sends each flow, int [flows].
            targets: Host that receives each flow, int [flows].
            size_bytes: Size of each flow.
        """
        self._advance(now)
        moves = (sources != targets) & (size_bytes > 0)
        if not moves.any():
            self._ended.append(transfer)
        self._out = np.append(self._out, sources[moves])
        self._in = np.append(self._in, self._num_hosts + targets[moves])
        self._owner = np.append(self._owner, np.full(moves.sum(), transfer))
        self._left = np.append(self._left, np.full(moves.sum(), float(size_bytes)))
        self._size = max(self._size, float(size_bytes))
        self._change()

    def next_end(self) -> float | None:
        """Returns when the next flow ends if no transfer begins before; None if there is none."""
        if self._ended:
            return self._now
        return self._now + float(np.min(self._left / self._rate)) if len(self._left) else None

    def end(self, now: float) -> int | None:
        """Ends the flows that end at `now` = `next_end`, and returns a transfer whose last flow has ended, if any."""
        if not self._ended:
            secs = self._left / self._rate
            is_next = secs <= secs.min() * (1 + _SAME)  # whatever rounding leaves of them
            self._advance(now)
            is_left = (self._left > _SAME * self._size) & ~is_next
            ended = np.setdiff1d(self._owner[~is_left], self._owner[is_left])
            self._ended.extend(ended.tolist())
            self._out, self._in, self._owner, self._left = (
                values[is_left] for values in (self._out, self._in, self._owner, self._left)
            )
        self._change()
        return self._ended.popleft() if self._ended else None

    def _advance(self, now: float) -> None:
        self._left = self._left - (now - self._now) * self._rate
        self._now = now

    def _change(self) -> None:
        self.num_changes += 1
        self._rate = self._fair_rates()

    def _fair_rates(self) -> np.ndarray:
        """Returns the rate of each flow: all grow together, and those of a link stop when it is full."""
        rates = np.zeros(len(self._left))
        free = self._capacity.copy()
        is_open = np.ones(len(rates), bool)
        while is_open.any():
            counts = self._flows_by_link(is_open)
            shares = np.divide(free, counts, out=np.full(len(free), np.inf), where=counts > 0)
            is_full = shares <= shares.min() * (1 + _SAME)
            stops = is_open & (is_full[self._out] | is_full[self._in])
            rates[stops] = shares.min()
            free = np.maximum(free - shares.min() * self._flows_by_link(stops), 0.0)
            is_open &= ~stops
        return rates

    def _flows_by_link(self, chosen: np.ndarray) -> np.ndarray:
        """Returns how many of the chosen flows pass each link, int [2 · hosts]."""
        return np.bincount(np.append(self._out[chosen], self._in[chosen]), minlength=len(self._capacity))


class ColocatedTransfers:
    """The pulls, or the pushes, of workers whose hosts also have the ps tasks: ps task i is on the host of worker i.

    It has the interface of `SharedLink`. Pulls and pushes pass the same links, so both need the same `HostLinks`.

    Args:
        links: Links of the workers' hosts.
        num_ps: Number of ps tasks, each with an equal share of the parameters.
        model_bytes: Size of all parameters.
        is_push: Whether the workers send, and not the ps tasks.
    """

    def __init__(self, links: HostLinks, num_ps: int, model_bytes: int, *, is_push: bool):
        self._links = links
        self._ps_hosts = np.arange(num_ps)
        self._share_bytes = model_bytes / num_ps
        self._is_push = is_push

    @property
    def num_changes(self) -> int:
        """Number of changes of the links' flows so far."""
        return self._links.num_changes

    def begin(self, worker: int, now: float) -> None:
        """Begins a worker's transfer at `now`, in seconds."""
        hosts = np.full(len(self._ps_hosts), worker), self._ps_hosts
        sources, targets = hosts if self._is_push else hosts[::-1]
        self._links.begin(worker, now, sources, targets, self._share_bytes)

    def end(self, now: float) -> int | None:
        """Returns the worker whose transfer ends at `now` = `next_end`, if one does; it may be of the other kind."""
        return self._links.end(now)

    def next_end(self) -> float | None:
        """Returns when the next part of a transfer of either kind ends; None if there is none."""
        return self._links.next_end()
