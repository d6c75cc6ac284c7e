"""Vectorised schedules of rules whose workers all wait for each other: `model_averaging`, `local_sgd`, `all_reduce`."""

from __future__ import annotations

from collections.abc import Iterator

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.replicas import Rounds
from ps_trainer.simulation.schedule import LOCAL, ScheduleBlock
from ps_trainer.simulation.vectorised.workers import Workers, in_order


def run(cluster: ClusterModel, rule: Rounds, num_updates: int) -> Iterator[ScheduleBlock]:
    """Yields the schedule, one block per update."""
    workers = Workers(cluster, rule)
    when = 0.0
    for version in range(num_updates):
        period = rule.period_at(version)
        workers.begin(workers.all, when, version, pushes=period == 1)
        parts = []
        for left in range(period - 1, 0, -1):
            parts.append(workers.end(workers.all, LOCAL, pushed=False))
            workers.begin(workers.all, workers.t_push_done.copy(), pushes=left == 1)
        parts.append(workers.end(workers.all, version, version=version))
        when = workers.t_push_done.max() + rule.ring_secs
        yield in_order(parts, when)
