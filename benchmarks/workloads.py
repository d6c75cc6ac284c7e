"""The models and the input of the step-rate benchmark.

`Deep` has many small variables, so the number of messages is the cost of a step. `Wide` has few large ones, so their
bytes and the arithmetic are the cost. The same classes build the graph for every contender. `DeepTable` is for update
rules that need an embedding table.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks import contenders
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.models import layers
from ps_trainer.options import option


class Deep:
    """40 dense layers 64x64 with bias: 80 variables, 0.67 MB."""

    size = contenders.DEEP

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "features" float32 [B, width]; "label" int64 [B], 0 <= label < width.
            training: Not used; both graphs are the same.

        Returns:
            Loss, class probabilities [B, width] and "accuracy".
        """
        del training
        return _build_dense_stack(batch, self.size)


class Wide:
    """4 dense layers 512x512 with bias: 8 variables, 4.2 MB."""

    size = contenders.WIDE

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch, as `Deep.build` does."""
        del training
        return _build_dense_stack(batch, self.size)


class DeepTable:
    """`Deep` behind an embedding table 64x64, of which a batch looks up about 25 rows."""

    size = contenders.DEEP

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch, as `Deep.build` does, and adds the label's row of a table."""
        del training
        rows = layers.embedding("table", self.size.width, self.size.width, batch["label"])
        return _build_dense_stack({**batch, "features": batch["features"] + rows}, self.size)


WORKLOADS: dict[str, type[Deep] | type[Wide]] = {"deep": Deep, "wide": Wide}


class RandomInput:
    """One batch of random numbers, repeated, so that input costs next to nothing.

    It has the interface of `ps_trainer.data.pipeline.data_source.DataSource` but nothing of its pipeline, which
    shuffles and batches single examples.

    Args:
        options: Sizes of the model's input.
        data_dir: Unused, because the data are generated.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `RandomInput`."""

        width: int = option(contenders.DEEP.width, "features per example, and number of classes", least=1)

    num_train_examples = contenders.BATCH_SIZE
    num_test_examples = contenders.BATCH_SIZE

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        self._width = options.width
        self.num_classes = options.width

    def train(
        self,
        *,
        shard: Shard,
        batch_size: int,
        seed: int,
        num_epochs: int | None = None,
        start: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Returns the same batch again and again; every worker has its own.

        Args:
            shard: The worker's part, of which only the worker's index counts.
            batch_size: Examples in the batch.
            seed: Seed of the batch's numbers, together with the worker's index.
            num_epochs: Number of repetitions of the batch; None = endless.
            start: Number of examples to skip, in whole batches.

        Returns:
            Batches of "features" float32 [batch_size, width] and "label" int64 [batch_size].
        """
        return self._one_batch(batch_size, (seed, shard.index)).repeat(num_epochs).skip(start // batch_size)

    def test(self, *, batch_size: int) -> tf.data.Dataset:
        """Returns one batch that no worker trains on."""
        # Three numbers never equal a worker's pair of seed and index.
        return self._one_batch(batch_size, (0, 0, 1))

    def _one_batch(self, batch_size: int, seed: tuple[int, ...]) -> tf.data.Dataset:
        random = np.random.default_rng(seed)
        features = random.standard_normal((batch_size, self._width), dtype=np.float32)
        label = random.integers(self._width, size=batch_size, dtype=np.int64)
        return tf.data.Dataset.from_tensors({"features": features, "label": label})


def _build_dense_stack(batch: dict[str, tf.Tensor], size: contenders.WorkloadSize) -> layers.ModelOutput:
    x = batch["features"]
    for index in range(size.num_layers - 1):
        x = layers.dense(x, size.width, f"layer{index}", activation=tf.nn.relu)
    logits = layers.dense(x, size.width, f"layer{size.num_layers - 1}")
    return layers.classifier_output(logits, batch["label"])
