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


@pytest.mark.parametrize("num_values", [4, 6, 25])
def test_the_interval_of_a_median_covers_it_as_often_as_its_confidence_says(num_values):
    samples = np.random.default_rng(num_values).exponential(size=(4000, num_values))
    intervals = [statistics.median_interval(sample)[1] for sample in samples]
    confidence = statistics.median_ranks(num_values)[1]
    assert np.mean([low <= math.log(2) <= high for low, high in intervals]) == pytest.approx(confidence, abs=0.02)


def test_the_interval_of_a_median_ends_at_values():
    assert statistics.median_interval([3.0, 1.0, 2.0]) == (2.0, (1.0, 3.0))
    assert statistics.median_interval([4.0]) == (4.0, (4.0, 4.0))
    assert statistics.median_interval([*range(8), math.inf]) == (4.0, (1.0, 7.0))


def test_the_ratio_of_two_medians_has_an_interval_that_covers_it():
    random = np.random.default_rng(3)
    samples = [(random.lognormal(0.3, 0.3, 15), random.lognormal(0.0, 0.3, 15)) for _ in range(100)]
    intervals = [statistics.median_ratio_interval((one, one), (other, other)) for one, other in samples]
    assert 0.84 < np.mean([low <= math.exp(0.3) <= high for low, high in intervals]) < 0.99


def test_an_estimate_may_be_divided_and_made_absolute():
    one = statistics.IntervalEstimate(-0.2, statistics.Interval(-0.3, -0.1))
    assert one.absolute() == (0.2, (0.1, 0.3))
    assert one.over(2) == (-0.1, (-0.15, -0.05))
    assert statistics.IntervalEstimate(0.1, statistics.Interval(-0.1, 0.3)).absolute() == (0.1, (0.0, 0.3))
    assert statistics.IntervalEstimate(-1.0).absolute().over(2) == (0.5, None)


def test_pairs_of_seeds_give_the_interval_of_a_ratio():
    # Log ratios 1, 2, 3: the mean is 2, the standard error 1/√3 with 2 degrees of freedom.
    values, others = dict(enumerate(np.exp([1.0, 3.0, 6.0]))), dict(enumerate(np.exp([0.0, 1.0, 3.0])))
    half = 2.920 / math.sqrt(3)
    ratio, interval = statistics.ratio_by_seed(values, others | {7: 1e9})
    assert (ratio, *interval) == pytest.approx([math.exp(2), math.exp(2 - half), math.exp(2 + half)])
    assert statistics.mean_ratio([2.0, 8.0], 2.0).value == pytest.approx(2.0)
    assert statistics.mean_ratio([2.0], 2.0) == (1.0, None)
    # With one common seed, all values count.
    assert statistics.ratio_by_seed({0: 2.0, 1: 8.0}, {1: 1.0, 2: 1.0}).value == pytest.approx(4.0)


def test_the_jackknife_of_a_mean_is_students_interval():
    samples = [1.0, 2.0, 4.0, 9.0]
    (value, interval), expected = statistics.jackknife(np.mean, samples), statistics.mean_estimate(samples)
    assert (value, *interval) == pytest.approx((expected.value, *expected.interval))
    assert statistics.jackknife(np.mean, [3.0]) == (3.0, None)


def test_the_jackknife_of_a_standard_deviation_covers_it():
    random = np.random.default_rng(4)
    runs = [[random.normal(size=50) for _ in range(5)] for _ in range(300)]
    intervals = [statistics.jackknife(lambda own: float(np.std(np.concatenate(own))), one).interval for one in runs]
    assert 0.84 < np.mean([low <= 1.0 <= high for low, high in intervals]) < 0.96


def test_medians_of_pooled_runs_have_an_interval_with_the_noise_of_runs():
    def runs(mean, num_runs):
        return [random.lognormal(mean + random.normal(0.0, 0.2), 0.3, 25) for _ in range(num_runs)]

    random = np.random.default_rng(5)
    samples = [(runs(0.3, 8), runs(0.0, 8)) for _ in range(60)]
    intervals = [statistics.pooled_median_ratio(*sample).interval for sample in samples]
    assert 0.75 < np.mean([low <= math.exp(0.3) <= high for low, high in intervals]) < 0.99
    assert statistics.pooled_median_ratio([[4.0]], [[1.0, 2.0, 3.0]]).value == 2.0
    assert statistics.pooled_median_ratio([[4.0], [4.0, 4.0]], [[2.0]]) == (2.0, (2.0, 2.0))


def test_the_largest_of_several_values_is_not_larger_by_luck():
    random = np.random.default_rng(6)

    def largest():
        values = {option: dict(enumerate(random.lognormal(0.0, 0.2, 5))) for option in range(4)}
        return statistics.chosen_by_other_seeds(values).value, max(
            math.exp(np.mean(np.log([*own.values()]))) for own in values.values()
        )

    fair, lucky = np.mean([largest() for _ in range(400)], axis=0)
    assert fair == pytest.approx(1.0, abs=0.02)
    assert lucky > 1.05
    value, interval = statistics.chosen_by_other_seeds({1: {0: 2.0, 1: 2.0}, 2: {0: 3.0, 1: 3.0}})
    assert (value, *interval) == pytest.approx((3.0, 3.0, 3.0))
    for values in ({1: {0: 2.0}, 2: {0: 3.0}}, {1: {0: 2.0}, 2: {1: 3.0}}):  # one common seed, and none
        value, interval = statistics.chosen_by_other_seeds(values)
        assert value == pytest.approx(3.0) and interval is None


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
