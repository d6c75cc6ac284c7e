"""Rule `accumulate`: a worker computes several gradients at the same parameters before it pushes their sum."""

from __future__ import annotations

from typing import Any

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import PushOutcome, ScheduleRule, StepPlan
from ps_trainer.simulation.rules.gradient_groups import Sync
from ps_trainer.simulation.rules.update_per_push import Async
from ps_trainer.updates.options import AccumulateOptions


class Accumulate(ScheduleRule):
    """`accumulate`: a pull before the first of `steps` steps and a push after the last, as in `async` or `sync`."""

    Options = AccumulateOptions

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._done = [0] * cluster.num_workers
        if options.rule == "sync":
            self._wrapped: ScheduleRule = Sync(options.of_sync, cluster)
        else:
            self._wrapped = Async(None, cluster)

    def plan(self, worker: int) -> StepPlan:
        done = self._done[worker]
        self._done[worker] = (done + 1) % self.options.steps
        return StepPlan(pulls=done == 0, pushes=self._done[worker] == 0)

    def push(self, worker: int, version: int) -> PushOutcome:
        outcome = self._wrapped.push(worker, version)
        self.version = self._wrapped.version
        return outcome
