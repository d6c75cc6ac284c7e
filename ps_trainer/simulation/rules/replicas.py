"""Rules whose workers train replicas and send something after a number of steps.

Fetching the first replicas takes no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import PushOutcome, StepPlan
from ps_trainer.simulation.rules.gradient_groups import GroupedRule
from ps_trainer.simulation.rules.update_per_push import Async
from ps_trainer.updates.options import (
    AllReduceOptions,
    DownpourOptions,
    EasgdOptions,
    LocalSgdOptions,
    ModelAveragingOptions,
)


class Downpour(Async):
    """`downpour`: a push every n_push steps, a pull every n_fetch; every push makes an update.

    In the cluster a worker fetches at the end of a step. Here it pulls at the start of the next one, which is the same
    moment. Until warm_start_steps updates are made, only the chief trains.
    """

    Options = DownpourOptions

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._steps = [0] * cluster.num_workers

    def first(self) -> Sequence[int]:
        return (0,) if self.options.warm_start_steps else super().first()

    def plan(self, worker: int) -> StepPlan:
        done = self._steps[worker]
        self._steps[worker] += 1
        return StepPlan(pulls=done % self.options.n_fetch == 0, pushes=(done + 1) % self.options.n_push == 0)

    def push(self, worker: int, version: int) -> PushOutcome:
        outcome = super().push(worker, version)
        if self.version == self.options.warm_start_steps:
            # The chief is among them; the others begin their first step only now.
            return outcome._replace(resumed=range(self.num_workers))
        return outcome


class Easgd(Async):
    """`easgd`: in the first step and every period steps, a worker reads the center and sends the elastic difference."""

    Options = EasgdOptions

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._steps = [0] * cluster.num_workers

    def plan(self, worker: int) -> StepPlan:
        is_exchange = self._steps[worker] % self.options.period == 0
        self._steps[worker] += 1
        return StepPlan(pulls=False, pushes=is_exchange, pulls_last=is_exchange)


class Rounds(GroupedRule):
    """Rule with rounds: local steps, then all workers wait for each other and pull the average.

    Attributes:
        ring_secs: Seconds from the last push of a round to the update.
    """

    is_fresh_only = True
    waits = True
    ring_secs: float = 0.0

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._since = [0] * cluster.num_workers

    def period_at(self, version: int) -> int:
        """Returns the number of steps in the round that follows `version` others."""
        return self.options.period

    def num_required(self, version: int) -> int:
        return self.num_workers

    def plan(self, worker: int) -> StepPlan:
        since = self._since[worker]
        pushes = since + 1 >= self.period_at(self.version)
        self._since[worker] = 0 if pushes else since + 1
        return StepPlan(pulls=since == 0, pushes=pushes)


class ModelAveraging(Rounds):
    """`model_averaging`: the replicas are averaged after every period steps."""

    Options = ModelAveragingOptions


class LocalSgd(Rounds):
    """`local_sgd`: as `model_averaging`, with rounds of one step before switch_step."""

    Options = LocalSgdOptions

    def period_at(self, version: int) -> int:
        return 1 if version < self.options.switch_step else self.options.period


class AllReduce(Rounds):
    """`all_reduce`: when all workers have computed, they sum up their gradients around a ring, without a ps task.

    A ring takes 2 (n − 1) turns, each with a latency and model_bytes / n on a worker's link, so
    2 (n − 1) (M / (n B) + latency) seconds. A worker waits for this time after its push.
    """

    uses_ps = False

    Options = AllReduceOptions

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        n = cluster.num_workers
        part_secs = cluster.model_bytes / n / cluster.worker_bytes_per_sec
        self.ring_secs = 2 * (n - 1) * (part_secs + cluster.latency_secs)

    def period_at(self, version: int) -> int:
        return 1

    def push(self, worker: int, version: int) -> PushOutcome:
        return super().push(worker, version)._replace(wait_secs=self.ring_secs)
