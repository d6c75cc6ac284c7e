"""`TrainingSetup`: model, dataset and optimizer of a replay; `WorkerResult`: result of a step's computation."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.optimizers.base import PsOptimizer
from ps_trainer.simulation.replay.gradients import Gradient


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """Model, dataset and optimizer of a replay, as components of a run (`training.components`).

    Attributes:
        model: Model, one of `component_tables.MODELS`.
        dataset: Dataset, whose training examples are cut into a shard per worker, as in a cluster.
        optimizer: Optimizer on the ps tasks, or on each worker if the rule has local steps with one.
        rate_schedule: Learning-rate schedule, one of `component_tables.SCHEDULES`.
        learning_rate: Learning rate before the schedule.
        batch_size: Number of examples per step of a worker.
        seed: Seed of the initial values and of the order of the examples.
    """

    model: Any
    dataset: DataSource
    optimizer: PsOptimizer
    rate_schedule: Any
    learning_rate: float
    batch_size: int
    seed: int = 0


class WorkerResult(NamedTuple):
    """Result of a worker's computation in one step.

    Attributes:
        loss: Loss of the batch.
        metrics: Means of the metrics over the batch, by name.
        gradient: Gradient of the loss.
    """

    loss: float
    metrics: dict[str, float]
    gradient: Gradient


def check_shards(training: TrainingSetup, num_workers: int) -> None:
    """Raises DataError if a worker's shard has fewer examples than a batch."""
    smallest = Shard(num_workers - 1, num_workers)
    with tf.Graph().as_default():
        training.dataset.train(shard=smallest, batch_size=training.batch_size, seed=training.seed, num_epochs=None)
