"""Sampled models of update rules that have no closed form, for any step time, each with its standard error.

A *sampler* is a callable that gives the next step time of one worker in seconds; each worker has its own. These
models follow the algorithm on paper in a few lines each. The experiments compare clusters and simulations with them.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.experiments.toolkit.statistics import WARMUP_SHARE

Sampler = Callable[[], float]

_NUM_BATCHES = 20


class Estimate(NamedTuple):
    """A mean and its standard error, in the same unit."""

    value: float
    standard_error: float


class BackupEstimate(NamedTuple):
    """Result of a model of backup workers."""

    step_secs: Estimate  # time from update to update
    dropped_share: float  # share of the computed gradients that came too late, 0..1


def order_statistic(samplers: Sequence[Sampler], k: int, num_steps: int) -> Estimate:
    """Returns E[X_(k:n)], the k-th arrival of n workers that begin together, in seconds.

    With k = n it is the slowest of n (A1). With k = N of N + b it is the model in which stragglers are cancelled (A3).
    Each worker draws `num_steps` times; the error falls as 1/√num_steps.
    """
    draws = np.array([[sample() for sample in samplers] for _ in range(num_steps)])
    return _batch_means(np.partition(draws, k - 1, axis=1)[:, k - 1])


def backup_not_cancelled(samplers: Sequence[Sampler], num_needed: int, num_steps: int) -> BackupEstimate:
    """Estimates a true barrier (A4): the first N fresh gradients of N + b workers make an update.

    A late worker finishes its step, loses its gradient, and joins the current update. The first 20 % of the updates are
    left out.
    """
    queue = [(sample(), worker, 0) for worker, sample in enumerate(samplers)]
    heapq.heapify(queue)
    ends: list[float] = []
    drops: list[int] = [0]  # number of dropped gradients by update
    arrived: list[int] = []
    while len(ends) < num_steps:
        now, worker, version = heapq.heappop(queue)
        if version < len(ends):
            drops[-1] += 1
            heapq.heappush(queue, (now + samplers[worker](), worker, len(ends)))
            continue
        arrived.append(worker)
        if len(arrived) == num_needed:
            ends.append(now)
            drops.append(0)
            for waiting in arrived:
                heapq.heappush(queue, (now + samplers[waiting](), waiting, len(ends)))
            arrived.clear()
    return _backup_estimate(ends, drops, num_needed)


def token_queue(samplers: Sequence[Sampler], num_needed: int, num_steps: int) -> BackupEstimate:
    """Estimates `SyncReplicasOptimizer` with backup workers: any free worker takes one of N + b tokens per update.

    A token's number is the step that the gradient counts for; a worker that takes an old token computes a gradient that
    will be dropped. Source: TensorFlow 2.21, `python/training/sync_replicas_optimizer.py`, where N is
    `replicas_to_aggregate`. The first 20 % of the updates are left out.
    """
    running = [(sample(), worker, 0) for worker, sample in enumerate(samplers)]
    heapq.heapify(running)
    tokens = deque([0] * num_needed)  # tokens that the chief adds at the start; the first steps take none
    idle: deque[int] = deque()
    ends: list[float] = []
    drops: list[int] = [0]
    num_fresh = 0
    while len(ends) < num_steps:
        now, worker, version = heapq.heappop(running)
        idle.append(worker)
        is_fresh = version >= len(ends)
        num_fresh += is_fresh
        drops[-1] += not is_fresh
        if num_fresh == num_needed:
            ends.append(now)
            drops.append(0)
            num_fresh = 0
            tokens.extend([len(ends)] * len(samplers))
        while idle and tokens:
            taker = idle.popleft()
            heapq.heappush(running, (now + samplers[taker](), taker, tokens.popleft()))
    return _backup_estimate(ends, drops, num_needed)


def ssp_clock_rate(samplers: Sequence[Sampler], bound: int | None, num_clocks: int) -> float:
    """Returns clocks per second of a worker under stale synchronous parallel (A17), mean over the workers.

    A worker begins a clock when it has completed at most `bound` more than the slowest one. A bound of 0 is a barrier
    after every clock; None lets no worker wait. Counting begins after 20 % of the slowest worker's `num_clocks`.
    """
    done = [0] * len(samplers)
    running = [(sample(), worker) for worker, sample in enumerate(samplers)]
    heapq.heapify(running)
    blocked: list[int] = []
    started_at, started_sum = 0.0, 0
    while True:
        now, worker = heapq.heappop(running)
        done[worker] += 1
        blocked.append(worker)
        slowest = min(done)
        if not started_at and slowest >= WARMUP_SHARE * num_clocks:
            started_at, started_sum = now, sum(done)
        if slowest >= num_clocks:
            return (sum(done) - started_sum) / (now - started_at) / len(samplers)
        free = [w for w in blocked if bound is None or done[w] - slowest <= bound]
        blocked = [w for w in blocked if w not in free]
        for starting in free:
            heapq.heappush(running, (now + samplers[starting](), starting))


def _backup_estimate(ends: Sequence[float], drops: Sequence[int], num_needed: int) -> BackupEstimate:
    first = int(WARMUP_SHARE * len(ends))
    dropped = sum(drops[first : len(ends)])
    used = num_needed * (len(ends) - first)
    return BackupEstimate(_batch_means(np.diff(ends[max(0, first - 1) :])), dropped / (dropped + used))


def _batch_means(values: np.ndarray) -> Estimate:
    """Returns mean and standard error of values that may depend on their neighbours, from the means of long batches."""
    batches = [batch.mean() for batch in np.array_split(values, min(_NUM_BATCHES, len(values)))]
    error = float(np.std(batches, ddof=1)) / math.sqrt(len(batches)) if len(batches) > 1 else math.inf
    return Estimate(float(np.mean(values)), error)
