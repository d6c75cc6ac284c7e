"""The input of one worker: which examples it reads, from where on, and how its batches are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints.stored_state import Count
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.runtime.run_record import Shards
from ps_trainer.store.base import ParameterStore
from ps_trainer.training.graph_parts import shard_reader
from ps_trainer.training.graph_parts.batch_counter import BatchCounter, create_example_counts
from ps_trainer.training.graph_parts.shard_reader import ShardReader
from ps_trainer.updates.base import TrainStep


class WorkerInput(NamedTuple):
    """The batches of one worker.

    Attributes:
        iterator: Iterator of batches; under `--sharding=dynamic`, of pairs of a batch's place in the counts and the
            batch.
        counts: Counts of the examples read, on ps task 0. A checkpoint holds them.
        counter: Builds the ops that count a batch when it is in an update.
        reader: Reader that asks ps task 0 for shards; None under `--sharding=static`.
    """

    iterator: tf.data.Iterator
    counts: list[Count]
    counter: BatchCounter
    reader: ShardReader | None

    def next_batch(self, worker_index: int) -> tuple[tf.Tensor | Sequence[int], Any]:
        """Returns the place of the next batch in the counts, and the batch's tensors."""
        if self.reader is None:
            return [worker_index], self.iterator.get_next()
        return self.iterator.get_next()

    def count_exchanged_op(self, step: TrainStep) -> tf.Operation | None:
        """Builds `TrainGraph.count_exchanged_op`."""
        is_needed = step.exchange is not None and self.reader is not None
        return self.counter.count_exchanged() if is_needed else None

    def publish_counts_op(self, step: TrainStep) -> tf.Operation | None:
        """Builds `TrainGraph.publish_counts_op`."""
        if step.exchange is None or self.reader is not None:
            return None
        return self.counter.publish(step.exchange)


def create(
    dataset: Any,
    config: TrainConfig,
    trainer: ClusterConfig,
    store: ParameterStore,
    shards: Shards | None,
) -> WorkerInput:
    """Builds the input in the default graph.

    Args:
        dataset: Dataset of the run.
        config: Configuration of the run.
        trainer: Cluster of the workers that train, with this worker's place in it.
        store: Parameter store; gives the devices.
        shards: Shard plan of the chief, as the run record has it; None on the chief.
    """
    plan = shard_reader.plan_of(dataset, config, trainer.num_workers, shards)
    reader = ShardReader(plan) if plan is not None else None
    if plan is not None:
        counts, amount = shard_reader.create_counts(plan, store.ps_device(0)), 1  # in batches, as their size varies
    else:
        counts = [create_example_counts(trainer.num_workers, store.ps_device(0))]
        amount = config.batch_size  # in examples
    counter = BatchCounter(counts[0].variable, amount, store)
    with tf.device(trainer.device):
        if reader is not None:
            examples = dataset.train_leased(reader.leases(), reader.plan)
        else:
            examples = dataset.train(
                shard=Shard(trainer.worker_index, trainer.num_workers),
                batch_size=config.batch_size,
                seed=config.seed,
                num_epochs=config.num_epochs,
                start=counter.start(trainer.worker_index),
            )
        return WorkerInput(_iterator(examples), counts, counter, reader)


def _iterator(examples: tf.data.Dataset) -> tf.data.Iterator:
    options = tf.data.Options()
    # TensorFlow wakes the thread that tunes a pipeline before it marks the pipeline as cancelled. If the thread misses
    # the mark, it sleeps for up to a minute, and the session cannot be closed before. Without tuning, `AUTOTUNE` stands
    # for all threads.
    options.autotune.enabled = False
    return tf.data.make_initializable_iterator(examples.with_options(options))
