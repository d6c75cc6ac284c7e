"""`Training`: what is trained, and `Computed`: what a step of it computes."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource, Shard
from ps_trainer.optimizers.base import PsOptimizer
from ps_trainer.simulation.replay.gradients import Gradient


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained, as components of a run (`training.components`).

    Attributes:
        model: of `registry.MODELS`.
        dataset: its training examples are cut into a shard per worker, as in a cluster.
        optimizer: on the ps tasks, or where the rule has local steps with one, on each worker.
        rate_schedule: of `registry.SCHEDULES`.
        learning_rate: before the schedule.
        batch_size: examples per step of a worker.
        seed: of the initial values and of the order of the examples.
    """

    model: Any
    dataset: DataSource
    optimizer: PsOptimizer
    rate_schedule: Any
    learning_rate: float
    batch_size: int
    seed: int = 0


class Computed(NamedTuple):
    """What a step of a worker computes.

    Attributes:
        loss: of its batch.
        metrics: means over its batch, by name.
        gradient: of the loss.
    """

    loss: float
    metrics: dict[str, float]
    gradient: Gradient


def check_shards(training: Training, num_workers: int) -> None:
    """Raises DataError where there are too few examples for a batch of each worker."""
    smallest = Shard(num_workers - 1, num_workers)
    with tf.Graph().as_default():
        training.dataset.train(shard=smallest, batch_size=training.batch_size, seed=training.seed, num_epochs=None)
