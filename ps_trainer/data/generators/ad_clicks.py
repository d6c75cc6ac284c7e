"""Synthetic ad clicks with a known best achievable log loss."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats import criteo
from ps_trainer.data.pipeline.array_source import ArraySource, check_bytes
from ps_trainer.options import option

NUM_LINEAR = 8
"""Number of columns of categories, the first ones, that have a weight for each value."""

CROSSED = ((8, 9), (10, 11))
"""Pairs of columns with a weight for each pair of values, which is independent of the single values."""

LATENT = ((12, 13), (14, 15))
"""Pairs of columns whose values have vectors; a pair of values adds the product of its vectors to the log odds."""

_RANK = 2
_BYTES = 4 * criteo.NUM_NUMBERS + 4 * criteo.NUM_HASHES + 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClickOptions:
    """Options of generated clicks."""

    num_values: int = option(10, "number of different values in each column of categories", least=1)
    zipf: float = option(1.1, "exponent of Zipf's law: a column's k-th value is as frequent as k ** -zipf", least=0)
    missing: float = option(0.1, "share of numbers and of categories that are missing", least=0, below=1)
    strength: float = option(1.0, "factor of everything that influences clicks", least=0)
    bias: float = option(-0.5, "log odds of a click that nothing influences")
    num_train: int = option(60_000, "number of training examples", least=1)
    num_test: int = option(20_000, "number of test examples", least=1)
    seed: int = option(0, "seed of the model and of the clicks", least=0, below=2**32)

    def __post_init__(self) -> None:
        check_bytes(max(self.num_train, self.num_test) * _BYTES, "num_train or num_test")


class Clicks(NamedTuple):
    """Clicks in the form of a file, and their true probabilities.

    Attributes:
        labels: int64 [n], 0 or 1.
        numbers: float64 [n, 13], whole numbers; NaN = missing.
        hashes: int64 [n, 26]; -1 = missing.
        probabilities: float64 [n], probability of a click.
    """

    labels: np.ndarray
    numbers: np.ndarray
    hashes: np.ndarray
    probabilities: np.ndarray


class PlantedClicks(ArraySource):
    """Synthetic clicks with 13 numbers and 26 categories, drawn from a known model of weights, crosses and products.

    Batches have the form of dataset `criteo`. The values of a column of categories follow Zipf's law. Numbers are
    heavy-tailed (rounded log-normal; the second one may be negative). Each value is missing with probability `missing`.
    With v the values, and 0 for the effect of a missing one,

        P(click) = 1 / (1 + exp(-(bias + strength * (sum over j < 8 of w_j[v_j] + W_1[v_8, v_9] + W_2[v_10, v_11]
            + p_12[v_12] . p_13[v_13] + p_14[v_14] . p_15[v_15] + sum over k < 4 of a_k log(1 + max(x_k, 0))))))

    where all weights are normal, with variance 0.25 in w, 0.5 in W and 0.01 in a. The vectors p have two elements of
    variance 0.5. A linear model can learn w and a, a model with crossed columns can learn W, and embeddings can learn
    the products. The other columns have no influence.

    Args:
        options: Sizes, strength and seed.
        data_dir: Not used.

    Attributes:
        probabilities: float64 [num_test], probability of a click for each test example. No prediction has a better
            expected log loss or a better expected area under the ROC curve.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(ClickOptions):
        """Options of `PlantedClicks`."""

        num_buckets: int = option(
            2**12, "ids per categorical column, including the id of missing values", least=2, most=criteo.MAX_BUCKETS
        )

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        splits = draw(options)
        arrays = [_arrays(split, options.num_buckets) for split in splits]
        super().__init__(*arrays, num_classes=2)
        self.probabilities = splits[1].probabilities

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # The ids are constants of the graph, where int32 takes half the space.
        return {**batch, "ids": tf.cast(batch["ids"], tf.int64)}


def generate(options: ClickOptions, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes synthetic clicks with a known best log loss, in the format of Criteo: train.txt, test.txt.

    The dataset `planted_clicks` has the same clicks.
    """
    files = []
    for name, clicks in zip(("train.txt", "test.txt"), draw(options), strict=True):
        files.append(folder / name)
        criteo.write(files[-1], clicks.labels, clicks.numbers, clicks.hashes)
    return files


def draw(options: ClickOptions) -> tuple[Clicks, Clicks]:
    """Draws the clicks to train on and the clicks to test on."""
    # NumPy guarantees the sequence of RandomState for all versions, but not the sequence of default_rng.
    random = np.random.RandomState(options.seed)
    truth = _Truth(options, random)
    return truth.draw(options.num_train, random), truth.draw(options.num_test, random)


class _Truth:
    """The model that the clicks are drawn from, and the distributions of the columns."""

    def __init__(self, options: ClickOptions, random: np.random.RandomState):
        size = options.num_values
        self._options = options
        self._hashes = random.randint(0, 2**32, (criteo.NUM_HASHES, size))
        self._linear = random.normal(scale=0.5, size=(NUM_LINEAR, size))
        self._crosses = random.normal(scale=0.5**0.5, size=(len(CROSSED), size, size))
        self._vectors = random.normal(scale=0.5**0.5, size=(len(LATENT), 2, size, _RANK))
        self._slopes = random.normal(scale=0.1, size=4)
        self._means, self._deviations = (
            random.uniform(0, 4, criteo.NUM_NUMBERS),
            random.uniform(1, 2, criteo.NUM_NUMBERS),
        )
        chances = np.arange(1, size + 1.0) ** -options.zipf
        self._chances = chances / chances.sum()

    def draw(self, count: int, random: np.random.RandomState) -> Clicks:
        """Draws `count` clicks."""
        options = self._options
        values = random.choice(options.num_values, size=(count, criteo.NUM_HASHES), p=self._chances)
        is_missing = random.uniform(size=values.shape) < options.missing
        numbers = np.floor(random.lognormal(self._means, self._deviations, (count, criteo.NUM_NUMBERS)))
        numbers[:, 1] -= 3
        numbers[random.uniform(size=numbers.shape) < options.missing] = np.nan
        log_odds = options.bias + options.strength * self._effect(values, ~is_missing, numbers)
        probabilities = 1 / (1 + np.exp(-log_odds))
        labels = (random.uniform(size=count) < probabilities).astype(np.int64)
        hashes = np.where(is_missing, -1, self._hashes[np.arange(criteo.NUM_HASHES), values])
        return Clicks(labels, numbers, hashes, probabilities)

    def _effect(self, values: np.ndarray, is_there: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Computes the part of the log odds that `strength` multiplies, float64 [n]."""
        effect = np.sum(self._linear[np.arange(NUM_LINEAR), values[:, :NUM_LINEAR]] * is_there[:, :NUM_LINEAR], axis=1)
        for weights, (one, other) in zip(self._crosses, CROSSED, strict=True):
            effect += weights[values[:, one], values[:, other]] * is_there[:, one] * is_there[:, other]
        for (left, right), (one, other) in zip(self._vectors, LATENT, strict=True):
            products = np.sum(left[values[:, one]] * right[values[:, other]], axis=1)
            effect += products * is_there[:, one] * is_there[:, other]
        return effect + criteo.logarithms(numbers[:, : len(self._slopes)]) @ self._slopes


def _arrays(clicks: Clicks, num_buckets: int) -> dict[str, np.ndarray]:
    return {
        "dense": criteo.logarithms(clicks.numbers).astype(np.float32),
        "ids": criteo.buckets(clicks.hashes, num_buckets).astype(np.int32),
        "label": clicks.labels,
    }
