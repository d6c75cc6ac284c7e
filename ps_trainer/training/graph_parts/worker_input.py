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
            batch. With `has_pairs` of pairs of a batch and the batch after it; the first one has nothing as its batch.
        counts: Counts of the examples read, on ps task 0. A checkpoint holds them.
        counter: Builds the ops that count a batch when it is in an update.
        reader: Reader that asks ps task 0 for shards; None under `--sharding=static`.
        has_pairs: Whether the op that reads a batch also gives the one after it, as outputs that follow its own.
    """

    iterator: tf.data.Iterator
    counts: list[Count]
    counter: BatchCounter
    reader: ShardReader | None
    has_pairs: bool

    def next_batch(self, worker_index: int) -> tuple[tf.Tensor | Sequence[int], Any]:
        """Returns the place of the next batch in the counts, and the batch's tensors."""
        if self.reader is not None:
            return self.iterator.get_next()
        batch = self.iterator.get_next()
        return [worker_index], batch[0] if self.has_pairs else batch

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
    *,
    in_pairs: bool = False,
) -> WorkerInput:
    """Builds the input in the default graph.

    Args:
        dataset: Dataset of the run.
        config: Configuration of the run.
        trainer: Cluster of the workers that train, with this worker's place in it.
        store: Parameter store; gives the devices.
        shards: Shard plan of the chief, as the run record has it; None on the chief.
        in_pairs: Whether to read each batch with the one after it, if the data allow it.
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
        # The end of a lease may come only with a lease that another worker still holds, and it may wait for this one.
        has_pairs = in_pairs and reader is None and _can_be_paired(examples)
        if has_pairs:
            # In a scope, as workers that read no pairs must give their variables the same names.
            with tf.name_scope("pairs_of_batches"):
                examples = _paired(examples)
        return WorkerInput(_iterator(examples), counts, counter, reader, has_pairs)


def _can_be_paired(examples: tf.data.Dataset) -> bool:
    """Returns whether each part of a batch is a tensor of known rank, of which `_paired` can make an empty one."""
    specs = tf.nest.flatten(examples.element_spec)
    return all(isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None for spec in specs)


def _paired(examples: tf.data.Dataset) -> tf.data.Dataset:
    """Returns pairs of a batch and the one after it: first nothing and the first batch, and last a batch with itself.

    Pairs share the memory of their batches. To read a pair takes no batch away from the next pair. So a worker that
    looks at a batch in advance does not have to keep it.
    """
    nothing = tf.nest.map_structure(
        lambda spec: tf.zeros([size or 0 for size in spec.shape.as_list()], spec.dtype), examples.element_spec
    )
    flagged = tf.data.Dataset.zip((examples, tf.data.Dataset.from_tensors(tf.ones([], tf.bool)).repeat()))

    def pair(before: Any, element: Any) -> tuple[Any, Any]:
        batch, is_batch = element
        after = tf.cond(is_batch, lambda: tf.nest.flatten(batch), lambda: tf.nest.flatten(before), strict=True)
        after = tf.nest.pack_sequence_as(batch, after)
        return after, (before, after)

    end = tf.data.Dataset.from_tensors((nothing, tf.zeros([], tf.bool)))
    return flagged.concatenate(end).scan(nothing, pair)


def _iterator(examples: tf.data.Dataset) -> tf.data.Iterator:
    options = tf.data.Options()
    # TensorFlow wakes the thread that tunes a pipeline before it marks the pipeline as cancelled. If the thread misses
    # the mark, it sleeps for up to a minute, and the session cannot be closed before. Without tuning, `AUTOTUNE` stands
    # for all threads.
    options.autotune.enabled = False
    return tf.data.make_initializable_iterator(examples.with_options(options))
