"""Synthetic clicks: they follow their probabilities, and the best area under the ROC curve is known."""

from __future__ import annotations

import numpy as np
import pytest

from models.layers.pooled import area_under_roc
from ps_trainer.data.generators.ad_clicks import ClickOptions, PlantedClicks, draw
from ps_trainer.errors import OptionError

BEST_AUC = 0.8394
"""Of the true probabilities of the default set's test examples: what `wide_deep` is measured against."""


@pytest.fixture(scope="module")
def splits():
    return draw(ClickOptions())


def test_the_best_possible_predictor_of_the_default_set_has_these_figures(splits):
    _, test = splits
    assert area_under_roc(test.probabilities, test.labels) == pytest.approx(BEST_AUC, abs=5e-5)
    random = np.random.RandomState(0)
    for noise in (0.1, 0.5):
        log_odds = np.log(test.probabilities / (1 - test.probabilities))
        assert area_under_roc(log_odds + noise * random.normal(size=len(log_odds)), test.labels) < BEST_AUC


def test_clicks_follow_their_probabilities(splits):
    train, _ = splits
    order = np.argsort(train.probabilities)
    for part in np.array_split(order, 10):
        expected = train.probabilities[part].mean()
        assert train.labels[part].mean() == pytest.approx(expected, abs=4 * np.sqrt(expected / len(part)))


def test_values_follow_zipfs_law_and_a_share_is_missing(splits):
    train, _ = splits
    assert np.mean(train.hashes < 0) == pytest.approx(0.1, abs=0.002)
    assert np.mean(np.isnan(train.numbers)) == pytest.approx(0.1, abs=0.002)
    assert np.nanmin(train.numbers[:, 1]) < 0 <= np.nanmin(np.delete(train.numbers, 1, axis=1))
    for column in train.hashes.T:
        _, counts = np.unique(column[column >= 0], return_counts=True)
        chances = np.arange(1, 11) ** -1.1
        np.testing.assert_allclose(np.sort(counts)[::-1] / counts.sum(), chances / chances.sum(), atol=0.01)


def test_the_dataset_keeps_the_known_figures_and_gives_int64_ids():
    options = {"num_train": 30, "num_test": 20, "num_values": 3, "seed": 5}
    source = PlantedClicks(PlantedClicks.Options(**options, num_buckets=7))
    np.testing.assert_array_equal(source.probabilities, draw(ClickOptions(**options))[1].probabilities)
    assert source.arrays["train"]["ids"].min() == 0 and source.arrays["train"]["ids"].max() < 7
    assert source.in_order("test", batch_size=2).element_spec["ids"].dtype == np.int64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_train": 10**6}, "the examples take 164000000 bytes"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(OptionError, match=message):
        PlantedClicks.Options(**options)
