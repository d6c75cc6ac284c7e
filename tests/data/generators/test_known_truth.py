"""Generated data have the promised properties."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.data.generators.known_truth import PlantedRatings, PlantedSynonyms, PlantedWeights
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import OptionError
from tests.data.reading import read_batches


def all_of_test(source):
    (batch,) = read_batches(lambda: source.test(batch_size=source.num_test_examples))
    return batch


def test_labels_follow_the_planted_weights():
    source = PlantedWeights(PlantedWeights.Options(num_test=8000, num_features=40, num_planted=6, num_ids=5))
    assert sorted(source.weights) == [-2] * 3 + [0] * 34 + [2] * 3
    batch = all_of_test(source)
    assert all(len(set(ids)) == 5 for ids in batch["ids"])
    logit = source.weights[batch["ids"]].sum(axis=1)
    for value in (-2, 0, 2):
        labels = batch["label"][logit == value]
        assert labels.mean() == pytest.approx(1 / (1 + np.exp(-value)), abs=4 / np.sqrt(len(labels)) / 2)


def test_ratings_have_the_stated_rank_and_noise():
    source = PlantedRatings(
        PlantedRatings.Options(num_users=30, num_items=20, rank=2, noise=0.0, num_test=20_000, mean=1.0)
    )
    batch = all_of_test(source)
    table = np.full((30, 20), np.nan)
    table[batch["user"], batch["item"]] = batch["rating"] - 1.0
    assert not np.isnan(table).any()
    assert np.linalg.matrix_rank(table, tol=1e-4) == 2
    noisy = all_of_test(PlantedRatings(PlantedRatings.Options(num_users=2, num_items=2, noise=0.3, num_test=8000)))
    for user in range(2):
        for item in range(2):
            of_pair = noisy["rating"][(noisy["user"] == user) & (noisy["item"] == item)]
            assert of_pair.std() == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize("cls", [PlantedWeights, PlantedRatings])
def test_same_seed_same_data_other_seed_other_data(cls):
    first, again, other = (all_of_test(cls(cls.Options(seed=seed, num_train=10, num_test=50))) for seed in (1, 1, 2))
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])
    assert any(np.any(values != other[name]) for name, values in first.items())


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (PlantedWeights, {"num_ids": 501}, "num_ids=501 exceeds num_features=500"),
        (PlantedWeights, {"num_train": 10**6}, "the examples take 248000000 bytes"),
    ],
)
def test_wrong_option_is_named(cls, options, message):
    with pytest.raises(OptionError, match=message):
        cls.Options(**options)


def test_words_are_used_alike_if_and_only_if_they_are_synonyms():
    options = PlantedSynonyms.Options(num_meanings=12, num_neighbours=3, num_train=12_000)
    source = PlantedSynonyms(options)
    (train,) = read_batches(lambda: source.train(shard=Shard(0, 1), batch_size=options.num_train, seed=0, num_epochs=1))
    used = np.zeros((24, 24))
    np.add.at(used, (np.repeat(train["center"], 4), train["context"].ravel()), 1)
    used /= used.sum(axis=1, keepdims=True)
    for word in range(24):
        distance = np.abs(used - used[word]).sum(axis=1)
        distance[word] = np.inf
        assert distance.argmin() == word ^ 1
    test = all_of_test(source)
    np.testing.assert_array_equal(test["center"], np.arange(24))
    np.testing.assert_array_equal(test["context"], np.repeat(np.arange(24)[:, None] ^ 1, 4, axis=1))
