"""Closed forms of parameter-server training. Published plots and claims cite some by number, A1 to A19.

Times are in seconds, sizes in bytes, rates in bytes per second of one network interface and direction. n is the number
of workers, and p the number of ps tasks. X is the time of one worker's step, M the bytes of all parameters, and B a
link's rate. Models without a closed form are in `monte_carlo.py`. `docs/howto/run-an-experiment.md` lists the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_NUM_HALVINGS = 60


def harmonic(n: int) -> float:
    """Returns H_n = 1 + 1/2 + … + 1/n; 0 for n = 0."""
    return math.fsum(1.0 / k for k in range(1, n + 1))


def exponential_order_statistic(k: int, n: int, mean_secs: float = 1.0) -> float:
    """Returns E[X_(k:n)], the k-th smallest of n exponential times: (H_n − H_{n−k}) · mean.

    With k = n a synchronous step, which waits for the slowest worker (A1). With k = N of N + b backup workers the model
    in which stragglers are cancelled and all workers begin each step together (A3; Chen et al. 2016). That model is
    optimistic, since parameter servers cancel no worker. Also the step of K-sync (Dutta et al. 2018).
    """
    return (harmonic(n) - harmonic(n - k)) * mean_secs


def async_over_sync(expected_max_secs: float, mean_secs: float) -> float:
    """Returns gradients per second, asynchronous over synchronous: E[max] / E[X]; H_n for exponential steps (A2)."""
    return expected_max_secs / mean_secs


def normalised_speedup(secs_without: float, secs_with: float, num_needed: int, num_backup: int) -> float:
    """Returns t(0)/t(b) · N/(N + b), the gain of b backup workers per paid worker (A5; Abadi et al. 2016, Fig. 8c)."""
    return secs_without / secs_with * num_needed / (num_needed + num_backup)


def mean_staleness(n: int, gradients_per_update: int = 1) -> float:
    """Returns (n − 1) / c updates, for any step times and speeds, if each worker pulls right after its push (A6).

    Between a worker's two pushes n − 1 gradients of others arrive on average, as many as are on their way. With c
    gradients to an update (n-softsync, Zhang et al. 2016), floor((r + d)/c) updates fall among d arrivals that begin at
    place r of a group. Over r = 0 … c − 1 that is d/c on average.
    """
    return (n - 1) / gradients_per_update


def geometric_staleness(staleness: np.ndarray, n: int) -> np.ndarray:
    """Returns P(τ = k) = (1/n)(1 − 1/n)^k, the staleness of n workers whose steps are exponential (A7)."""
    return (1.0 / n) * (1.0 - 1.0 / n) ** np.asarray(staleness)


def geometric_cdf(staleness: np.ndarray, n: int) -> np.ndarray:
    """Returns P(τ ≤ k) = 1 − (1 − 1/n)^(k+1) (A7)."""
    return 1.0 - (1.0 - 1.0 / n) ** (np.asarray(staleness) + 1.0)


def geometric_sd(n: int) -> float:
    """Returns the standard deviation √(n(n − 1)) of the geometric staleness (A7)."""
    return math.sqrt(n * (n - 1))


def worker_staleness(rates: Sequence[float]) -> list[float]:
    """Returns the mean staleness of each worker's gradients from relative rates r: (Σ_{j≠i} r_j) / r_i (A8)."""
    total = math.fsum(rates)
    return [(total - rate) / rate for rate in rates]


def ps_phase_secs(model_bytes: float, n: int, p: int, bytes_per_sec: float) -> float:
    """Returns the time of one pull, or one push, of all workers at once: max(M/B, nM/(pB)) (A10).

    With ps tasks on separate hosts and balanced shards: either a worker's link or a ps task's is the narrow one.
    """
    return max(1.0, n / p) * model_bytes / bytes_per_sec


def ps_round_secs(model_bytes: float, n: int, p: int, bytes_per_sec: float) -> float:
    """Returns a pull and then a push, 2 · max(M/B, nM/(pB)) (A10)."""
    return 2.0 * ps_phase_secs(model_bytes, n, p, bytes_per_sec)


def ring_secs(model_bytes: float, n: int, bytes_per_sec: float) -> float:
    """Returns 2(n − 1)M / (nB), for a ring all-reduce, or a ps task on each worker's host; 2M/B for large n (A11)."""
    return 2.0 * (n - 1) / n * model_bytes / bytes_per_sec


def byteps_secs(model_bytes: float, n: int, num_extra: int, bytes_per_sec: float) -> float:
    """Returns 2n(n − 1)M / ((n² + kn − 2k)B), the least for n workers, k ≤ n extra hosts (A12; Jiang et al. 2020).

    Both directions of a link are used at once. k = 0 gives the ring's 2(n − 1)M/(nB), k = n gives M/B.
    """
    return 2.0 * n * (n - 1) * model_bytes / ((n * n + num_extra * n - 2 * num_extra) * bytes_per_sec)


def step_secs(compute_secs: float, transfer_secs: float, overlap: float = 0.0) -> float:
    """Returns T_comp + T_comm − overlap · min(T_comp, T_comm) (A13).

    With an overlap of 0 they follow each other, as in TensorFlow 1's pull and push. An overlap of 1 hides the shorter.
    """
    return compute_secs + transfer_secs - overlap * min(compute_secs, transfer_secs)


def async_round_secs(compute_secs: float, model_bytes: float, n: int, p: int, bytes_per_sec: float) -> float:
    """Returns the time in which each of n asynchronous workers makes a step, of compute, a pull and a push (A19).

    The workers are the customers of a closed queueing network. Computing is a delay. Pulls share the links of one
    direction, pushes those of the other: k transfers at once go at min(k, p)·B/M. Such a network has a product form,
    whatever the distribution of the compute times (Baskett, Chandy, Muntz and Palacios 1975). Its throughput is
    G(n − 1)/G(n), with G by convolution over the three stations (Buzen 1973).
    """
    transfer_secs = model_bytes / bytes_per_sec
    # In this unit the constants of hundreds of workers stay within the range of a float.
    unit = compute_secs / n + 2 * transfer_secs / min(n, p)
    delay, link = np.ones(n + 1), np.ones(n + 1)
    for k in range(1, n + 1):
        delay[k] = delay[k - 1] * compute_secs / k / unit
        link[k] = link[k - 1] * transfer_secs / min(k, p) / unit
    constants = np.convolve(np.convolve(delay, link)[: n + 1], link)[: n + 1]
    return float(n * unit * constants[n] / constants[n - 1])


def async_costs(alone: float, together: float, model_bytes: float, n: int, p: int) -> tuple[float, float]:
    """Returns the compute time and the link's rate with which A19 gives two measured rounds.

    Args:
        alone: Round of one worker in seconds.
        together: Round of n workers in seconds, longer than `alone`.
        model_bytes: M.
        n: Number of workers, more than p.
        p: Number of ps tasks.
    """
    low, high = 2.0 * model_bytes / alone, 1e6 * model_bytes / alone  # rates at which transfers take all or nothing
    for _ in range(_NUM_HALVINGS):
        middle = math.sqrt(low * high)
        compute_secs = alone - 2.0 * model_bytes / middle
        is_slow = async_round_secs(compute_secs, model_bytes, n, p, middle) > together
        low, high = (middle, high) if is_slow else (low, middle)
    return alone - 2.0 * model_bytes / high, high


def slowest_ps_secs(bytes_per_ps: Sequence[float], n: int, bytes_per_sec: float) -> float:
    """Returns the time of a pull, or push, by the ps task that holds the most: max_j bytes_j · n / B (A18)."""
    return max(bytes_per_ps) * n / bytes_per_sec
