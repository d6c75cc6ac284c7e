"""Rules in which each push makes a separate update: `async`, rules that only scale it, `drop_stale`, `ssp`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import PushOutcome, ScheduleRule
from ps_trainer.simulation.schedule import DROPPED
from ps_trainer.updates.options import DcAsgdOptions, DropStaleOptions, SspOptions


class Async(ScheduleRule):
    """`async`, `hogwild` and `staleness_aware`: every push makes an update, and its worker continues."""

    def push(self, worker: int, version: int) -> PushOutcome:
        self.version += 1
        return PushOutcome(self.version - 1, (worker,))


class DcAsgd(Async):
    """`dc_asgd`: the same schedule as `async`, since the correction of the gradient takes no time."""

    Options = DcAsgdOptions


class DropStale(ScheduleRule):
    """`drop_stale`: a push makes an update unless it is too stale; its worker continues in either case."""

    Options = DropStaleOptions

    def push(self, worker: int, version: int) -> PushOutcome:
        if self.version - version > self.options.staleness:
            return PushOutcome(DROPPED, (worker,))
        self.version += 1
        return PushOutcome(self.version - 1, (worker,))


class Ssp(ScheduleRule):
    """`ssp`: every push makes an update; a worker begins its step c + 1 when c − min_j c_j ≤ staleness.

    c is the number of steps that a worker has pushed. A waiting worker may be staleness + 1 steps ahead.
    """

    Options = SspOptions

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._clocks = [0] * cluster.num_workers
        self._slowest = 0
        self._at = defaultdict(int, {0: cluster.num_workers})  # number of workers by clock
        self._waiting: dict[int, list[int]] = defaultdict(list)  # workers by the slowest clock that they wait for

    def push(self, worker: int, version: int) -> PushOutcome:
        self.version += 1
        update, clock = self.version - 1, self._clocks[worker] + 1
        self._clocks[worker] = clock
        self._at[clock - 1] -= 1
        self._at[clock] += 1
        resumed = []
        if not self._at[self._slowest]:
            # The worker that left the slowest clock is at the next one, so the minimum rises by exactly 1.
            del self._at[self._slowest]
            self._slowest += 1
            resumed = self._waiting.pop(self._slowest, [])
        if clock - self.options.staleness <= self._slowest:
            return PushOutcome(update, [*resumed, worker])
        self._waiting[clock - self.options.staleness].append(worker)
        return PushOutcome(update, resumed)
