"""Small models and datasets for tests, and the plain single-process loop that tests compare them with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from models import layers
from models.layers import ModelOutput
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.options import option
from ps_trainer.store.trace import seeded_getter

NUM_FEATURES, NUM_CLASSES, VOCAB_SIZE = 6, 4, 23
MAX_WORKERS = 4  # of `Credits`


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Options of `Rows`."""

    num_examples: int = option(240, "training examples")
    lengths: tuple[int, ...] = option((), "steps of each worker, if they differ")
    has_test: bool = option(False, "whether the training examples are test examples, too; otherwise there are none")


class Rows(DataSource):
    """Random rows in file order, without shuffling, in strided shards: a test knows which worker reads which row.

    A run has test examples only if the test asks for them, since an evaluation is a fifth of the time of a short run.
    """

    Options = RowOptions
    num_classes = NUM_CLASSES

    def __init__(self, options: RowOptions, *, data_dir: str | None = None):
        self._options = options
        random = np.random.RandomState(7)
        size = options.num_examples
        self.arrays = {
            "x": random.randn(size, NUM_FEATURES).astype(np.float32),
            "ids": random.randint(0, VOCAB_SIZE, [size, 3]).astype(np.int64),
            "label": random.randint(0, NUM_CLASSES, size).astype(np.int64),
        }

    @property
    def num_train_examples(self) -> int:
        return self._options.num_examples

    @property
    def num_test_examples(self) -> int:
        return self._options.num_examples if self._options.has_test else 0

    def test(self, *, batch_size: int) -> tf.data.Dataset | None:
        return super().test(batch_size=batch_size) if self._options.has_test else None

    def train(
        self, *, shard: Shard, batch_size: int, seed: int, num_epochs: int | None, start: int | tf.Tensor = 0
    ) -> tf.data.Dataset:
        records = self._records("train", shard).repeat(num_epochs)
        if self._options.lengths:
            records = records.take(self._options.lengths[shard.index] * batch_size)
        return records.skip(tf.convert_to_tensor(start, tf.int64)).batch(batch_size, drop_remainder=True)

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        size = len(self.arrays["label"])
        arrays = self.arrays | {"worker": np.full(size, shard.index, np.int64)}  # the reading worker, for scripts
        return tf.data.Dataset.from_tensor_slices(arrays).shard(shard.count, shard.index)

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return batch


class Shuffled(Rows):
    """The first 100 of `Rows`, or the number asked for, shuffled in the same way as any dataset."""

    train = DataSource.train

    def __init__(self, options: RowOptions, *, data_dir: str | None = None):
        super().__init__(dataclasses.replace(options, num_examples=min(options.num_examples, 100)), data_dir=data_dir)


class Pictures(Rows):
    """Random pictures of 8x8 pixels, with the labels and the order of `Rows`."""

    def __init__(self, options: RowOptions, *, data_dir: str | None = None):
        super().__init__(options, data_dir=data_dir)
        labels = self.arrays["label"]
        images = np.random.RandomState(8).uniform(size=(len(labels), 8, 8, 1)).astype(np.float32)
        self.arrays = {"image": images, "label": labels}


class Texts(Rows):
    """Random texts of symbols 4..8, with an end symbol and padding: "source", "target", and "ids" without an end."""

    def __init__(self, options: RowOptions, *, data_dir: str | None = None):
        super().__init__(options, data_dir=data_dir)
        random = np.random.RandomState(9)
        size = len(self.arrays["label"])
        ids = random.randint(4, 9, (size, 7))
        self.arrays = {"ids": ids, "label": self.arrays["label"]}
        for name, length in (("source", 6), ("target", 5)):
            end = random.randint(0, length, (size, 1))
            at = np.arange(length)
            symbols = random.randint(4, 9, (size, length))
            self.arrays[name] = np.where(at < end, symbols, np.where(at == end, 2, 0))


class Sounds(Rows):
    """Random spectrograms of up to 7 frames, with transcripts of 1 or 2 symbols."""

    def __init__(self, options: RowOptions, *, data_dir: str | None = None):
        super().__init__(options, data_dir=data_dir)
        size = len(self.arrays["label"])
        random = np.random.RandomState(9)
        num_ids = random.randint(1, 3, size)
        self.arrays = {
            "frames": random.normal(size=(size, 7, 3)).astype(np.float32),
            "num_frames": random.randint(3, 8, size).astype(np.int64),
            "ids": np.where(np.arange(2) < num_ids[:, np.newaxis], random.randint(0, NUM_CLASSES, (size, 2)), -1),
            "num_ids": num_ids.astype(np.int64),
            "label": self.arrays["label"],
        }


class Dense:
    """Two dense layers; for some cluster sizes the weights of each are larger than a ps task's even share."""

    num_hidden = 5

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> ModelOutput:
        hidden_BH = layers.dense(batch["x"], self.num_hidden, "hidden", activation=tf.nn.tanh)
        return _output(layers.dense(hidden_BH, NUM_CLASSES, "logits"), batch["label"])


class Broad(Dense):
    """`Dense` with 3,304 parameters, more than a small piece of a packed vector holds."""

    num_hidden = 300


class Aligned(Dense):
    """`Dense` with 224 parameters, a multiple of 64 bytes."""

    num_hidden = 20


class Embedded:
    """A dense layer on the mean of embedded ids and the dense features."""

    num_rows = VOCAB_SIZE

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> ModelOutput:
        rows_BND = layers.embedding("table", self.num_rows, 4, batch["ids"])
        features_BF = tf.concat([tf.reduce_mean(rows_BND, axis=1), batch["x"]], axis=1)
        return _output(layers.dense(features_BF, NUM_CLASSES, "logits"), batch["label"])


class LargelyEmbedded(Embedded):
    """`Embedded` with a table of 1 MiB, which a save does not copy."""

    num_rows = 2**16


class TwiceEmbedded(Embedded):
    """`Embedded` with a second table, of which a batch takes other rows."""

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> ModelOutput:
        rows_BND = layers.embedding("second", self.num_rows, 2, batch["ids"][:, :2])
        x_BF = tf.concat([tf.reduce_mean(rows_BND, axis=1), batch["x"]], axis=1)
        return super().build({**batch, "x": x_BF}, training)


class Credits:
    """A model whose parameters count each worker's gradients.

    Worker w's gradient is 1 for the parameters with index w and 0 for all others, whatever their values are. So the
    parameters tell how often, and with which weight, each worker's gradient changed them. There are two vectors of
    shape [MAX_WORKERS], which two ps tasks hold.
    """

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> ModelOutput:
        own_BW = tf.one_hot(batch["worker"], MAX_WORKERS)
        vectors = [_zeros(name, [MAX_WORKERS]) for name in ("left", "right")]
        losses_B = tf.add_n([tf.reduce_sum(own_BW * vector_W, axis=1) for vector_W in vectors])
        return ModelOutput(tf.reduce_mean(losses_B), losses_B, {})


class CreditRows(Credits):
    """`Credits` with an embedding table, [MAX_WORKERS, 1], that has a row for each worker."""

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> ModelOutput:
        dense = super().build(batch, training=training)
        zeros = tf.zeros_initializer()
        rows_B1D = layers.embedding("rows", MAX_WORKERS, 1, batch["worker"][:, tf.newaxis], initializer=zeros)
        return dense._replace(loss=dense.loss + tf.reduce_mean(tf.reduce_sum(rows_B1D, axis=[1, 2])))


def _zeros(name: str, shape: Sequence[int]) -> tf.Tensor:
    return tf.convert_to_tensor(tf.get_variable(name, shape, initializer=tf.zeros_initializer()))


def _output(logits_BC: tf.Tensor, label_B: tf.Tensor) -> ModelOutput:
    losses_B = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_B, logits=logits_BC)
    correct_B = tf.cast(tf.equal(tf.argmax(logits_BC, axis=1), label_B), tf.float32)
    return ModelOutput(tf.reduce_mean(losses_B), logits_BC, {"accuracy": correct_B})


def plain_loop(
    model: Any, batches: Sequence[dict[str, np.ndarray]], optimizer: tf.train.Optimizer, seed: int = 0
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Trains in one process and uses only the seeds of this package; returns losses and variables.

    Args:
        model: Object with a method `build`.
        batches: One batch per step.
        optimizer: Function that creates a `tf.train.Optimizer`; called in the loop's graph.
        seed: Seed of the initial values.
    """
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(seed)
        feeds = {name: tf.placeholder(array.dtype, array.shape) for name, array in batches[0].items()}
        with tf.variable_scope("", custom_getter=seeded_getter(seed), use_resource=True):
            loss = model.build(feeds, training=True).loss
        variables = tf.global_variables()
        train_op = optimizer().minimize(loss, var_list=tf.trainable_variables())
        slots = tf.global_variables()[len(variables) :]
        init_op = tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
        session.run(init_op)
        losses = []
        for batch in batches:
            loss_v, _ = session.run([loss, train_op], {feeds[name]: batch[name] for name in feeds})
            losses.append(float(loss_v))
        values = session.run({variable.op.name: variable for variable in [*variables, *slots]})
    return losses, values


def global_batches(batch_size: int, num_steps: int, num_workers: int = 1) -> list[dict[str, np.ndarray]]:
    """Batches that `num_workers` workers together read from `Rows` at each step: worker w reads rows w, w + n, …"""
    arrays = Rows(RowOptions()).arrays
    size = len(arrays["label"])
    batches = []
    for step in range(num_steps):
        indices = []
        for worker in range(num_workers):
            own = np.arange(worker, size, num_workers)
            indices.append(own[np.arange(step * batch_size, (step + 1) * batch_size) % len(own)])
        picked = np.concatenate(indices)
        batches.append({name: array[picked] for name, array in arrays.items()})
    return batches
