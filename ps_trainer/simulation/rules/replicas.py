"""Rules whose workers train replicas, and send something every so many steps.

The replicas that everybody begins with cost no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import Outcome, Plan
from ps_trainer.simulation.rules.groups import Grouped
from ps_trainer.simulation.rules.single import Async
from ps_trainer.updates.options import (
    AllReduceOptions,
    DownpourOptions,
    EasgdOptions,
    LocalSgdOptions,
    ModelAveragingOptions,
)


class Downpour(Async):
    """`downpour`: a push every n_push steps, a pull every n_fetch; every push is an update.

    What is fetched at the end of a step is here pulled at the start of the next one, which is the same moment.
    Until warm_start_steps updates are made, only the chief trains.
    """

    Options = DownpourOptions

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._steps = [0] * cluster.num_workers

    def first(self) -> Sequence[int]:
        return (0,) if self.options.warm_start_steps else super().first()

    def plan(self, worker: int) -> Plan:
        done = self._steps[worker]
        self._steps[worker] += 1
        return Plan(pulls=done % self.options.n_fetch == 0, pushes=(done + 1) % self.options.n_push == 0)

    def push(self, worker: int, version: int) -> Outcome:
        outcome = super().push(worker, version)
        if self.version == self.options.warm_start_steps:
            return outcome._replace(go=range(self.num_workers))
        return outcome


class Easgd(Async):
    """`easgd`: every period steps, from the first on, a worker reads the centre and sends the elastic difference."""

    Options = EasgdOptions

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._steps = [0] * cluster.num_workers

    def plan(self, worker: int) -> Plan:
        is_exchange = self._steps[worker] % self.options.period == 0
        self._steps[worker] += 1
        return Plan(pulls=False, pushes=is_exchange, pulls_last=is_exchange)


class Rounds(Grouped):
    """Local steps, then everybody waits for everybody, and pulls the average.

    Attributes:
        ring_secs: seconds from the last push of a round to the update.
    """

    is_fresh_only = True
    waits = True
    ring_secs: float = 0.0

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._since = [0] * cluster.num_workers

    def period_at(self, version: int) -> int:
        """Steps in the round that follows `version` others."""
        return self.options.period

    def required(self, version: int) -> int:
        return self.num_workers

    def plan(self, worker: int) -> Plan:
        since = self._since[worker]
        pushes = since + 1 >= self.period_at(self.version)
        self._since[worker] = 0 if pushes else since + 1
        return Plan(pulls=since == 0, pushes=pushes)


class ModelAveraging(Rounds):
    """`model_averaging`: after every period steps the replicas are averaged."""

    Options = ModelAveragingOptions


class LocalSgd(Rounds):
    """`local_sgd`: the same, with rounds of one step before switch_step."""

    Options = LocalSgdOptions

    def period_at(self, version: int) -> int:
        return 1 if version < self.options.switch_step else self.options.period


class AllReduce(Rounds):
    """`all_reduce`: when all have computed, their gradients go around a ring; no ps.

    A ring takes 2 (n − 1) turns, each of a latency and model_bytes / n on a worker's link, so
    2 (n − 1) (M / (n B) + latency). That is in what a worker waits after its push.
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

    def push(self, worker: int, version: int) -> Outcome:
        return super().push(worker, version)._replace(wait_secs=self.ring_secs)
