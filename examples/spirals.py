"""Your own dataset: two spirals in the plane, which no straight line separates."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.options import option


class Spirals(ArraySource):
    """Points on two spirals; the label says on which one.

    Batches: "point" float32 [B, 2]; "label" int64 [B], 0 or 1.

    Args:
        options: Numbers of examples, and the noise.
        data_dir: Not used: the examples are generated.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Spirals`."""

        num_train: int = option(4000, "number of training examples", least=1)
        num_test: int = option(500, "number of test examples", least=1)
        noise: float = option(0.02, "standard deviation of the points around their spiral", least=0)

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        random = np.random.RandomState(0)
        # Every task builds the dataset, so all of them must draw the same numbers.
        splits = [_draw(random, count, options.noise) for count in (options.num_train, options.num_test)]
        super().__init__(*splits, num_classes=2)


def _draw(random: np.random.RandomState, count: int, noise: float) -> dict[str, np.ndarray]:
    labels = random.randint(0, 2, count)
    radius = np.sqrt(random.uniform(0.05, 1, count))
    angle = 2 * np.pi * radius + np.pi * labels
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return {
        "point": (points + random.normal(scale=noise, size=points.shape)).astype(np.float32),
        "label": labels.astype(np.int64),
    }
