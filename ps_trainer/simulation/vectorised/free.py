"""Rules whose workers never wait, and whose every push is used: `softsync`, `k_batch_async`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.groups import Grouped
from ps_trainer.simulation.schedule import Block, Steps
from ps_trainer.simulation.vectorised.workers import Workers, in_order

_ROUNDS = 16  # steps of the fastest worker in a stretch, about


def run(cluster: ClusterModel, rule: Grouped, num_updates: int) -> Iterator[Block]:
    """The schedule, a stretch of time a block.

    When workers push does not depend on the rule. What they read does: of each push, the number of updates made by
    then is what its worker's next step has read.
    """
    ends = np.cumsum([rule.required(version) for version in range(num_updates)])  # pushes until each update
    read = np.zeros(cluster.num_workers, np.int64)
    num_pushed = 0
    for steps in _pushes(cluster, rule):
        steps = steps.select(slice(ends[-1] - num_pushed))
        position = num_pushed + np.arange(len(steps.worker))
        update = np.searchsorted(ends, position, side="right")
        made = np.searchsorted(ends, position + 1, side="right")
        version = _before(steps.worker, made, read)
        steps = steps._replace(version=version, update=update, staleness=update - version)
        yield Block(steps, steps.t_push_done[made > update])
        num_pushed += len(steps.worker)
        if num_pushed == ends[-1]:
            return


def _pushes(cluster: ClusterModel, rule: Grouped) -> Iterator[Steps]:
    """All steps, in the order in which they end, without version, update and staleness."""
    workers = Workers(cluster, rule)
    workers.begin(workers.all, 0.0, 0)
    until = 0.0
    span = 0.0
    while True:
        span = span or _ROUNDS * workers.t_push_done.min()
        until += span
        parts = []
        while len(ending := np.flatnonzero(workers.t_push_done <= until)):
            parts.append(workers.end(ending, 0))
            workers.begin(ending, workers.t_push_done[ending], 0)
        yield in_order(parts, until).steps


def _before(worker: np.ndarray, values: np.ndarray, last: np.ndarray) -> np.ndarray:
    """For each entry the value at the same worker's entry before; `last` has those before the first, and is moved on.

    Args:
        worker: int [k].
        values: [k].
        last: [num_workers].
    """
    order = np.argsort(worker, kind="stable")
    ordered = worker[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    before = np.empty_like(values)
    before[order[1:]] = values[order[:-1]]
    before[order[is_first]] = last[ordered[is_first]]
    is_last = np.roll(is_first, -1)
    last[ordered[is_last]] = values[order[is_last]]
    return before
