"""The interval of a median of few values, against numbers worked out by hand and against its own coverage."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.median_bounds import MedianBounds, median_bounds


def test_five_values_are_bounded_by_the_lowest_and_the_highest():
    # P(all five on one side) = 2 / 2⁵. A bootstrap of these values with seed 0 had 0.92 as its lower end.
    assert median_bounds([0.92, 0.987, 1.014, 0.838, 1.025]) == (0.987, 0.838, 1.025, 1 - 2 / 32)


@pytest.mark.parametrize(
    ("num_values", "low", "high", "confidence"),
    [
        (1, 1, 1, 0),
        (2, 1, 2, 1 / 2),
        (3, 1, 3, 3 / 4),
        (4, 1, 4, 7 / 8),
        (7, 1, 7, 1 - 2 / 2**7),  # without its ends: 1 − 2 · 8 / 128 = 0.875
        (8, 2, 7, 1 - 2 * 9 / 2**8),
        (20, 6, 15, 1 - 2 * (1 + 20 + 190 + 1140 + 4845 + 15504) / 2**20),
    ],
)
def test_the_interval_is_the_narrowest_with_the_confidence_or_the_widest(num_values, low, high, confidence):
    bounds = median_bounds(range(num_values, 0, -1))
    assert bounds == ((num_values + 1) / 2, low, high, pytest.approx(confidence))


@pytest.mark.parametrize("num_values", [3, 5, 8])
def test_the_interval_covers_the_median_as_often_as_its_confidence_says(num_values):
    samples = np.random.default_rng(num_values).exponential(size=(4000, num_values))
    found = [median_bounds(sample.tolist()) for sample in samples]
    covered = np.mean([one.low <= np.log(2) <= one.high for one in found])
    assert covered == pytest.approx(found[0].confidence, abs=0.025)


def test_the_words_have_the_confidence():
    assert MedianBounds(1.0, 0.838, 1.025, 0.9375).interval_text(".2f") == "94 % interval 0.84 to 1.02"
    assert median_bounds([1.0]).interval_text(".2f") == "no interval"
