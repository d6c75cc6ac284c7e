"""The interface of datasets, and the input pipeline that all datasets share."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import shuffled_epochs, similar_lengths
from ps_trainer.data.pipeline.prediction_input import PredictionInput
from ps_trainer.data.pipeline.shard import Shard as Shard  # datasets of users import both from here
from ps_trainer.data.pipeline.shard_plan import ShardPlan
from ps_trainer.data.pipeline.without_autograph import without_autograph
from ps_trainer.errors import DataError

PREFETCH_BATCHES = 2
"""Batches that the pipeline prepares while the model computes: the next one, and one more against variation."""


class DataSource(PredictionInput):
    """Training and test examples, read by `tf.data` in batches. Each batch is a dict of tensors.

    A dataset class has the constructor `(options, *, data_dir: str | None)`. It finds and checks the files and raises
    DataError. The class attribute `Options` is the dataclass of its options. A dataset gives its examples in
    `_records` and turns a batch of them into tensors in `_decode`. This class does everything in between, in
    TensorFlow's C++: no Python runs per example or per batch. Examples that are in no split come by `PredictionInput`.

    The datasets are for graph mode: `tf.data.make_initializable_iterator(source.train(…))`.

    Attributes:
        num_classes: Number of classes of "label"; None if the examples have no classes.
        vocab_size: Number of different word or character ids; None if the examples have no such ids.
        num_features: Number of different ids of features of "ids"; None if the dataset does not know it.
        num_buckets: Largest number of ids in a column of "ids"; None if the dataset does not know it.
        class_names: Names of the classes of "label"; None if they have none.
        max_shuffled: Size of the shuffle buffer in examples; None = the whole shard.
        draws: Whether chance changes a training batch (`_draw_batch`), as where words are dropped at random.
        groups_lengths: Whether a training batch holds examples of similar length, padded only to the longest of them.
        label_shares: Share of each class of "label" in the training examples; empty if the dataset does not know it.
        advice: Sentence for the user about inputs that hinder the training, such as a wrong scale; empty without any.
        takes_facts: Whether the constructor has the argument `facts`, what was learned from the files in another
            process (`pipeline.facts.Facts`). The dataset then keeps it as its attribute `facts`.
    """

    num_classes: int | None = None
    vocab_size: int | None = None
    num_features: int | None = None
    num_buckets: int | None = None
    class_names: tuple[str, ...] | None = None
    max_shuffled: int | None = None
    draws: bool = False
    groups_lengths: bool = False
    label_shares: tuple[float, ...] = ()
    advice: str = ""
    takes_facts: bool = False

    @property
    @abc.abstractmethod
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""

    @property
    @abc.abstractmethod
    def num_test_examples(self) -> int:
        """Number of test examples."""

    @without_autograph
    def train(
        self, *, shard: Shard, batch_size: int, seed: int, num_epochs: int | None, start: int | tf.Tensor = 0
    ) -> tf.data.Dataset:
        """Returns the shuffled batches of one worker's training examples.

        The shard is cut before shuffling, so workers never read the same example. Every epoch has another order. A
        batch may hold the end of one epoch and the beginning of the next. So only the last, incomplete batch of all
        epochs together is dropped. The order depends on `seed`, the shard's index and the graph's seed.

        Args:
            shard: Part of the examples that this worker reads.
            batch_size: Number of examples per batch.
            seed: Seed of the run, from which each shard derives its own.
            num_epochs: Number of passes over the shard; None = endless.
            start: Number of examples to skip, counted over all epochs: those that the worker has read before. int64
                scalar.

        Returns:
            Batches with a static batch size: dict of tensors [batch_size, ...].

        Raises:
            DataError: The shard has fewer examples than a batch.
            ValueError: `shard.index` is not in 0 .. `shard.count` - 1.
        """
        if not 0 <= shard.index < shard.count:
            raise ValueError(f"shard index {shard.index} of {shard.count}: must be in 0 .. count - 1")
        self.check_shard(shard, batch_size)
        num_examples = shard.num_examples(self.num_train_examples)
        # SeedSequence mixes both numbers; with a sum, (seed 1, shard 0) would have the order of (seed 0, shard 1).
        shard_seed = int(np.random.SeedSequence([seed, shard.index]).generate_state(1)[0])

        def read_from(first: int | tf.Tensor) -> tf.data.Dataset:
            return shuffled_epochs.shuffle_epochs(
                self._records("train", shard),
                num_examples=num_examples,
                num_shuffled=min(num_examples, self.max_shuffled or num_examples),
                seed=shard_seed,
                num_epochs=num_epochs,
                start=first,
            )

        if not self.groups_lengths:
            # Batches are counted over all epochs, so each draw has its own seed, which a later start finds again.
            first = tf.cast(start, tf.int64) // batch_size
            return self._batches(read_from(start), batch_size, drop_remainder=True, draw_from=(shard_seed, first))
        sizes = {"batch_size": batch_size, "num_examples": num_examples}
        records = similar_lengths.group_records(read_from, self._record_lengths, **sizes, seed=shard_seed, start=start)
        return self._batches(records, batch_size, drop_remainder=True).map(self._cut_padding)

    @without_autograph
    def train_leased(self, leases: tf.data.Dataset, plan: ShardPlan) -> tf.data.Dataset:
        """Returns batches of small shards that a worker gets one after the other, in place of one shard for the run.

        The order within a shard depends on epoch, shard and `plan.seed` only. So another worker can finish a shard
        that a lost worker has begun.

        Args:
            leases: Dataset of int64 [3]: epoch, shard, and the batch of the shard to begin with.
            plan: How the examples are cut into shards; `plan.num_examples` equals `num_train_examples`.

        Returns:
            (position, batch): int64 [2], the batch's place in the counts (`runtime/shard_leases.py`), and a dict of
            tensors [<= batch_size, ...].
        """
        # The whole data, because a lease may name any shard of them.
        records = self._records("train", Shard(0, 1))
        base_seed = int(np.random.SeedSequence([plan.seed, plan.num_shards]).generate_state(1)[0])

        def read(lease: tf.Tensor) -> tf.data.Dataset:
            epoch, shard, first = tf.unstack(lease)
            size = (plan.num_examples - shard + plan.num_shards - 1) // plan.num_shards
            num_batches = -(-size // plan.batch_size)  # rounded up
            part = records.shard(plan.num_shards, shard)
            num_shuffled = tf.minimum(size, self.max_shuffled or plan.num_examples)
            shard_seed = base_seed + epoch * plan.num_shards + shard
            # `flat_map` builds this dataset again for each lease, so the seed carries epoch and shard.
            part = part.shuffle(num_shuffled, seed=shard_seed, reshuffle_each_iteration=False)
            # Batches of equal size, to within one example: `ShardPlan.batch_sizes` computes the same in Python.
            ends = size * tf.range(num_batches + 1) // num_batches
            sizes = ends[1:] - ends[:-1]
            if self.groups_lengths:
                part = similar_lengths.group_shard(part, self._record_lengths, sizes=sizes, seed=shard_seed)
            numbered = self._load(part).batch(plan.batch_size).rebatch(sizes).enumerate()
            # `skip` with a tensor as its argument crashes TensorFlow 2.21 inside `flat_map`, so a filter skips.
            numbered = numbered.filter(lambda number, batch: number >= first)
            first_batch = shard * plan.max_batches
            return numbered.map(
                lambda number, batch: (
                    tf.stack([epoch % plan.rows, first_batch + number]), tf.stack([shard_seed, number]), batch
                )
            )  # fmt: skip

        def decode(position: tf.Tensor, seed: tf.Tensor, batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, Any]:
            decoded = self._decode(self._draw_batch(batch, seed) if self.draws else batch)
            return position, self._cut_padding(decoded) if self.groups_lengths else decoded

        return leases.flat_map(read).map(decode).prefetch(PREFETCH_BATCHES)

    def check_shard(self, shard: Shard, batch_size: int) -> None:
        """Raises DataError if a worker's shard has fewer examples than a batch."""
        num_examples = shard.num_examples(self.num_train_examples)
        if num_examples < batch_size:
            raise DataError(
                f"batch_size={batch_size} exceeds the {num_examples} training examples of worker {shard.index}"
                f" (its shard of {self.num_train_examples} examples among {shard.count} workers);"
                " lower --batch_size, start fewer workers, or use a larger dataset"
            )

    def test(self, *, batch_size: int) -> tf.data.Dataset:
        """Returns every test example exactly once, in file order; the last batch may be smaller.

        Args:
            batch_size: Number of examples per batch.

        Returns:
            Batches: dict of tensors [<= batch_size, ...].
        """
        return self.in_order("test", batch_size=batch_size)

    @without_autograph
    def test_sample(self, *, batch_size: int, num_examples: int) -> tf.data.Dataset:
        """Returns `num_examples` test examples, spread evenly over all of them; the last batch may be smaller."""
        return self._batches(self._sample(num_examples), batch_size, drop_remainder=False)

    @without_autograph
    def test_part(
        self, *, batch_size: int, num_examples: int | None, first_batch: int, part: tf.Tensor, num_parts: int
    ) -> tf.data.Dataset:
        """Returns every `num_parts`-th batch of `test` or `test_sample`, from batch `first_batch + part` on.

        The batches hold the same examples as there, so that all parts together give the metrics of a single pass. The
        examples of other batches are read, and neither loaded nor decoded.

        Args:
            batch_size: Number of examples per batch.
            num_examples: Number of examples of `test_sample`; None = the batches of `test`.
            first_batch: Number of batches that belong to no part.
            part: Number of the part, int64 [], 0 <= part < num_parts.
            num_parts: Number of parts.
        """
        records = self._records("test", Shard(0, 1)) if num_examples is None else self._sample(num_examples)
        # Windows, since records that are not loaded yet may differ in shape, and a window keeps them separate.
        windows = records.skip(first_batch * batch_size).window(batch_size).shard(num_parts, part)
        chosen = windows.flat_map(lambda window: tf.data.Dataset.zip(window))
        return self._batches(chosen, batch_size, drop_remainder=False)

    def _sample(self, num_examples: int) -> tf.data.Dataset:
        """Returns the records of `num_examples` test examples, spread evenly over all of them."""
        stride = max(1, self.num_test_examples // num_examples)
        return self._records("test", Shard(0, stride)).take(num_examples)

    @without_autograph
    def in_order(self, split: str, *, batch_size: int) -> tf.data.Dataset:
        """Returns every example of "train" or "test" exactly once, in file order; the last batch may be smaller."""
        return self._batches(self._records(split, Shard(0, 1)), batch_size, drop_remainder=False)

    @abc.abstractmethod
    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        """Returns the examples of a shard of "train" or "test" in file order, one by one, not yet decoded.

        The shuffle buffer holds them in this form, so they should take as little memory as in the file.
        """

    def _load(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """Completes each shuffled record with what can only be read one by one, such as the image file it names."""
        return records

    def _record_lengths(self, records: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the lengths of some records, int [n], if the dataset groups its examples by length."""
        raise NotImplementedError

    def _cut_padding(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Cuts off the places of a batch where every example has padding, if the dataset groups by length."""
        raise NotImplementedError

    def _draw_batch(self, batch: dict[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Changes a batch of training records by chance, before `_decode`, if the dataset `draws`.

        Args:
            batch: Batch of records.
            seed: Seed for `tf.random.stateless_uniform`, int64 [2]; no other batch of the run has the same.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Turns a batch of records into a batch for the model."""

    def _batches(
        self,
        records: tf.data.Dataset,
        batch_size: int,
        *,
        drop_remainder: bool,
        draw_from: tuple[int, tf.Tensor] | None = None,
    ) -> tf.data.Dataset:
        # Decoding after batching: one call for many examples, and images stay bytes until then.
        batches = self._load(records).batch(batch_size, drop_remainder=drop_remainder)
        if self.draws and draw_from is not None:
            seed, first = draw_from
            batches = batches.enumerate(first).map(
                lambda number, batch: self._draw_batch(batch, tf.stack([seed, number]))
            )
        return batches.map(self._decode).prefetch(PREFETCH_BATCHES)
