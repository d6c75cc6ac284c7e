"""The loss of a guess: a training whose loss stays there has learned nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard


class ChanceLevel(NamedTuple):
    """The loss of a guess, which a worker's loss should beat after an epoch.

    Attributes:
        loss: Loss of the best guess that ignores the inputs, in nats.
        local_steps: Steps of the worker in an epoch.
    """

    loss: float
    local_steps: int


def find(model: Any, dataset: Any, shard: Shard, batch_size: int) -> ChanceLevel | None:
    """Returns the chance level of a worker; None if the model or the dataset does not know it.

    A model has the method `chance_loss`, for equally probable labels. If the dataset knows how frequent its labels are,
    the entropy of these shares takes its place.

    Args:
        model: Model of the run.
        dataset: Dataset of the run.
        shard: Part of the examples that the worker reads.
        batch_size: Number of examples per step.
    """
    of_model = getattr(model, "chance_loss", lambda: None)()
    if of_model is None or not isinstance(dataset, DataSource):
        return None
    steps = -(-shard.num_examples(dataset.num_train_examples) // batch_size)
    return ChanceLevel(min(of_model, _entropy(dataset.label_shares)), steps)


def _entropy(shares: Sequence[float]) -> float:
    """Returns the entropy in nats; infinite without shares."""
    return -sum(share * math.log(share) for share in shares if share) if len(shares) else math.inf
