"""Rules whose workers wait for the update that their push is in: `sync`, `backup`, `k_sync`, `k_async`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.groups import Grouped
from ps_trainer.simulation.schedule import DROPPED, Block
from ps_trainer.simulation.vectorised.workers import Workers, in_order


def run(cluster: ClusterModel, rule: Grouped, num_updates: int) -> Iterator[Block]:
    """The schedule, an update a block.

    In the time of a version, who computes on an older one is dropped when done, goes on at once, and can still be
    among the first. That may happen to a worker once in that time, so the update is made when the k-th smallest of
    these is over: the present step of who computes on this version, the step after the present one of the others.
    """
    workers = Workers(cluster, rule)
    workers.begin(workers.all, 0.0, 0)
    for version in range(num_updates):
        counted_end, parts = workers.t_push_done, []
        if rule.is_fresh_only:
            is_stale = workers.version < version
            counted_end = np.where(is_stale, workers.ends_if_again(), workers.t_push_done)
        members = _smallest(counted_end, rule.required(version))
        end = counted_end[members].max()
        if rule.is_fresh_only:
            (late,) = np.nonzero(is_stale & (workers.t_push_done <= end))
            parts.append(workers.end(late, DROPPED, version=version))
            workers.begin(late, workers.t_push_done[late], version)
        parts.append(workers.end(members, version, version=version))
        yield in_order(parts, end)
        workers.begin(members, end, version + 1)


def _smallest(values: np.ndarray, count: int) -> np.ndarray:
    return np.argpartition(values, count - 1)[:count]
