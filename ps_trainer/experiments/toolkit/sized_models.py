"""Models of a null training step: pull parameters, compute next to nothing, push an update of the same size.

Given to `--model` and `--dataset` as `ps_trainer.experiments.toolkit.sized_models:Dense` and so on. Each loss is half
the sum of the squares of what was pulled, so the gradient equals the pulled values. TensorFlow can therefore
neither compute it before the pull nor replace it by a constant. With gradient descent at the rate η, an update
multiplies every value that is in the batch of all workers by 1 − η.

Shape suffixes: V values, B batch, D features.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.experiments.toolkit.sized_settings import DIM, TABLE_RATIO
from ps_trainer.options import option
from ps_trainer.store.trace import EMBEDDING_TABLES


class Output(NamedTuple):
    """Result of `build`, with the fields that every model returns."""

    loss: tf.Tensor  # scalar float32
    predictions: tf.Tensor  # float32 [B], zeros
    metrics: dict[str, tf.Tensor]  # name -> float32 [B]


class NullModel(abc.ABC):
    """A model whose loss is half the sum of the squares of the pulled values.

    Args:
        options: Options of the model.
    """

    def __init__(self, options: Any):
        self.options = options

    @abc.abstractmethod
    def pull(self, id_B: tf.Tensor) -> list[tf.Tensor]:
        """Returns the values that the step of a batch of ids pulls."""

    def build(self, batch: Mapping[str, tf.Tensor], *, training: bool) -> Output:
        """Returns the graph of one batch with "id", int64 [B]; the same in training and in evaluation."""
        del training
        pulled = self.pull(batch["id"])
        loss = 0.5 * tf.add_n([tf.reduce_sum(tf.square(values)) for values in pulled])
        zeros_B = tf.zeros_like(batch["id"], tf.float32)
        return Output(loss, zeros_B, {"loss": zeros_B + loss})


class Dense(NullModel):
    """A vector of ones that each step pulls and pushes as a whole; one value per ps task makes the scalar step."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Dense`."""

        num_values: int = option(1_000_000, "float32 values", least=1)

    def pull(self, id_B: tf.Tensor) -> list[tf.Tensor]:
        return [tf.get_variable("values", [self.options.num_values], initializer=tf.ones_initializer())]


class Sparse(NullModel):
    """A table of ones; a step pulls and pushes only the rows of its batch."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Sparse`."""

        num_rows: int = option(65_536, "rows of the table", least=1)

    def pull(self, id_B: tf.Tensor) -> list[tf.Tensor]:
        """Returns the rows at the ids modulo the number of rows; each distinct row is looked up once."""
        table = tf.get_variable(
            "table",
            [self.options.num_rows, DIM],
            initializer=tf.ones_initializer(),
            collections=[tf.GraphKeys.GLOBAL_VARIABLES, EMBEDDING_TABLES],
        )
        ids_R, _ = tf.unique(tf.math.floormod(id_B, self.options.num_rows))
        return [tf.nn.embedding_lookup(table, ids_R, partition_strategy="div")]


class TwoTables(NullModel):
    """A small and a large table of ones, of which a step pulls and pushes the rows of even and of odd ids.

    Every step sends the same messages for both tables; only the numbers of rows in them differ.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `TwoTables`."""

        num_rows: int = option(65_536, "rows of the small table", least=1)

    def pull(self, id_B: tf.Tensor) -> list[tf.Tensor]:
        """Returns the rows at half the ids modulo the number of rows, first those of the small table."""
        pulled = []
        for is_large, factor in enumerate((1, TABLE_RATIO)):
            num_rows = factor * self.options.num_rows
            table = tf.get_variable(
                ("small_table", "large_table")[is_large],
                [num_rows, DIM],
                initializer=tf.ones_initializer(),
                collections=[tf.GraphKeys.GLOBAL_VARIABLES, EMBEDDING_TABLES],
            )
            own_R = tf.boolean_mask(id_B, tf.equal(tf.math.floormod(id_B, 2), is_large))
            ids_R, _ = tf.unique(tf.math.floormod(own_R // 2, num_rows))
            pulled.append(tf.nn.embedding_lookup(table, ids_R, partition_strategy="div"))
        return pulled


class AlternatingIds(ArraySource):
    """Random ids like `RandomIds`, in order: even ones for a number of batches of each worker, then odd ones."""

    max_shuffled = 1

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `AlternatingIds`."""

        num_blocks: int = option(100, "blocks, even and odd ids by turns; then they begin again", least=2)
        block_examples: int = option(64, "ids of a worker in a block", least=1)
        num_workers: int = option(1, "workers", least=1)

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        shape = [options.num_blocks, options.block_examples * options.num_workers]
        ids = np.random.RandomState(0).randint(0, 2**30, shape, np.int64)
        ids = (2 * ids + np.arange(options.num_blocks)[:, np.newaxis] % 2).reshape(-1)
        super().__init__({"id": ids}, {"id": ids[:1]}, num_classes=None)


class RandomIds(ArraySource):
    """Random ids that differ between workers: batches of "id", int64 [B] in 0 .. 2^31 − 1."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `RandomIds`."""

        num_ids: int = option(65_536, "ids, shared out among the workers", least=1)

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        ids = np.random.RandomState(0).randint(0, 2**31, options.num_ids, np.int64)
        super().__init__({"id": ids}, {"id": ids[:1]}, num_classes=None)
