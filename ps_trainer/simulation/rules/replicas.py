"""Rules whose workers train copies, and send something every so many steps.

The copies that everybody begins with cost no time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ps_trainer.options import option
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import Outcome, Plan, check_at_least
from ps_trainer.simulation.rules.groups import Grouped
from ps_trainer.simulation.rules.single import Async


class Downpour(Async):
    """`downpour`: a push every n_push steps, a pull every n_fetch; every push is an update.

    What is fetched at the end of a step is here pulled at the start of the next one, which is the same moment.
    Until warm_start_steps updates are made, only the chief trains.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `downpour`."""

        n_push: int = option(1, "steps whose gradients are summed up for one push")
        n_fetch: int = option(1, "steps between two fetches of the parameters")
        warm_start_steps: int = option(0, "global steps that the chief makes alone before the other workers begin")

        def __post_init__(self):
            check_at_least(self, n_push=1, n_fetch=1, warm_start_steps=0)

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._steps = [0] * cluster.num_workers

    def first(self) -> Sequence[int]:
        """See `ScheduleRule.first`."""
        return (0,) if self.options.warm_start_steps else super().first()

    def plan(self, worker: int) -> Plan:
        """See `ScheduleRule.plan`."""
        done = self._steps[worker]
        self._steps[worker] += 1
        return Plan(pulls=done % self.options.n_fetch == 0, pushes=(done + 1) % self.options.n_push == 0)

    def push(self, worker: int, version: int) -> Outcome:
        """See `ScheduleRule.push`."""
        outcome = super().push(worker, version)
        if self.version == self.options.warm_start_steps:
            return outcome._replace(go=range(self.num_workers))
        return outcome


class Easgd(Async):
    """`easgd`: every period steps, from the first on, a worker reads the centre and sends the elastic difference."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `easgd`; only the period changes the schedule."""

        period: int = option(10, "steps of a worker between two exchanges with the centre")
        alpha: float | None = option(None, "share of the difference that copy and centre move")
        beta: float | None = option(None, "alpha times the number of workers")
        momentum: float = option(0.0, "of the local steps")

        def __post_init__(self):
            check_at_least(self, period=1)

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        self._steps = [0] * cluster.num_workers

    def plan(self, worker: int) -> Plan:
        """See `ScheduleRule.plan`."""
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
        """See `Grouped.required`."""
        return self.num_workers

    def plan(self, worker: int) -> Plan:
        """See `ScheduleRule.plan`."""
        since = self._since[worker]
        pushes = since + 1 >= self.period_at(self.version)
        self._since[worker] = 0 if pushes else since + 1
        return Plan(pulls=since == 0, pushes=pushes)


class ModelAveraging(Rounds):
    """`model_averaging`: after every period steps the copies are averaged."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `model_averaging`."""

        period: int = option(100, "local steps between two averages")

        def __post_init__(self):
            check_at_least(self, period=1)


class LocalSgd(Rounds):
    """`local_sgd`: the same, with rounds of one step before switch_step."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `local_sgd`."""

        period: int = option(8, "local steps between two averages")
        switch_step: int = option(0, "global step before which all average after each step")

        def __post_init__(self):
            check_at_least(self, period=1, switch_step=0)

    def period_at(self, version: int) -> int:
        """See `Rounds.period_at`."""
        return 1 if version < self.options.switch_step else self.options.period


class AllReduce(Rounds):
    """`all_reduce`: when all have computed, their gradients go around a ring; no ps.

    A ring takes 2 (n − 1) turns, each of a latency and model_bytes / n on a worker's link, so
    2 (n − 1) (M / (n B) + latency). That is in what a worker waits after its push.
    """

    uses_ps = False

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `all_reduce`; none changes the schedule."""

        fusion_bytes: int = option(64 * 2**20, "largest vector in which gradients are reduced together")

        def __post_init__(self):
            check_at_least(self, fusion_bytes=1)

    def __init__(self, options: Any, cluster: ClusterModel):
        super().__init__(options, cluster)
        n = cluster.num_workers
        part_secs = cluster.model_bytes / n / cluster.worker_bytes_per_sec
        self.ring_secs = 2 * (n - 1) * (part_secs + cluster.latency_secs)

    def period_at(self, version: int) -> int:
        """See `Rounds.period_at`."""
        return 1

    def push(self, worker: int, version: int) -> Outcome:
        """See `ScheduleRule.push`."""
        return super().push(worker, version)._replace(wait_secs=self.ring_secs)
