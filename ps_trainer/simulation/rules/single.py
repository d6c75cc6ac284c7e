"""Rules in which each push is an update of its own: `async`, those that only scale it, `drop_stale`, `ssp`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import Outcome, ScheduleRule
from ps_trainer.simulation.schedule import DROPPED
from ps_trainer.updates.options import DcAsgdOptions, DropStaleOptions, SspOptions


class Async(ScheduleRule):
    """`async`, `hogwild` and `staleness_aware`: every push is an update, and its worker goes on."""

    def push(self, worker: int, version: int) -> Outcome:
        self.version += 1
        return Outcome(self.version - 1, (worker,))


class DcAsgd(Async):
    """`dc_asgd`: what is added to the gradient does not change when things happen."""

    Options = DcAsgdOptions


class DropStale(ScheduleRule):
    """`drop_stale`: a push is an update if it is not too stale; its worker goes on in any case."""

    Options = DropStaleOptions

    def push(self, worker: int, version: int) -> Outcome:
        if self.version - version > self.options.staleness:
            return Outcome(DROPPED, (worker,))
        self.version += 1
        return Outcome(self.version - 1, (worker,))


class Ssp(ScheduleRule):
    """`ssp`: every push is an update; a worker begins its step c + 1 when c − min_j c_j ≤ staleness.

    c is the number of steps that a worker has pushed. While it waits, it may be staleness + 1 ahead.
    """

    Options = SspOptions

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._clocks = [0] * cluster.num_workers
        self._slowest = 0
        self._at = defaultdict(int, {0: cluster.num_workers})  # clock -> workers that are there
        self._waiting: dict[int, list[int]] = defaultdict(list)  # clock of the slowest that is waited for -> workers

    def push(self, worker: int, version: int) -> Outcome:
        self.version += 1
        update, clock = self.version - 1, self._clocks[worker] + 1
        self._clocks[worker] = clock
        self._at[clock - 1] -= 1
        self._at[clock] += 1
        go = []
        if not self._at[self._slowest]:
            del self._at[self._slowest]
            self._slowest += 1
            go = self._waiting.pop(self._slowest, [])
        if clock - self.options.staleness <= self._slowest:
            return Outcome(update, [*go, worker])
        self._waiting[clock - self.options.staleness].append(worker)
        return Outcome(update, go)
