"""Analytic models of parameter-server training, numbered A1 to A18: what the plots draw as the theory line.

Times are in seconds, sizes in bytes, rates in bytes per second of one network interface and direction. n is
the number of workers, p that of ps tasks, X the time of one worker's step. What has no closed form is in
`monte_carlo.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


def harmonic(n: int) -> float:
    """H_n = 1 + 1/2 + … + 1/n; 0 for n = 0."""
    return math.fsum(1.0 / k for k in range(1, n + 1))


def exponential_order_statistic(k: int, n: int, mean_secs: float = 1.0) -> float:
    """E[X_(k:n)], the k-th smallest of n exponential times: (H_n − H_{n−k}) · mean.

    With k = n a synchronous step that waits for the slowest (A1); with k = N of N + b backup workers (A3) where
    stragglers are cancelled and everybody begins each step together (Chen et al. 2016); optimistic, since
    parameter servers cancel nobody. Also the step of K-sync (Dutta et al. 2018).

    Args:
        k: 1..n.
        n: number of workers.
        mean_secs: E[X].
    """
    return (harmonic(n) - harmonic(n - k)) * mean_secs


def async_rate(mean_secs: Sequence[float]) -> float:
    """Gradients per second of workers that wait for nobody, Σ 1/E[X_i]; n / E[X] when they are alike (A2).

    Args:
        mean_secs: of each worker's step.
    """
    return math.fsum(1.0 / mean for mean in mean_secs)


def async_over_sync(expected_max_secs: float, mean_secs: float) -> float:
    """Gradients per second, asynchronous over synchronous, E[max] / E[X]; H_n for exponential steps (A2).

    Args:
        expected_max_secs: of the slowest of n workers.
        mean_secs: E[X].
    """
    return expected_max_secs / mean_secs


def exponential_k_batch_sync(k: int, n: int, mean_secs: float = 1.0) -> float:
    """Seconds per update of K-batch-sync, where no worker ever idles: K · E[X] / n, a closed form akin to A4.

    For exponential steps (Dutta et al. 2018).
    """
    return k * mean_secs / n


def normalised_speedup(secs_without: float, secs_with: float, num_needed: int, num_backup: int) -> float:
    """t(0)/t(b) · N/(N + b), the gain of backup workers per worker paid for (Abadi et al. 2016, Fig. 8c) (A5).

    Args:
        secs_without: step time of N workers.
        secs_with: step time of N + b workers, N of which make an update.
        num_needed: N.
        num_backup: b.
    """
    return secs_without / secs_with * num_needed / (num_needed + num_backup)


def mean_staleness(n: int, gradients_per_update: int = 1) -> float:
    """(n − 1) / c updates, for any step time and mix of speeds, where each worker pulls right after its push (A6).

    Between a worker's two pushes n − 1 gradients of others arrive on average, as many as are on their way. With
    c gradients to an update, floor((r + d)/c) updates fall among d arrivals that begin at place r of a group;
    over r = 0 … c − 1 that is d/c on average.

    Args:
        n: number of workers.
        gradients_per_update: c; 1 = asynchronous, more = n-softsync (Zhang et al. 2016, c = n / splits).
    """
    return (n - 1) / gradients_per_update


def geometric_staleness(staleness: np.ndarray, n: int) -> np.ndarray:
    """P(τ = k) = (1/n)(1 − 1/n)^k, the staleness of n workers whose steps are exponential (A7).

    Args:
        staleness: k, whole numbers ≥ 0, any shape.
        n: number of workers.
    """
    return (1.0 / n) * (1.0 - 1.0 / n) ** np.asarray(staleness)


def geometric_cdf(staleness: np.ndarray, n: int) -> np.ndarray:
    """P(τ ≤ k) = 1 − (1 − 1/n)^(k+1) (A7)."""
    return 1.0 - (1.0 - 1.0 / n) ** (np.asarray(staleness) + 1.0)


def geometric_sd(n: int) -> float:
    """Standard deviation √(n(n − 1)) of that staleness (A7)."""
    return math.sqrt(n * (n - 1))


def worker_staleness(rates: Sequence[float]) -> list[float]:
    """Mean staleness of each worker's gradients, (Σ_{j≠i} r_j) / r_i: slow workers carry the stale ones (A8).

    Args:
        rates: steps per second of each worker, or any multiple.
    """
    total = math.fsum(rates)
    return [(total - rate) / rate for rate in rates]


def implicit_momentum(n: int) -> float:
    """1 − 1/n, the momentum as which geometric staleness acts in expectation (Mitliagkas et al. 2016) (A9)."""
    return 1.0 - 1.0 / n


def ps_phase_secs(model_bytes: float, n: int, p: int, bytes_per_sec: float) -> float:
    """One pull, or one push, of all workers at once: max(M/B, nM/(pB)) (A10).

    With ps tasks on hosts of their own and balanced shards: either a worker's link or a ps task's is the narrow one.

    Args:
        model_bytes: M, of all parameters.
        n: number of workers.
        p: number of ps tasks.
        bytes_per_sec: B.
    """
    return max(1.0, n / p) * model_bytes / bytes_per_sec


def ps_round_secs(model_bytes: float, n: int, p: int, bytes_per_sec: float) -> float:
    """A pull and then a push, 2 · max(M/B, nM/(pB)); arguments as of `ps_phase_secs` (A10)."""
    return 2.0 * ps_phase_secs(model_bytes, n, p, bytes_per_sec)


def ring_secs(model_bytes: float, n: int, bytes_per_sec: float) -> float:
    """Ring all-reduce, and a ps task on each worker's host: 2(n − 1)M / (nB), towards 2M/B for large n (A11)."""
    return 2.0 * (n - 1) / n * model_bytes / bytes_per_sec


def byteps_secs(model_bytes: float, n: int, num_extra: int, bytes_per_sec: float) -> float:
    """2n(n − 1)M / ((n² + kn − 2k)B), the least for n workers and k ≤ n extra hosts (Jiang et al. 2020) (A12).

    k = 0 gives the ring's 2(n − 1)M/(nB), k = n gives M/B.

    Args:
        model_bytes: M.
        n: number of workers, at least 2.
        num_extra: k, hosts without a worker.
        bytes_per_sec: B, both directions at once.
    """
    return 2.0 * n * (n - 1) * model_bytes / (_byteps_divisor(n, num_extra) * bytes_per_sec)


class BytePsShares(NamedTuple):
    """The part of the model, 0..1, on each extra host and on each worker's host (A12).

    Attributes:
        extra: on each of the k extra hosts.
        worker: on each of the n hosts of workers.
    """

    extra: float
    worker: float


def byteps_shares(n: int, num_extra: int) -> BytePsShares:
    """2(n − 1)/(n² + kn − 2k) and (n − k)/(n² + kn − 2k); arguments as of `byteps_secs` (A12)."""
    divisor = _byteps_divisor(n, num_extra)
    return BytePsShares(2.0 * (n - 1) / divisor, (n - num_extra) / divisor)


def step_secs(compute_secs: float, transfer_secs: float, overlap: float = 0.0) -> float:
    """T_comp + T_comm − overlap · min(T_comp, T_comm) (A13).

    Args:
        compute_secs: T_comp.
        transfer_secs: T_comm.
        overlap: 0 = one after the other, as TF1's pull and push do, 1 = the shorter one is hidden.
    """
    return compute_secs + transfer_secs - overlap * min(compute_secs, transfer_secs)


def amdahl_speedup(n: float, serial_share: float) -> float:
    """S(n) = 1 / (s + (1 − s)/n), with s the share that cannot be spread (apply on the ps, barrier) (A14)."""
    return 1.0 / (serial_share + (1.0 - serial_share) / n)


def fit_serial_share(num_workers: Sequence[int], speedups: Sequence[float]) -> float:
    """The s whose 1/S(n) = 1/n + s(1 − 1/n) is nearest in least squares (A14, fitted).

    Args:
        num_workers: n of each measurement; at least one above 1.
        speedups: S(n), measured.
    """
    inverse_n = 1.0 / np.asarray(num_workers, float)
    slope = 1.0 - inverse_n
    return float(np.dot(slope, 1.0 / np.asarray(speedups, float) - inverse_n) / np.dot(slope, slope))


def linear_learning_rate(base: float, factor: float, step: int = 0, warmup_steps: int = 0) -> float:
    """Learning rate for a batch `factor` times as large (A15): base · factor, in even steps (Goyal et al. 2017).

    Args:
        base: of the small batch.
        factor: k.
        step: steps made, from 0.
        warmup_steps: steps in which it rises from `base`; 0 = at once.
    """
    done = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return base * (1.0 + (factor - 1.0) * done)


def periodic_step_secs(compute_secs: float, transfer_secs: float, period: int) -> float:
    """A step of local SGD or EASGD that communicates every `period` steps: T_comp + T_comm/period (A16)."""
    return compute_secs + transfer_secs / period


def periodic_bytes(bytes_per_exchange: float, period: int) -> float:
    """Bytes per step when they are exchanged every `period` steps (A16)."""
    return bytes_per_exchange / period


class RateBounds(NamedTuple):
    """Clocks per second of a worker under SSP: `bsp` ≤ rate ≤ `no_wait` (A17)."""

    bsp: float
    no_wait: float


def ssp_rate_bounds(expected_max_secs: float, mean_secs: Sequence[float]) -> RateBounds:
    """Between 1/E[max] and 1/E[X]; with one worker that stays slow, no finite bound is above its rate (A17).

    Args:
        expected_max_secs: of the slowest of the workers.
        mean_secs: of each worker's step.
    """
    return RateBounds(1.0 / expected_max_secs, 1.0 / max(mean_secs))


def imbalance(bytes_per_ps: Sequence[float]) -> float:
    """Largest over mean of the bytes on the ps tasks, 1 = balanced, p = all on one (A18)."""
    return max(bytes_per_ps) * len(bytes_per_ps) / math.fsum(bytes_per_ps)


def slowest_ps_secs(bytes_per_ps: Sequence[float], n: int, bytes_per_sec: float) -> float:
    """One pull, or one push, where the ps task that holds the most decides: max_j bytes_j · n / B (A18)."""
    return max(bytes_per_ps) * n / bytes_per_sec


def _byteps_divisor(n: int, num_extra: int) -> int:
    return n * n + num_extra * n - 2 * num_extra
