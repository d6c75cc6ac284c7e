"""Rule `accumulate`: a worker computes several gradients at the same parameters before it pushes their sum."""

from __future__ import annotations

import dataclasses
from typing import Any

from ps_trainer.errors import OptionError
from ps_trainer.options import option
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import Outcome, Plan, ScheduleRule, check_at_least
from ps_trainer.simulation.rules.single import Async
from ps_trainer.simulation.rules.tokens import Sync


class Accumulate(ScheduleRule):
    """`accumulate`: pulls before the first of `steps` steps, pushes after the last; then as `async` or `sync`."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `accumulate`."""

        steps: int = option(4, "gradients that a worker sums before it pushes")
        rule: str = option("async", "what becomes of the sums: async or sync")
        average: bool = option(False, "push the average in place of the sum")
        replicas_to_aggregate: int = option(0, "with rule=sync: sums per update; 0 = of all workers")

        def __post_init__(self):
            check_at_least(self, steps=1, replicas_to_aggregate=0)
            if self.rule not in ("async", "sync"):
                raise OptionError(f"rule={self.rule}; give async or sync")
            if self.replicas_to_aggregate and self.rule != "sync":
                raise OptionError(
                    f"replicas_to_aggregate={self.replicas_to_aggregate} is for rule=sync, not for rule={self.rule};"
                    " leave it out or set rule=sync"
                )

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._done = [0] * cluster.num_workers
        if options.rule == "sync":
            wrapped = Sync.Options(replicas_to_aggregate=options.replicas_to_aggregate)
            self._wrapped: ScheduleRule = Sync(wrapped, cluster)
        else:
            self._wrapped = Async(None, cluster)

    def plan(self, worker: int) -> Plan:
        """See `ScheduleRule.plan`."""
        done = self._done[worker]
        self._done[worker] = (done + 1) % self.options.steps
        return Plan(pulls=done == 0, pushes=self._done[worker] == 0)

    def push(self, worker: int, version: int) -> Outcome:
        """See `ScheduleRule.push`."""
        outcome = self._wrapped.push(worker, version)
        self.version = self._wrapped.version
        return outcome
