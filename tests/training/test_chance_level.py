"""The loss and the test metrics of a guess, from the model and the frequencies of the labels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.training import chance_level

SHARD = Shard(0, 2)


def clicks(labels):
    arrays = {"label": np.array(labels)}
    return ArraySource(arrays, arrays, num_classes=2)


@pytest.mark.parametrize(
    ("model", "option", "expected"),
    [
        ("mlp", "num_classes=4", math.log(4)),
        ("gpt", "vocab_size=50", math.log(50)),
        ("transformer", "target_vocab_size=20", math.log(20)),
        ("bert", "num_classes=3", math.log(3)),
        ("lstm_lm", "vocab_size=70", math.log(70)),
        ("word2vec", "vocab_size=30", (1 + 5) * math.log(2)),  # all scores are 0
        ("word2vec", "num_sampled=7", (1 + 7) * math.log(2)),
    ],
)
def test_a_guess_takes_every_class_as_equally_probable(model, option, expected):
    level = chance_level.find(component_tables.MODELS.create(model, [option]), Unlabelled(), SHARD, 4)
    assert level == (pytest.approx(expected), math.ceil(6 / 4), {})


class Unlabelled(ArraySource):
    def __init__(self):
        arrays = {"ids": np.zeros([12, 3])}
        super().__init__(arrays, arrays, num_classes=None)


def test_frequent_labels_are_easier_to_guess():
    model = component_tables.MODELS.create("logistic_regression", [])
    level = chance_level.find(model, clicks([0] * 9 + [1]), SHARD, 4)
    assert level.loss == pytest.approx(-(0.9 * math.log(0.9) + 0.1 * math.log(0.1)))


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ("speech", [], {"label_error_rate": 1.0}),
        ("matrix_factorization", [], {"relative_squared_error": 1.0}),
        ("lstm_lm", ["loss=sampled_softmax", "vocab_size=70"], {"nats_per_token": pytest.approx(math.log(70))}),
    ],
)
def test_a_model_without_a_known_loss_has_the_test_metric_of_a_guess(model, options, expected):
    level = chance_level.find(component_tables.MODELS.create(model, options), Unlabelled(), SHARD, 4)
    assert level == (math.inf, math.ceil(6 / 4), expected)


def test_a_model_or_dataset_that_knows_nothing_of_chance_has_no_level():
    sampled = component_tables.MODELS.create("word2vec", ["loss=sampled_softmax"])
    assert chance_level.find(sampled, Unlabelled(), SHARD, 4) is None
    assert chance_level.find(object(), Unlabelled(), SHARD, 4) is None
    assert chance_level.find(component_tables.MODELS.create("mlp", []), object(), SHARD, 4) is None
