"""Stability on a quadratic: known values, and measurements compared with them."""

from __future__ import annotations

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


@pytest.mark.parametrize(("tau", "momentum", "rate"), [(0, 0.9, 3.8), (1, 0.9, 0.1), (0, 0.5, 3.0), (1, 0.5, 0.5)])
def test_momentum_and_staleness_together_leave_a_small_rate(tau, momentum, rate):
    assert quadratic.largest_stable_momentum_rate(tau, momentum) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("tau", [0, 1, 3, 9])
def test_without_momentum_the_rate_equals_that_of_sgd(tau):
    assert quadratic.largest_stable_momentum_rate(tau, 0.0) == pytest.approx(quadratic.largest_stable_rate(tau))
