"""Stability on a quadratic: known values, and measurements compared with them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ps_trainer.experiments.toolkit import quadratic
from ps_trainer.simulation import given_staleness


@pytest.mark.parametrize(("tau", "rate"), [(0, 2.0), (1, 1.0), (2, (5**0.5 - 1) / 2)])
def test_known_stable_rates(tau, rate):
    assert quadratic.largest_stable_rate(tau) == pytest.approx(rate)


@pytest.mark.parametrize("tau", [0, 1, 5, 12])
def test_the_exact_rate_has_a_root_on_the_unit_circle(tau):
    def largest_root(rate):
        return np.abs(np.roots([1, -1, *[0] * (tau - 1), rate] if tau else [1, rate - 1])).max()

    rate = quadratic.largest_stable_rate(tau)
    assert largest_root(0.999 * rate) < 1 < largest_root(1.001 * rate)


@pytest.mark.parametrize("tau", [1, 4])
def test_the_mean_under_geometric_staleness_has_its_own_rate(tau):
    keep = tau / (1 + tau)

    def largest_root(rate):
        return np.abs(np.roots([1, -(1 + keep - rate / (1 + tau)), keep])).max()

    rate = quadratic.largest_stable_geometric_mean_rate(tau)
    assert largest_root(0.999 * rate) < 1 < largest_root(1.001 * rate)


@pytest.mark.parametrize("tau", [0, 2, 8])
def test_the_measured_rate_is_the_exact_one(tau):
    measured = quadratic.measured_stable_rate(lambda n: given_staleness.constant(tau, n).steps.staleness, tau)
    assert measured == pytest.approx(quadratic.largest_stable_rate(tau), rel=0.005)


@pytest.mark.parametrize("tau", [0, 1, 4, 12])
def test_in_mean_square_two_programs_give_the_same_rate(tau):
    staleness = given_staleness.geometric(tau, 50_000, seed=3).steps.staleness
    measured = quadratic.measured_mean_square_rate(staleness)
    assert measured == pytest.approx(quadratic.largest_stable_geometric_rate(tau), rel=0.01)


def test_in_mean_square_the_rate_approaches_the_root_of_two_over_one_plus_tau():
    products = [quadratic.largest_stable_geometric_rate(tau) * math.sqrt((1 + tau) / 2) for tau in (2, 8, 32, 512)]
    assert products == sorted(products, reverse=True)
    assert products[0] < 1.1
    assert products[-1] == pytest.approx(1.0, abs=0.001)


def test_the_mean_square_of_many_sequences_grows_and_shrinks_where_the_recursion_says():
    tau, num_updates, num_sequences = 2, 40, 20_000
    rate = quadratic.largest_stable_geometric_rate(tau)

    def growth(at):
        random = np.random.default_rng(0)
        values = np.ones((num_updates + 1, num_sequences))
        for update in range(num_updates):
            stale = np.maximum(update - (random.geometric(1 / (1 + tau), num_sequences) - 1), 0)
            values[update + 1] = values[update] - at * values[stale, np.arange(num_sequences)]
        squares = np.mean(values**2, axis=1)
        return squares[-1] / squares[num_updates // 2]

    assert growth(0.8 * rate) < 0.5
    assert growth(1.2 * rate) > 2


@pytest.mark.parametrize(("tau", "momentum", "rate"), [(0, 0.9, 3.8), (1, 0.9, 0.1), (0, 0.5, 3.0), (1, 0.5, 0.5)])
def test_momentum_and_staleness_together_leave_a_small_rate(tau, momentum, rate):
    assert quadratic.largest_stable_momentum_rate(tau, momentum) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("tau", [0, 1, 3, 9])
def test_without_momentum_the_rate_equals_that_of_sgd(tau):
    assert quadratic.largest_stable_momentum_rate(tau, 0.0) == pytest.approx(quadratic.largest_stable_rate(tau))
