"""The loss and the test metrics of a guess: a training that stays there has learned nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard


class ChanceLevel(NamedTuple):
    """The loss and the test metrics of a guess, which a worker should beat after an epoch.

    Attributes:
        loss: Training loss of the best guess that ignores the inputs; infinite if it is unknown.
        local_steps: Steps of the worker in an epoch.
        metrics: Test metrics of such a guess by name; a smaller value is better.
    """

    loss: float
    local_steps: int
    metrics: Mapping[str, float] = {}


def find(model: Any, dataset: Any, shard: Shard, batch_size: int) -> ChanceLevel | None:
    """Returns the chance level of a worker; None if the model or the dataset does not know it.

    A model has the method `chance_loss`, for equally probable labels, or `chance_metrics`. If the dataset knows how
    frequent its labels are, the entropy of these shares takes the place of the loss.

    Args:
        model: Model of the run.
        dataset: Dataset of the run.
        shard: Part of the examples that the worker reads.
        batch_size: Number of examples per step.
    """
    loss = getattr(model, "chance_loss", lambda: None)()
    metrics: Mapping[str, float] = getattr(model, "chance_metrics", dict)()
    if (loss is None and not metrics) or not isinstance(dataset, DataSource):
        return None
    steps = -(-shard.num_examples(dataset.num_train_examples) // batch_size)
    return ChanceLevel(math.inf if loss is None else min(loss, _entropy(dataset.label_shares)), steps, metrics)


def _entropy(shares: Sequence[float]) -> float:
    """Returns the entropy in nats; infinite without shares."""
    return -sum(share * math.log(share) for share in shares if share) if len(shares) else math.inf
