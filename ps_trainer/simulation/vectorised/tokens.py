"""Vectorised schedules of `token_queue` and `stock_sync`, the token queue of TensorFlow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.tokens import TokenQueue
from ps_trainer.simulation.schedule import DROPPED, ScheduleBlock, StepColumns
from ps_trainer.simulation.vectorised.workers import Workers, in_order


def run(cluster: ClusterModel, rule: TokenQueue, num_updates: int) -> Iterator[ScheduleBlock]:
    """Yields the schedule, one block per update."""
    queue = _TokenQueue(cluster, rule)
    return (queue.next_update() for _ in range(num_updates))


class _TokenQueue:
    """The queue: with tokens, a worker continues right after its push; without tokens, all wait for an update."""

    def __init__(self, cluster: ClusterModel, rule: TokenQueue):
        self._workers = Workers(cluster, rule)
        self._num_workers = cluster.num_workers
        self._required = rule.required
        self._tokens = deque([(0, len(rule.tokens))] if rule.tokens else [])  # (value, number of equal tokens)
        self._stamps = np.zeros(cluster.num_workers, np.int64)
        self._is_computing = np.ones(cluster.num_workers, bool)
        self._version = 0
        self._num_fresh = 0
        self._workers.begin(self._workers.all, 0.0, 0)

    def next_update(self) -> ScheduleBlock:
        """Returns the steps up to the next update, and the update."""
        version, parts = self._version, []
        while self._tokens and self._version == version:
            pushing = self._until_update(self._next_pushes())
            end = self._workers.t_push_done[pushing[-1]]
            parts += self._push(pushing)
            self._go_on(pushing[:-1])
            self._count_update_if_due()
            # After the count: if this push made the update, its worker reads the new version.
            self._go_on(pushing[-1:])
        if self._version == version:  # no tokens are left, so no worker continues before the update
            (fresh,) = np.nonzero(self._is_computing & (self._stamps == version))
            missing = self._required - self._num_fresh
            # The fresh push that completes the group is the missing-th to end.
            end = np.partition(self._workers.t_push_done[fresh], missing - 1)[missing - 1]
            (pushing,) = np.nonzero(self._is_computing & (self._workers.t_push_done <= end))
            parts += self._push(pushing)
            self._is_computing[pushing] = False
            self._count_update_if_due()
            (waiting,) = np.nonzero(~self._is_computing)
            # `_go_on` begins a worker's step at its t_push_done; workers that have waited begin at the update.
            self._workers.t_push_done[waiting] = end
            self._go_on(waiting)
        return in_order(parts, end)

    def _next_pushes(self) -> np.ndarray:
        """Returns the workers whose pushes come next, in order.

        The list ends before the first place that one of these workers could take again with its next step.
        """
        done = self._workers.t_push_done
        count = min(sum(number for _, number in self._tokens), self._num_workers)
        first = np.argpartition(done, count - 1)[:count]
        first = first[np.argsort(done[first], kind="stable")]
        # A worker of the list may push again before a later one of the list pushes for the first time.
        again = np.minimum.accumulate(self._workers.ends_if_again()[first])
        is_known = done[first[1:]] < again[:-1]
        return first[: 1 + (len(is_known) if is_known.all() else int(np.argmin(is_known)))]

    def _until_update(self, pushing: np.ndarray) -> np.ndarray:
        """Cuts the list of workers after the push that makes the next update, if that is among them."""
        fresh = self._num_fresh + np.cumsum(self._stamps[pushing] == self._version)
        return pushing[: int(np.searchsorted(fresh, self._required)) + 1]

    def _push(self, workers: np.ndarray) -> list[StepColumns]:
        is_fresh = self._stamps[workers] == self._version
        self._num_fresh += int(is_fresh.sum())
        return [
            self._workers.end(workers[is_fresh], self._version, version=self._version),
            self._workers.end(workers[~is_fresh], DROPPED, version=self._version),
        ]

    def _count_update_if_due(self) -> None:
        if self._num_fresh == self._required:
            self._version += 1
            self._num_fresh = 0
            self._tokens.append((self._version, self._num_workers))

    def _go_on(self, workers: np.ndarray) -> None:
        """Lets each worker take a token, in this order, and begin its next step when its step has ended."""
        position = 0
        while position < len(workers):
            worth, number = self._tokens.popleft()
            taking = workers[position : position + number]
            self._stamps[taking] = worth
            if number > len(taking):
                self._tokens.appendleft((worth, number - len(taking)))
            position += len(taking)
        self._is_computing[workers] = True
        self._workers.begin(workers, self._workers.t_push_done[workers], self._version)
