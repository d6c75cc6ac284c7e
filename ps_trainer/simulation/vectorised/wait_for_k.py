"""Vectorised schedules of rules whose workers wait for their update: `sync`, `backup`, `k_sync`, `k_async`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.gradient_groups import GroupedRule
from ps_trainer.simulation.schedule import DROPPED, ScheduleBlock
from ps_trainer.simulation.vectorised.workers import Workers, in_order


def run(cluster: ClusterModel, rule: GroupedRule, num_updates: int) -> Iterator[ScheduleBlock]:
    """Yields the schedule, one block per update.

    While version v is current, the push of a worker that still computes on an older version is dropped. The worker
    begins its next step at once, and may then be among the first k. At most one such restart fits in, so the update
    time is the k-th smallest of these times: the end of the current step (workers that compute on v), and the end of
    the next step (all others).
    """
    workers = Workers(cluster, rule)
    workers.begin(workers.all, 0.0, 0)
    for version in range(num_updates):
        # Rules that take any push count every worker's current step.
        counted_end, parts = workers.t_push_done, []
        if rule.is_fresh_only:
            is_stale = workers.version < version
            counted_end = np.where(is_stale, workers.ends_if_again(), workers.t_push_done)
        members = _smallest(counted_end, rule.num_required(version))
        end = counted_end[members].max()
        if rule.is_fresh_only:
            (late,) = np.nonzero(is_stale & (workers.t_push_done <= end))
            parts.append(workers.end(late, DROPPED, version=version))
            workers.begin(late, workers.t_push_done[late], version)
        parts.append(workers.end(members, version, version=version))
        yield in_order(parts, end)
        workers.begin(members, end, version + 1)


def _smallest(values: np.ndarray, count: int) -> np.ndarray:
    # Only the set matters, and a partition costs O(n) where a sort costs O(n log n).
    return np.argpartition(values, count - 1)[:count]
