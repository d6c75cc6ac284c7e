"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ps_trainer.experiments.toolkit import statistics, theory


def test_spread_interpolates_between_values():
    assert statistics.spread([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]) == (6, 2, 10)
    assert statistics.spread([0, 10]) == pytest.approx((5, 1, 9))
    assert statistics.spread([3]) == (3, 3, 3)


def test_standard_error_of_the_mean():
    assert statistics.standard_error([1, 2, 3, 4]) == pytest.approx(math.sqrt((2.25 + 0.25) * 2 / 3) / 2)
    assert math.isnan(statistics.standard_error([1]))


def test_the_interval_of_a_ratio_is_that_of_welchs_t_test_on_the_logarithms():
    # Logarithms 1, 2, 3 against 0, 0, 0, 0: difference 2, standard error 1/√3, 2 degrees of freedom.
    ratio, interval = statistics.ratio_interval(np.exp([1.0, 2.0, 3.0]), [1.0] * 4)
    assert ratio == pytest.approx(math.exp(2))
    half = 2.920 / math.sqrt(3)
    assert interval == pytest.approx((math.exp(2 - half), math.exp(2 + half)))
    assert statistics.ratio_interval([2.0, 2.0], [1.0, 1.0]) == (2.0, (2.0, 2.0))
    assert statistics.ratio_interval([2.0], [1.0, 1.0]) == (2.0, None)
    assert statistics.ratio_interval([math.inf, 2.0], [1.0, 1.0]) == (math.inf, None)


def test_the_interval_of_a_ratio_covers_it_nine_times_in_ten():
    random = np.random.default_rng(1)
    samples = [(random.lognormal(0.3, 0.2, 5), random.lognormal(0.0, 0.4, 8)) for _ in range(2000)]
    intervals = [statistics.ratio_interval(one, other)[1] for one, other in samples]
    assert 0.88 < np.mean([low <= math.exp(0.3) <= high for low, high in intervals]) < 0.93


def test_the_interval_of_a_median_covers_it_and_is_the_same_each_time():
    random = np.random.default_rng(2)
    samples = [random.exponential(size=25) for _ in range(200)]
    intervals = [statistics.median_interval(sample)[1] for sample in samples]
    assert 0.84 < np.mean([low <= math.log(2) <= high for low, high in intervals]) < 0.97
    assert statistics.median_interval([3.0, 1.0, 2.0]) == statistics.median_interval([3.0, 1.0, 2.0])
    assert statistics.median_interval([4.0]) == (4.0, (4.0, 4.0))


def test_the_ratio_of_two_medians_has_an_interval_that_covers_it():
    random = np.random.default_rng(3)
    samples = [(random.lognormal(0.3, 0.3, 15), random.lognormal(0.0, 0.3, 15)) for _ in range(100)]
    intervals = [statistics.median_ratio_interval((one, one), (other, other)) for one, other in samples]
    assert 0.84 < np.mean([low <= math.exp(0.3) <= high for low, high in intervals]) < 0.99


def test_unknown_values_widen_the_interval_of_a_ratio_as_far_as_they_could():
    known, lost = ([2.0] * 3, [2.0] * 3), ([10.0] * 3, [math.inf] * 3)
    assert statistics.median_ratio_interval(lost, known) == (5.0, math.inf)
    assert statistics.median_ratio_interval(known, lost) == (0.0, 0.2)
    some = ([2.0, 2.0, 3.0, 3.0, 9.0], [2.0, 2.0, 3.0, 3.0, math.inf])
    assert statistics.median_ratio_interval(some, ([1.0] * 5, [1.0] * 5)) == (2.0, math.inf)


def test_the_interval_of_a_share_is_wilsons():
    # 5 of 10 with z = 1.645: the middle is 1/2, and half the width z √(1/40 + z²/400) / (1 + z²/10).
    half = 1.645 * math.sqrt(1 / 40 + 1.645**2 / 400) / (1 + 1.645**2 / 10)
    assert statistics.share_interval(5, 10) == pytest.approx((0.5 - half, 0.5 + half))
    low, high = statistics.share_interval(0, 10)
    assert low == pytest.approx(0.0, abs=1e-12)
    assert high == pytest.approx(1.645**2 / (10 + 1.645**2))


def test_accuracy_on_360_digits_is_known_to_a_percent():
    assert statistics.accuracy_standard_error(0.97, 360) == pytest.approx(0.009, abs=1e-4)


def test_warm_up_is_the_first_fifth_and_is_counted():
    assert statistics.without_warmup(list(range(11))) == ([2, 3, 4, 5, 6, 7, 8, 9, 10], 2)
    assert statistics.without_warmup([1, 2]) == ([1, 2], 0)
    assert statistics.without_warmup(list(range(10)), share=0.5) == ([5, 6, 7, 8, 9], 5)


def test_histogram_of_whole_numbers():
    got = statistics.of_histogram({3: 97, 1: 1, 7: 2, 9: 0})
    mean = (97 * 3 + 1 + 2 * 7) / 100
    variance = (97 * (3 - mean) ** 2 + (1 - mean) ** 2 + 2 * (7 - mean) ** 2) / 100
    assert got == (100, pytest.approx(mean), pytest.approx(math.sqrt(variance)), 3, 7, 7)


def test_distance_to_a_distribution_is_the_largest_gap_of_the_two_staircases():
    def fair_coin(k):
        return np.minimum((k + 1) / 2, 1.0)

    assert statistics.ks_distance({0: 50, 1: 50}, fair_coin) == 0
    assert statistics.ks_distance({0: 80, 1: 20}, fair_coin) == pytest.approx(0.3)
    assert statistics.ks_distance({0: 50, 5: 50}, fair_coin) == pytest.approx(0.5)


def test_distance_of_draws_from_the_right_distribution_is_small_and_of_others_large():
    n, rng = 8, np.random.default_rng(3)
    draws = rng.geometric(1 / n, size=20_000) - 1
    counts = dict(zip(*(column.tolist() for column in np.unique(draws, return_counts=True)), strict=True))
    assert statistics.ks_distance(counts, lambda k: theory.geometric_cdf(k, n)) < 0.02
    assert statistics.ks_distance({n - 1: 100}, lambda k: theory.geometric_cdf(k, n)) > 0.3


def test_a_line_through_points_on_a_line_is_that_line():
    line = statistics.fit_line([0.01, 1.0, 100.0], [2.0 + 3.0 * x for x in (0.01, 1.0, 100.0)])
    assert (line.a, line.b) == (pytest.approx(2.0), pytest.approx(3.0))
    assert line.at(10.0) == pytest.approx(32.0)


def test_a_line_follows_small_values_as_well_as_large_ones_and_no_single_outlier():
    x = [0.01, 0.1, 1.0, 10.0, 100.0]
    y = [2.0 + 3.0 * value for value in x]
    for factors in ([1.1, 0.9, 1.0, 0.9, 1.1], [1.0, 0.2, 1.0, 1.0, 1.0]):
        line = statistics.fit_line(x, [value * factor for value, factor in zip(y, factors, strict=True)])
        assert line.a == pytest.approx(2.0, rel=0.4)  # absolute errors alone would accept any a
        assert line.b == pytest.approx(3.0, rel=0.2)
