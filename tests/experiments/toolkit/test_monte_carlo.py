"""Sampled models against closed forms, and against the step times of an independent simulation.

The printed tables come from 4,000 to 6,000 steps and have two decimals, so they are accurate to about 0.03.
"""

from __future__ import annotations

import random

import pytest

from ps_trainer.experiments.toolkit import monte_carlo, theory

NUM_STEPS = 6000


def exponential(num_workers, seed=1):
    rng = random.Random(seed)
    return [lambda: rng.expovariate(1.0)] * num_workers


def lognormal(num_workers, sigma=0.5, seed=1):
    rng = random.Random(seed)
    return [lambda: rng.lognormvariate(-(sigma**2) / 2, sigma)] * num_workers


def shifted(num_workers, alpha=0.2, seed=1):
    rng = random.Random(seed)
    return [lambda: 1 - alpha + alpha * rng.expovariate(1.0)] * num_workers


def with_slow_worker(samplers, factor):
    return [*samplers[:-1], lambda: factor * samplers[-1]()]


@pytest.mark.parametrize(("k", "n"), [(1, 1), (4, 4), (8, 8), (8, 10), (1, 3)])
def test_order_statistics_of_exponential_times_agree_with_the_closed_form(k, n):
    got = monte_carlo.order_statistic(exponential(n), k, 20_000)
    assert got.value == pytest.approx(theory.exponential_order_statistic(k, n), abs=4 * got.standard_error)
    assert got.standard_error < 0.02


def test_the_stated_error_is_the_standard_error_of_a_mean():
    # The maximum of 4 exponential times has the variance 1 + 1/4 + 1/9 + 1/16.
    expected = ((1 + 1 / 4 + 1 / 9 + 1 / 16) / 20_000) ** 0.5
    assert monte_carlo.order_statistic(exponential(4), 4, 20_000).standard_error == pytest.approx(expected, rel=0.4)


def test_order_statistics_accept_workers_of_different_speed():
    samplers = [lambda: 1.0, lambda: 3.0, lambda: 2.0]
    assert [monte_carlo.order_statistic(samplers, k, 40).value for k in (1, 2, 3)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("samplers", "cancelled", "not_cancelled", "tokens"),
    [
        (exponential, (2.72, 1.83, 1.43, 1.18), (2.72, 2.03, 1.72, 1.53), (2.72, 1.85, 1.49, 1.29)),
        (shifted, (1.34, 1.16, 1.09, 1.04), (1.34, 1.21, 1.16, 1.13), (1.34, 1.21, 1.16, 1.13)),
        (lognormal, (1.89, 1.45, 1.25, 1.13), (1.89, 1.55, 1.40, 1.31), (1.89, 1.50, 1.34, 1.25)),
    ],
)
def test_step_times_with_backup_workers(samplers, cancelled, not_cancelled, tokens):
    for b in range(4):
        workers = samplers(8 + b)
        assert monte_carlo.order_statistic(workers, 8, NUM_STEPS).value == pytest.approx(cancelled[b], rel=0.02)
        late = monte_carlo.backup_not_cancelled(workers, 8, NUM_STEPS)
        assert late.step_secs.value == pytest.approx(not_cancelled[b], rel=0.02)
        queue = monte_carlo.token_queue(workers, 8, NUM_STEPS)
        assert queue.step_secs.value == pytest.approx(tokens[b], rel=0.02)


def test_a_token_queue_drops_the_share_of_backup_workers_exactly():
    for b, share in ((0, 0.0), (1, 1 / 9), (2, 2 / 10), (3, 3 / 11)):
        got = monte_carlo.token_queue(exponential(8 + b), 8, NUM_STEPS)
        assert got.dropped_share == pytest.approx(share, abs=0.002)


def test_a_slow_worker_costs_a_token_queue_more_than_a_barrier():
    workers = with_slow_worker(shifted(5), 10)
    assert monte_carlo.backup_not_cancelled(workers, 4, 2000).step_secs.value == pytest.approx(1.21, rel=0.02)
    assert monte_carlo.token_queue(workers, 4, 2000).step_secs.value == pytest.approx(1.44, rel=0.03)


def test_backup_workers_of_equal_speed_gain_nothing_and_drop_only_their_share():
    got = monte_carlo.backup_not_cancelled([lambda: 1.0] * 3, 2, 100)
    assert got.step_secs.value == pytest.approx(1.0)
    assert got.dropped_share == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize(
    ("samplers", "rates"),
    [
        (exponential(4), {0: 0.48, 1: 0.66, 2: 0.74, 3: 0.78, 5: 0.85, 10: 0.92, None: 1.0}),
        (lognormal(8), {0: 0.53, 1: 0.77, 2: 0.86, 3: 0.90, 5: 0.93}),
        (shifted(8), {0: 0.75, 1: 0.95, 2: 0.97}),
        (with_slow_worker(lognormal(4), 4), {0: 0.25, 1: 0.24, 3: 0.25}),
    ],
)
def test_clock_rates_under_stale_synchronous_parallel(samplers, rates):
    for bound, rate in rates.items():
        assert monte_carlo.ssp_clock_rate(samplers, bound, 4000) == pytest.approx(rate, abs=0.02)
