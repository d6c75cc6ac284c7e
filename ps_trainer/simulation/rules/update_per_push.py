"""Rules in which each push makes an update: `async`, rules that only scale it, `drop_stale`, `ssp`, `ssp_cache`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import PLAIN, PushOutcome, ScheduleRule, StepPlan
from ps_trainer.simulation.schedule import DROPPED
from ps_trainer.updates.options import DcAsgdOptions, DropStaleOptions, SspOptions

_WITHOUT_PULL = StepPlan(pulls=False)


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


class SspCache(Ssp):
    """`ssp_cache`: as `ssp`, but a worker reads its cached copy, and pulls another only when that copy is too old.

    A worker that has pushed c steps must see all updates of the steps up to c − staleness of every worker. The copy has
    them if the slowest worker had pushed that many steps when the copy was pulled.

    Source: Ho et al. 2013, section 2 (a read at clock c returns all updates of clocks up to c − s − 1) and section 3
    (`SSPTable`, whose client reads from its cache where that is allowed).
    """

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._copied_at = [-options.staleness - 1] * cluster.num_workers  # slowest clock at each worker's last pull

    def plan(self, worker: int) -> StepPlan:
        if self._clocks[worker] - self._copied_at[worker] <= self.options.staleness:
            return _WITHOUT_PULL
        self._copied_at[worker] = self._slowest
        return PLAIN
