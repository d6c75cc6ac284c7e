"""Models of a null training step: pull parameters, compute next to nothing, push an update of the same size.

Given to `--model` and `--dataset` as `ps_trainer.experiments.toolkit.sized_models:Dense` and so on. Each loss is half
the sum of the squares of what was pulled, so the gradient is the pulled values themselves: it cannot be computed
before they are there, and no constant can stand for it. With gradient descent at the rate η, every value that is in
the batch of all workers is 1 − η times what it was.

Shape suffixes: V values, B batch, D features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.experiments.toolkit.sized_settings import DIM
from ps_trainer.options import option
from ps_trainer.store.trace import EMBEDDING_TABLES


class Output(NamedTuple):
    """What `build` gives, as any model's.

    Attributes:
        loss: scalar float32.
        predictions: float32 [B], zeros.
        metrics: name -> float32 [B].
    """

    loss: tf.Tensor
    predictions: tf.Tensor
    metrics: dict[str, tf.Tensor]


class Dense:
    """A vector of ones, all of which a step pulls and pushes; with one value per ps task it is the scalar step."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Dense`."""

        num_values: int = option(1_000_000, "float32 values", least=1)

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: Mapping[str, tf.Tensor], *, training: bool) -> Output:
        """The graph of one batch.

        Args:
            batch: "id" int64 [B], read and not looked at.
            training: makes no difference to this model.
        """
        del training
        values_V = tf.get_variable("values", [self.options.num_values], initializer=tf.ones_initializer())
        return _output(values_V, batch["id"])


class Sparse:
    """A table of ones of which a step pulls and pushes the rows of its batch only."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Sparse`."""

        num_rows: int = option(65_536, "rows of the table", least=1)

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: Mapping[str, tf.Tensor], *, training: bool) -> Output:
        """The graph of one batch.

        Args:
            batch: "id" int64 [B]; the row is id modulo the number of rows, each distinct one is looked up once.
            training: makes no difference to this model.
        """
        del training
        table = tf.get_variable(
            "table",
            [self.options.num_rows, DIM],
            initializer=tf.ones_initializer(),
            collections=[tf.GraphKeys.GLOBAL_VARIABLES, EMBEDDING_TABLES],
        )
        ids_R, _ = tf.unique(tf.math.floormod(batch["id"], self.options.num_rows))
        rows_RD = tf.nn.embedding_lookup(table, ids_R, partition_strategy="div")
        return _output(rows_RD, batch["id"])


class RandomIds(ArraySource):
    """Random ids, other ones for each worker: batches of "id", int64 [B] in 0 .. 2^31 − 1."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `RandomIds`."""

        num_ids: int = option(65_536, "ids, shared out among the workers", least=1)

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        ids = np.random.RandomState(0).randint(0, 2**31, options.num_ids, np.int64)
        super().__init__({"id": ids}, {"id": ids[:1]}, num_classes=None)


def _output(pulled: tf.Tensor, id_B: tf.Tensor) -> Output:
    loss = 0.5 * tf.reduce_sum(tf.square(pulled))
    zeros_B = tf.zeros_like(id_B, tf.float32)
    return Output(loss, zeros_B, {"loss": zeros_B + loss})
