"""Generated datasets with a known best solution: sparse regression, ratings of low rank, synonyms."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps_trainer.data.pipeline.array_source import ArraySource, check_bytes
from ps_trainer.errors import OptionError
from ps_trainer.options import option


class PlantedWeights(ArraySource):
    """Sparse examples of two classes, drawn from a logistic regression with few weights that are not 0.

    Batches: "ids" int64 [B, M] and "values" float32 [B, M], all 1; "label" int64 [B]. An example has `num_ids` = M
    distinct features of `num_features`; all such sets are equally likely. With w the weights,

        P(label = 1) = 1 / (1 + exp(-sum of w over the example's ids))

    `num_planted` weights, at random places, are `strength` or -`strength`, in equal numbers; the others are 0.

    Args:
        options: Sizes and seed.
        data_dir: Not used.

    Attributes:
        weights: float64 [num_features], the true weights.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `PlantedWeights`."""

        num_features: int = option(500, "number of features", least=1)
        num_planted: int = option(50, "number of features whose weight is not 0", least=1)
        strength: float = option(2.0, "absolute value of the weights that are not 0")
        num_ids: int = option(20, "number of features of an example", least=1)
        num_train: int = option(16384, "number of training examples", least=1)
        num_test: int = option(4096, "number of test examples", least=1)
        seed: int = option(0, "seed of weights and examples", least=0, below=2**32)

        def __post_init__(self) -> None:
            for name in ("num_planted", "num_ids"):
                if getattr(self, name) > self.num_features:
                    raise OptionError(f"{name}={getattr(self, name)} exceeds num_features={self.num_features}")
            check_bytes(max(self.num_train, self.num_test) * (12 * self.num_ids + 8), "num_train, num_test or num_ids")

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        # NumPy guarantees the sequence of RandomState for all versions, but not the sequence of default_rng.
        random = np.random.RandomState(options.seed)
        self.weights = np.zeros(options.num_features)
        places = random.permutation(options.num_features)[: options.num_planted]
        self.weights[places] = np.where(np.arange(options.num_planted) % 2, options.strength, -options.strength)
        arrays = [self._draw(count, options, random) for count in (options.num_train, options.num_test)]
        super().__init__(*arrays, num_classes=2)

    def _draw(self, count: int, options: Options, random: np.random.RandomState) -> dict[str, np.ndarray]:
        ids = np.stack([random.permutation(options.num_features)[: options.num_ids] for _ in range(count)])
        probability = 1 / (1 + np.exp(-self.weights[ids].sum(axis=1)))
        return {
            "ids": ids.astype(np.int64),
            "values": np.ones(ids.shape, np.float32),
            "label": (random.uniform(size=count) < probability).astype(np.int64),
        }


class PlantedRatings(ArraySource):
    """Ratings that are products of two known matrices of low rank, with noise.

    Batches: "user" and "item" int64 [B]; "rating" float32 [B]. With p [users, rank] and q [items, rank] normal with
    variance 1 / sqrt(rank), so that their products have variance 1,

        rating = mean + p[user] . q[item] + noise * normal

    for pairs drawn at random. The root mean square error is `noise` for a model that knows p and q, and
    sqrt(1 + noise ** 2) for a model that always predicts the mean.

    Args:
        options: Sizes and seed.
        data_dir: Not used.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `PlantedRatings`."""

        num_users: int = option(300, "number of users", least=1)
        num_items: int = option(200, "number of items", least=1)
        rank: int = option(4, "rank of the true matrices", least=1)
        mean: float = option(3.5, "mean of the ratings")
        noise: float = option(0.2, "standard deviation of the noise on a rating", least=0)
        num_train: int = option(30000, "number of training examples", least=1)
        num_test: int = option(5000, "number of test examples", least=1)
        seed: int = option(0, "seed of the matrices and of the examples", least=0, below=2**32)

        def __post_init__(self) -> None:
            check_bytes(max(self.num_train, self.num_test) * 20, "num_train or num_test")

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        random = np.random.RandomState(options.seed)
        users, items = (
            # A product of two factors has the variance rank**-1, so their sum of `rank` products has the variance 1.
            random.normal(scale=options.rank**-0.25, size=(count, options.rank))
            for count in (options.num_users, options.num_items)
        )

        def draw(count: int) -> dict[str, np.ndarray]:
            user, item = random.randint(0, len(users), count), random.randint(0, len(items), count)
            rating = (
                options.mean + np.sum(users[user] * items[item], axis=1) + options.noise * random.normal(size=count)
            )
            return {"user": user.astype(np.int64), "item": item.astype(np.int64), "rating": rating.astype(np.float32)}

        super().__init__(draw(options.num_train), draw(options.num_test), num_classes=None)


class PlantedSynonyms(ArraySource):
    """Words and their neighbours, in a language where every word has exactly one synonym.

    Batches: "center" int64 [B]; "context" int64 [B, W]. Words 2 m and 2 m + 1 are synonyms with the meaning m. Each
    meaning has `num_neighbours` random meanings as its neighbours. Each word of a context has one of these meanings,
    and is one of its two words, all with equal probability. So two words have the same contexts if, and only if, they
    are synonyms. Test examples are all words, each with its synonym at every place of the context.

    Args:
        options: Sizes and seed.
        data_dir: Not used.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `PlantedSynonyms`."""

        num_meanings: int = option(100, "number of meanings, each with two words", least=2)
        num_neighbours: int = option(8, "number of meanings that occur near a meaning", least=1)
        context_size: int = option(4, "W, number of words in a context", least=1)
        num_train: int = option(30000, "number of training examples", least=1)
        seed: int = option(0, "seed of the language and of the examples", least=0, below=2**32)

        def __post_init__(self) -> None:
            if self.num_neighbours > self.num_meanings:
                raise OptionError(f"num_neighbours={self.num_neighbours} exceeds num_meanings={self.num_meanings}")
            check_bytes(self.num_train * 8 * (self.context_size + 1), "num_train or context_size")

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        random = np.random.RandomState(options.seed)
        neighbours = np.stack(
            [random.permutation(options.num_meanings)[: options.num_neighbours] for _ in range(options.num_meanings)]
        )
        meanings = random.randint(0, options.num_meanings, options.num_train)
        chosen = random.randint(0, options.num_neighbours, (options.num_train, options.context_size))
        around = neighbours[meanings[:, np.newaxis], chosen]
        train = {
            "center": 2 * meanings + random.randint(0, 2, meanings.shape),
            "context": 2 * around + random.randint(0, 2, around.shape),
        }
        words = np.arange(2 * options.num_meanings)
        # The synonym of word w is w ^ 1, since the lowest bit tells the two words of a meaning apart.
        test = {"center": words, "context": np.repeat((words ^ 1)[:, np.newaxis], options.context_size, axis=1)}
        arrays = [{name: values.astype(np.int64) for name, values in split.items()} for split in (train, test)]
        super().__init__(*arrays, num_classes=None)
