"""Vectorised schedules of rules that use every push and never let a worker wait: `softsync`, `k_batch_async`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.gradient_groups import GroupedRule
from ps_trainer.simulation.schedule import ScheduleBlock, StepColumns, before_of_worker
from ps_trainer.simulation.vectorised.workers import Workers, in_order

_ROUNDS = 16  # about the number of steps of the fastest worker in a block


def run(cluster: ClusterModel, rule: GroupedRule, num_updates: int) -> Iterator[ScheduleBlock]:
    """Yields the schedule, one block per interval of time.

    The times of the pushes do not depend on the rule, but the versions that workers read do. A worker's next step reads
    the number of updates made up to its push.
    """
    ends = np.cumsum([rule.num_required(version) for version in range(num_updates)])  # pushes up to each update
    read = np.zeros(cluster.num_workers, np.int64)
    num_pushed = 0
    for steps in _pushes(cluster, rule):
        # The last block may hold pushes after the last update, which events would never simulate.
        steps = steps.select(slice(ends[-1] - num_pushed))
        position = num_pushed + np.arange(len(steps.worker))
        update = np.searchsorted(ends, position, side="right")
        num_made = np.searchsorted(ends, position + 1, side="right")
        version = before_of_worker(steps.worker, num_made, read)
        steps = steps._replace(version=version, update=update, staleness=update - version)
        yield ScheduleBlock(steps, steps.t_push_done[num_made > update])
        num_pushed += len(steps.worker)
        if num_pushed == ends[-1]:
            return


def _pushes(cluster: ClusterModel, rule: GroupedRule) -> Iterator[StepColumns]:
    """Yields all steps, in the order in which they end, without version, update and staleness."""
    workers = Workers(cluster, rule)
    workers.begin(workers.all, 0.0, 0)
    until = 0.0
    span = 0.0
    while True:
        # Computed at time 0 only, when the earliest end is also the shortest step.
        span = span or _ROUNDS * workers.t_push_done.min()
        until += span
        parts = []
        # Again and again, because a fast worker ends several steps within the span.
        while len(ending := np.flatnonzero(workers.t_push_done <= until)):
            parts.append(workers.end(ending, 0))
            workers.begin(ending, workers.t_push_done[ending], 0)
        yield in_order(parts, until).steps
