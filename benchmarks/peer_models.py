"""The workloads of `peer_workloads.py` in TensorFlow, for ps_trainer, the stock script and the bare ops.

Shape suffixes: B batch, T time, D features, H heads, C channels, N classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks import peer_workloads
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.models import layers
from ps_trainer.options import option

Tensors = Mapping[str, tf.Tensor]


class Initial:
    """Initializer: `peer_workloads.initial`, computed by ops, so that no table becomes a constant of the graph.

    Args:
        name: Name of the variable.
        scale: Largest absolute value.
    """

    def __init__(self, name: str, scale: float):
        self._name = name
        self._scale = scale

    def __call__(self, shape: Any, dtype: tf.DType | None = None, partition_info: Any = None) -> tf.Tensor:
        del dtype
        full = list(map(int, shape if partition_info is None else partition_info.full_shape))
        rows, columns = peer_workloads.factors(self._name, full)
        if partition_info is not None:  # tables are cut by rows
            first = partition_info.var_offset[0]
            rows = rows[first : first + int(shape[0])]
        mixed = tf.bitwise.bitwise_xor(tf.constant(rows)[:, tf.newaxis], tf.constant(columns))
        for factor in peer_workloads.MIXERS:
            mixed *= factor
            mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, 13))
        numbers = tf.bitwise.bitwise_and(mixed, 2**peer_workloads.BITS - 1)
        value = (tf.cast(numbers, tf.float32) * 2.0 ** (1 - peer_workloads.BITS) - 1) * self._scale
        return tf.reshape(value, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """The option of model and dataset."""

    workload: str = option("deep", "name of the workload", choices=tuple(peer_workloads.PEER_WORKLOADS))


class PeerModel:
    """The model of one workload."""

    Options = WorkloadOptions

    def __init__(self, options: WorkloadOptions):
        self._loss = _LOSSES[options.workload]
        self._workload = options.workload

    def build(self, batch: Tensors, *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch; only the loss means anything."""
        del training
        loss = self._loss(batch)
        return layers.ModelOutput(loss, loss[tf.newaxis], {"loss": loss[tf.newaxis]})


class PeerInput:
    """One batch, repeated; it has the interface of `RandomInput` in `workloads.py`.

    Args:
        options: Name of the workload.
        data_dir: Unused, because the data are generated.
    """

    Options = WorkloadOptions

    def __init__(self, options: WorkloadOptions, *, data_dir: str | None = None):
        del data_dir
        self._workload = options.workload
        self.num_train_examples = self.num_test_examples = self._batch_size

    @property
    def _batch_size(self) -> int:
        return peer_workloads.PEER_WORKLOADS[self._workload].batch_size

    def train(
        self,
        *,
        shard: Shard,
        batch_size: int,
        seed: int,
        num_epochs: int | None = None,
        start: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Returns the same batch again and again, from `Dataset.from_tensors`.

        Args:
            shard: The worker's part, of which only the worker's index counts.
            batch_size: Size of the workload's batches.
            seed: Unused.
            num_epochs: Number of repetitions of the batch; None = endless.
            start: Number of examples to skip, in whole batches.
        """
        del seed
        batch = peer_workloads.batch(self._workload, shard.index)
        return tf.data.Dataset.from_tensors(batch).repeat(num_epochs).skip(start // batch_size)

    def test(self, *, batch_size: int) -> tf.data.Dataset:
        """Returns the first worker's batch."""
        del batch_size
        return tf.data.Dataset.from_tensors(peer_workloads.batch(self._workload, 0))


def variable(name: str, shape: list[int], scale: float) -> tf.Tensor:
    """Creates a trainable variable with the values of `peer_workloads.initial`."""
    return tf.get_variable(name, shape, initializer=Initial(name, scale))


def _dense(x_BD: tf.Tensor, units: int, name: str) -> tf.Tensor:
    size = int(x_BD.shape[1])
    kernel = variable(f"{name}_kernel", [size, units], (6 / (size + units)) ** 0.5)
    return tf.nn.bias_add(tf.matmul(x_BD, kernel), variable(f"{name}_bias", [units], 0.0))


def _stack(x: tf.Tensor, units: list[int]) -> tf.Tensor:
    for number, size in enumerate(units):
        x = _dense(x, size, f"layer{number}")
        if number < len(units) - 1:
            x = tf.nn.relu(x)
    return x


def _cross_entropy(logits_BN: tf.Tensor, label_B: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits_BN, labels=label_B))


def _rows(name: str, num_rows: int, dim: int, ids: tf.Tensor, scale: float) -> tf.Tensor:
    return layers.embedding(name, num_rows, dim, ids, Initial(name, scale))


def _classes(units: list[int]) -> Callable[[Tensors], tf.Tensor]:
    return lambda batch: _cross_entropy(_stack(batch["features"], units), batch["label"])


def _scalar(batch: Tensors) -> tf.Tensor:
    return tf.reduce_mean(variable("weight", [], 0.5) * batch["features"])


def _large(batch: Tensors) -> tf.Tensor:
    """Builds a loss whose gradient is the batch: no op computes with the 16 MB.

    The shape of the gradient depends on the loss. Otherwise a script that fetches no loss, such as `stock`, would not
    pull the weights; Grappler takes away a control dependency.
    """
    size = int(batch["features"].shape[1])

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def first(weights: tf.Tensor) -> Any:
        loss = weights[0]

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.reshape(batch["features"], [tf.where(tf.is_finite(loss), size, -1)]), [size])

        return loss, gradient

    return first(tf.convert_to_tensor(variable("weights", [size], 0.5)))


def _table(batch: Tensors) -> tf.Tensor:
    return tf.reduce_mean(tf.reduce_sum(_rows("table", 1_000_000, 64, batch["ids"], 0.1) * batch["features"], axis=1))


def _word2vec(batch: Tensors) -> tf.Tensor:
    center_BD = _rows("input", 50_000, 128, batch["center"], 0.5)
    output = _rows("output", 50_000, 128, tf.concat([batch["context"], batch["negative"]], axis=0), 0.5)
    num_negative = int(batch["negative"].shape[0])
    context_BD, negative_SD = output[:-num_negative], output[-num_negative:]
    true_B = tf.reduce_sum(center_BD * context_BD, axis=1)
    false_BS = tf.matmul(center_BD, negative_SD, transpose_b=True)
    return tf.reduce_mean(tf.nn.softplus(-true_B) + tf.reduce_sum(tf.nn.softplus(false_BS), axis=1))


def _click_loss(logit_B: tf.Tensor, label_B: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=logit_B, labels=label_B))


def _wide_deep(batch: Tensors) -> tf.Tensor:
    ids = batch["ids"]
    deep = tf.reshape(_rows("deep", 1_000_000, 10, ids, 0.1), [-1, int(ids.shape[1]) * 10])
    wide_B = tf.reduce_sum(_rows("wide", 1_000_000, 1, ids, 0.1)[..., 0], axis=1)
    return _click_loss(wide_B + _stack(deep, [64, 32, 1])[:, 0], batch["label"])


def _logistic(batch: Tensors) -> tf.Tensor:
    logit_B = tf.reduce_sum(_rows("weights", 1_000_000, 1, batch["ids"], 0.1)[..., 0], axis=1)
    return _click_loss(logit_B + variable("bias", [], 0.0), batch["label"])


def _factorization(batch: Tensors) -> tf.Tensor:
    user_BD = _rows("user", 100_000, 32, batch["user"], 0.5)
    item_BD = _rows("item", 100_000, 32, batch["item"], 0.5)
    return tf.reduce_mean(tf.square(tf.reduce_sum(user_BD * item_BD, axis=1) - batch["label"]))


def _resnet(batch: Tensors) -> tf.Tensor:
    """Builds ResNet-20 with the statistics of the batch, and no moving averages."""
    x = _conv(batch["features"], 16, 1, "first", is_active=True)
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(3):
            strides = 2 if stage and not block else 1
            name = f"stage{stage}_block{block}"
            y = _conv(_conv(x, filters, strides, f"{name}_a", is_active=True), filters, 1, f"{name}_b")
            if strides == 2:
                more = filters // 4
                x = tf.pad(x[:, ::2, ::2], [[0, 0], [0, 0], [0, 0], [more, more]])
            x = tf.nn.relu(x + y)
    return _cross_entropy(_dense(tf.reduce_mean(x, axis=[1, 2]), 10, "logits"), batch["label"])


def _conv(x_BHWC: tf.Tensor, filters: int, strides: int, name: str, *, is_active: bool = False) -> tf.Tensor:
    channels = int(x_BHWC.shape[3])
    kernel = variable(f"{name}_kernel", [3, 3, channels, filters], (6 / (9 * channels)) ** 0.5)
    # Padded by hand, since "SAME" pads an even image on one side only if the strides are 2.
    padded = tf.pad(x_BHWC, [[0, 0], [1, 1], [1, 1], [0, 0]])
    y = tf.nn.conv2d(padded, kernel, strides=[1, strides, strides, 1], padding="VALID")
    scale, offset = variable(f"{name}_scale", [filters], 0.0) + 1.0, variable(f"{name}_offset", [filters], 0.0)
    y, _, _ = tf.nn.fused_batch_norm(y, scale, offset, epsilon=1e-5, is_training=True)
    return tf.nn.relu(y) if is_active else y


def _transformer(batch: Tensors) -> tf.Tensor:
    """Builds a decoder with 2 layers of 4 heads and 512 hidden units."""
    tokens_BT, target_BT = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
    num_times, dim = int(tokens_BT.shape[1]), 128
    x_BTD = _rows("words", 5_000, dim, tokens_BT, 1.0) + variable("positions", [num_times, dim], 1.0)
    x = tf.reshape(x_BTD, [-1, dim])
    for number in range(2):
        x += _attention(_norm(x, f"norm{number}_a"), num_times, f"attention{number}")
        hidden = tf.nn.relu(_dense(_norm(x, f"norm{number}_b"), 512, f"hidden{number}"))
        x += _dense(hidden, dim, f"out{number}")
    return _cross_entropy(_dense(_norm(x, "norm"), 5_000, "logits"), tf.reshape(target_BT, [-1]))


def _attention(x: tf.Tensor, num_times: int, name: str) -> tf.Tensor:
    num_heads, dim = 4, int(x.shape[1])
    projected = tf.reshape(_dense(x, 3 * dim, f"{name}_in"), [-1, num_times, 3, num_heads, dim // num_heads])
    query, key, value = tf.unstack(tf.transpose(projected, [2, 0, 3, 1, 4]))  # each [B, H, T, D / H]
    scores = tf.matmul(query, key, transpose_b=True) * (dim // num_heads) ** -0.5
    future = np.triu(np.full([num_times, num_times], -1e9, np.float32), 1)
    mixed = tf.matmul(tf.nn.softmax(scores + future), value)
    return _dense(tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, dim]), dim, f"{name}_out")


def _norm(x: tf.Tensor, name: str) -> tf.Tensor:
    size = int(x.shape[1])
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    scale, offset = variable(f"{name}_scale", [size], 0.0) + 1.0, variable(f"{name}_offset", [size], 0.0)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * scale + offset


_LOSSES: dict[str, Callable[[Tensors], tf.Tensor]] = {
    "deep": _classes([64] * 40),
    "wide": _classes([512] * 4),
    "mlp": _classes([256, 256, 10]),
    "scalar": _scalar,
    "large": _large,
    "table": _table,
    "word2vec": _word2vec,
    "wide_deep": _wide_deep,
    "logistic": _logistic,
    "factorization": _factorization,
    "resnet": _resnet,
    "transformer": _transformer,
}
