"""SGD with stale gradients on a quadratic: the largest stable learning rate, exact and measured."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_START_RATE_RANGE = (1e-3, 8.0)
_NUM_HALVINGS = 16
_MEAN_SQUARE_UPDATES = 30  # updates for each update of 1 + τ, after which growth shows
_NUM_EXACT_HALVINGS = 40
_OVERFLOW = 1e100


def largest_stable_rate(tau: int) -> float:
    """Returns the learning rate at which w ← w − η w_{t−τ} stops contracting at curvature 1: 2 sin(π / (2 (2τ + 1))).

    It is 2 without staleness, then 1, 0.618, …, π / (2τ + 1) for large τ, the staleness in updates. Source: Levin and
    May 1976, "A note on difference-delay equations": z^{τ+1} − z^τ + η has a root on the unit circle there.
    """
    return 2.0 * math.sin(math.pi / (2 * (2 * tau + 1)))


def largest_stable_momentum_rate(tau: int, momentum: float) -> float:
    """Returns the largest stable rate with momentum μ and velocity on the ps: 2 (1 + μ) for τ = 0, 1 − μ for τ = 1.

    It is the smallest η with a root of z^{τ+1} − (1 + μ) z^τ + μ z^{τ−1} + η on the unit circle (times z for τ = 0).
    """
    polynomial = np.zeros(max(tau + 2, 3))
    polynomial[:3] = 1.0, -(1.0 + momentum), momentum
    low, high = 0.0, 2.0 * (1.0 + momentum) + 1.0
    for _ in range(_NUM_EXACT_HALVINGS):
        middle = (low + high) / 2
        polynomial[tau + 1] += middle
        is_stable = np.abs(np.roots(polynomial)).max() < 1.0
        polynomial[tau + 1] -= middle
        low, high = (middle, high) if is_stable else (low, middle)
    return (low + high) / 2


def largest_stable_geometric_mean_rate(tau: float) -> float:
    """Returns the largest stable rate for the mean of w with a geometric staleness of mean τ: 2 (1 + 2τ).

    With p = 1 / (1 + τ) and q = 1 − p the mean follows z² − (1 + q − ηp) z + q: momentum q (A9), whose roots stay in
    the unit circle while ηp < 2 (1 + q). It grows with τ, so the mean does not bound the learning rate.
    """
    return 2.0 * (1.0 + 2.0 * tau)


def largest_stable_geometric_rate(tau: float) -> float:
    """Returns the largest rate with which the mean of w² shrinks under a geometric staleness of mean τ.

    With m the mean of the stale version given all versions, and s the mean of its square, the means of w², wm, m² and s
    follow a linear recursion of their own. Its largest root is 1 at 2 for τ = 0, and near √2 / √(1 + τ) for large τ.
    """
    p = 1.0 / (1.0 + tau)
    q = 1.0 - p

    def is_stable(rate: float) -> bool:
        square = np.array([1.0, -2.0 * rate, 0.0, rate * rate])  # of w(t + 1), from those of w², wm, m² and s
        with_mean = np.array([0.0, 1.0, -rate, 0.0])  # w(t + 1) times m(t)
        mean = p * p * square + 2 * p * q * with_mean + q * q * np.array([0.0, 0.0, 1.0, 0.0])
        stale = p * square + q * np.array([0.0, 0.0, 0.0, 1.0])
        recursion = np.stack([square, p * square + q * with_mean, mean, stale])
        return bool(np.abs(np.linalg.eigvals(recursion)).max() < 1.0)

    low, high = 0.0, _START_RATE_RANGE[1]
    for _ in range(_NUM_EXACT_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_stable(middle) else (low, middle)
    return (low + high) / 2


def measured_mean_square_rate(staleness: np.ndarray) -> float:
    """Returns the rate between growth and decay of the mean of w², for random staleness with the shares of these.

    The means of all products of two versions follow a linear recursion, which needs no closed form of the staleness.
    """
    shares = np.bincount(staleness) / len(staleness)
    low, high = _START_RATE_RANGE
    for _ in range(_NUM_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _mean_square_shrinks(middle, shares) else (low, middle)
    return math.sqrt(low * high)


def measured_stable_rate(staleness_of: Callable[[int], np.ndarray], mean_staleness: int) -> float:
    """Returns the learning rate between runs that shrink and runs that grow, by bisection.

    `staleness_of` maps a number of updates to the staleness of each, with the same values at each call.
    """
    num_updates = 1000 + 300 * mean_staleness
    staleness = staleness_of(num_updates).tolist()
    low, high = _START_RATE_RANGE
    for _ in range(_NUM_HALVINGS):
        middle = math.sqrt(low * high)
        if _shrinks(middle, staleness, 50 + 4 * mean_staleness):
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def _shrinks(rate: float, staleness: list[int], num_last: int) -> bool:
    values = [1.0]
    for update, tau in enumerate(staleness):
        values.append(values[-1] - rate * values[update - tau])
        if abs(values[-1]) > _OVERFLOW:
            return False
    return max(map(abs, values[-num_last:])) < 1.0


def _mean_square_shrinks(rate: float, shares: np.ndarray) -> bool:
    products = np.ones((len(shares), len(shares)))  # means of w(t − i) w(t − j)
    num_updates = math.ceil(_MEAN_SQUARE_UPDATES * (1 + np.dot(shares, np.arange(len(shares)))))
    squares = []
    for _ in range(num_updates):
        new = products[0] - rate * shares @ products  # w(t + 1) w(t − j)
        square = products[0, 0] - 2 * rate * shares @ products[0] + rate**2 * shares @ np.diag(products)
        products[1:, 1:] = products[:-1, :-1].copy()
        products[0, 1:] = products[1:, 0] = new[:-1]
        products[0, 0] = square
        squares.append(square)
        if square > _OVERFLOW:
            return False
    # The largest root is positive, so that growth or decay are steady in the end.
    return bool(squares[-1] < squares[num_updates // 2])
