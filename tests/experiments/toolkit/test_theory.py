"""The closed forms, compared with their sources and with arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ps_trainer.experiments.toolkit import theory


@pytest.mark.parametrize(
    ("n", "value"), [(0, 0.0), (1, 1.0), (2, 1.5), (4, 2.083), (8, 2.718), (16, 3.381), (100, 5.187)]
)
def test_harmonic_numbers(n, value):
    assert theory.harmonic(n) == pytest.approx(value, abs=5e-4)


def test_the_slowest_of_exponential_workers_takes_a_harmonic_number_of_means():
    assert theory.exponential_order_statistic(4, 4, 3.0) == pytest.approx(3.0 * (1 + 1 / 2 + 1 / 3 + 1 / 4))


def test_backup_workers_that_cancel_stragglers_wait_for_the_eighth_of_nine():
    # H_9 - H_1 and so on: column A3 of the exponential table.
    times = [theory.exponential_order_statistic(8, 8 + b) for b in range(4)]
    assert times == pytest.approx([2.72, 1.83, 1.43, 1.19], abs=0.005)
    assert times[1] == pytest.approx(sum(1 / k for k in range(2, 10)))


def test_the_fastest_of_exponential_workers_is_n_times_as_fast():
    assert theory.exponential_order_statistic(1, 5, 2.0) == pytest.approx(2.0 / 5)


def test_async_gains_the_ratio_of_the_slowest_to_the_mean():
    assert theory.async_over_sync(theory.exponential_order_statistic(8, 8), 1.0) == pytest.approx(theory.harmonic(8))


@pytest.mark.parametrize(
    ("times", "needed", "speedups"),
    [
        ([2.72, 1.85, 1.49, 1.29], 8, [1.32, 1.48, 1.55]),  # exponential
        ([1.89, 1.50, 1.34, 1.25], 8, [1.12, 1.13, 1.10]),  # lognormal 0.5
        ([1.34, 1.21, 1.16, 1.13], 8, [0.99, 0.93, 0.87]),  # shifted exponential 0.2
        ([2.35, 1.62, 1.42, 1.35], 8, [1.29, 1.33, 1.27]),  # spikes
    ],
)
def test_gain_of_backup_workers_per_worker_paid_for(times, needed, speedups):
    got = [theory.normalised_speedup(times[0], times[b], needed, b) for b in (1, 2, 3)]
    assert got == pytest.approx(speedups, abs=0.02)  # the simulated times have two decimals


def test_mean_staleness_counts_updates():
    assert theory.mean_staleness(8) == 7
    assert theory.mean_staleness(30, gradients_per_update=15) == pytest.approx(29 / 15)


@pytest.mark.parametrize(("n", "sd"), [(2, 1.41), (4, 3.46), (8, 7.48), (16, 15.5)])
def test_geometric_staleness_has_that_mean_and_that_deviation(n, sd):
    values = np.arange(2000)
    shares = theory.geometric_staleness(values, n)
    mean = (values * shares).sum()
    assert shares.sum() == pytest.approx(1)
    assert mean == pytest.approx(n - 1)
    assert theory.geometric_sd(n) == pytest.approx(math.sqrt(((values - mean) ** 2 * shares).sum()))
    assert theory.geometric_sd(n) == pytest.approx(sd, abs=0.05)
    np.testing.assert_allclose(theory.geometric_cdf(values, n), np.cumsum(shares), atol=1e-12)


def test_an_eighth_of_geometric_staleness_exceeds_twice_the_mean():
    n = 30
    assert 1 - theory.geometric_cdf(np.array(2 * n - 1), n) == pytest.approx((1 - 1 / n) ** (2 * n))
    assert (1 - 1 / n) ** (2 * n) == pytest.approx(0.13, abs=0.005)


def test_a_slow_worker_carries_the_stale_gradients():
    assert theory.worker_staleness([1, 1, 1, 0.25]) == pytest.approx([2.25, 2.25, 2.25, 12])


def test_the_mean_over_updates_of_the_workers_staleness_equals_that_of_even_workers():
    rates = [1, 2, 3, 0.25]
    by_update = sum(rate * mean for rate, mean in zip(rates, theory.worker_staleness(rates), strict=True)) / sum(rates)
    assert by_update == pytest.approx(theory.mean_staleness(4))


MB = 1e6
LINK = 25 * MB  # 200 Mbit/s


def test_ps_time_grows_with_workers_per_ps_and_never_falls_below_one_link():
    assert theory.ps_phase_secs(4 * MB, n=8, p=1, bytes_per_sec=LINK) == pytest.approx(8 * 4 / 25)
    assert theory.ps_phase_secs(4 * MB, n=8, p=4, bytes_per_sec=LINK) == pytest.approx(2 * 4 / 25)
    assert theory.ps_phase_secs(4 * MB, n=2, p=4, bytes_per_sec=LINK) == pytest.approx(4 / 25)
    assert theory.ps_round_secs(4 * MB, n=8, p=1, bytes_per_sec=LINK) == pytest.approx(2 * 8 * 4 / 25)


def test_ring_takes_two_models_over_a_link_at_most():
    assert theory.ring_secs(8 * MB, 2, LINK) == pytest.approx(2 * (1 / 2) * 8 / 25)
    assert theory.ring_secs(8 * MB, 1000, LINK) == pytest.approx(2 * 8 / 25, rel=2e-3)


def test_byteps_without_extra_hosts_is_the_ring_and_with_n_of_them_half_of_it():
    for n in (2, 4, 16):
        assert theory.byteps_secs(8 * MB, n, 0, LINK) == pytest.approx(theory.ring_secs(8 * MB, n, LINK))
        assert theory.byteps_secs(8 * MB, n, n, LINK) == pytest.approx(8 / 25)


def test_transfer_is_added_or_hidden():
    assert theory.step_secs(0.2, 0.5) == pytest.approx(0.7)
    assert theory.step_secs(0.2, 0.5, overlap=1) == pytest.approx(0.5)
    assert theory.step_secs(0.2, 0.5, overlap=0.5) == pytest.approx(0.6)


def test_asynchronous_workers_are_customers_of_a_closed_network():
    # One worker waits for nobody. Without computing, two workers at two stations with one transfer at a time each have
    # three states of equal probability, in two of which a given station works.
    alone = theory.async_round_secs(0.2, 4 * MB, 1, 1, LINK)
    assert alone == pytest.approx(0.2 + 2 * 4 / 25)
    assert theory.async_round_secs(0.0, 4 * MB, 2, 1, LINK) == pytest.approx(2 * 3 / 2 * 4 / 25)
    # As many ps tasks as workers: nobody shares a link. Many workers: one direction of one link is the limit.
    assert theory.async_round_secs(0.2, 4 * MB, 4, 4, LINK) == pytest.approx(alone)
    assert theory.async_round_secs(0.2, 4 * MB, 64, 1, LINK) == pytest.approx(64 * 4 / 25, rel=0.02)


def test_hundreds_of_workers_of_any_step_time_are_within_the_range_of_a_float():
    for scale in (1e-3, 1.0, 1e3):
        secs = theory.async_round_secs(0.76 * scale, 95 * MB * scale, 400, 17, 500 * MB)
        assert secs == pytest.approx(scale * 400 / 17 * 95 / 500, rel=0.02)  # the links are full


def test_the_costs_of_a_step_are_found_from_two_rounds():
    rounds = [theory.async_round_secs(0.5, 95 * MB, n, 7, 400 * MB) for n in (1, 50)]
    assert theory.async_costs(*rounds, 95 * MB, 50, 7) == pytest.approx((0.5, 400 * MB))


def test_the_fullest_ps_decides():
    # VGG-16: 102.8 of 138 M parameters are in one variable; the rest is spread evenly.
    biggest, rest = 102.8, 138 - 102.8
    for p in (2, 4):
        held = [biggest + rest / p, *[rest / p] * (p - 1)]
        assert theory.slowest_ps_secs(held, 8, 2.0) == pytest.approx(held[0] * 8 / 2.0)
        balanced = theory.ps_phase_secs(138, 8, p, 2.0)
        assert theory.slowest_ps_secs(held, 8, 2.0) == pytest.approx(balanced * (0.745 * p + 0.255), rel=0.001)
