"""The workloads of `benchmarks.peer_workloads` in PyTorch, with the arithmetic of `benchmarks.peer_models`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks import peer_workloads

Tensors = dict[str, torch.Tensor]


class TorchPeerModel(nn.Module):
    """The model of one workload; calling it with a batch gives the loss.

    Args:
        workload: Key of `PEER_WORKLOADS`.
        is_sparse: Whether the gradient of a table has only the rows of the batch.
    """

    def __init__(self, workload: str, *, is_sparse: bool = True):
        super().__init__()
        self._is_sparse = is_sparse
        self._values = nn.ParameterDict()
        self._tables = nn.ModuleDict()
        self._is_built = False
        self._loss: Callable[[TorchPeerModel, Tensors], torch.Tensor] = _LOSSES[workload]
        with torch.no_grad():
            self._loss(self, tensors(workload, 0))  # makes the parameters
        self._is_built = True

    def forward(self, batch: Tensors) -> torch.Tensor:
        """Computes the loss of a batch."""
        return self._loss(self, batch)

    def value(self, name: str, shape: list[int], scale: float) -> torch.Tensor:
        """Returns a parameter; made when it is first asked for."""
        if not self._is_built and name not in self._values:
            # An array of no dimensions would become a view that PyTorch cannot train.
            self._values[name] = nn.Parameter(torch.tensor(peer_workloads.initial(name, shape, scale)))
        return self._values[name]

    def rows(self, name: str, num_rows: int, dim: int, ids: torch.Tensor, scale: float) -> torch.Tensor:
        """Returns the rows of a table."""
        if not self._is_built and name not in self._tables:
            weights = torch.from_numpy(peer_workloads.initial(name, [num_rows, dim], scale))
            self._tables[name] = nn.Embedding(num_rows, dim, sparse=self._is_sparse, _weight=weights)
        return self._tables[name](ids)

    def dense(self, x: torch.Tensor, units: int, name: str) -> torch.Tensor:
        """Applies a dense layer."""
        size = x.shape[1]
        kernel = self.value(f"{name}_kernel", [size, units], (6 / (size + units)) ** 0.5)
        return torch.addmm(self.value(f"{name}_bias", [units], 0.0), x, kernel)

    def stack(self, x: torch.Tensor, units: list[int]) -> torch.Tensor:
        """Applies dense layers with ReLU between them."""
        for number, size in enumerate(units):
            x = self.dense(x, size, f"layer{number}")
            if number < len(units) - 1:
                x = torch.relu(x)
        return x


def tensors(workload: str, worker: int) -> Tensors:
    """Returns the batch of a worker."""
    return {
        name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in peer_workloads.batch(workload, worker).items()
    }


class _GivenGradient(torch.autograd.Function):
    """The first weight, with a given gradient of all weights."""

    @staticmethod
    def forward(context: Any, weights: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        context.gradient = gradient
        return weights[0].clone()

    @staticmethod
    def backward(context: Any, upstream: torch.Tensor) -> Any:
        return context.gradient, None


def _classes(units: list[int]) -> Callable[[TorchPeerModel, Tensors], torch.Tensor]:
    return lambda model, batch: functional.cross_entropy(model.stack(batch["features"], units), batch["label"])


def _scalar(model: TorchPeerModel, batch: Tensors) -> torch.Tensor:
    return (model.value("weight", [], 0.5) * batch["features"]).mean()


def _large(model: TorchPeerModel, batch: Tensors) -> torch.Tensor:
    gradient = batch["features"].reshape(-1)
    loss: torch.Tensor = _GivenGradient.apply(model.value("weights", [len(gradient)], 0.5), gradient)
    return loss


def _table(model: TorchPeerModel, batch: Tensors) -> torch.Tensor:
    return (model.rows("table", 1_000_000, 64, batch["ids"], 0.1) * batch["features"]).sum(1).mean()


def _word2vec(model: TorchPeerModel, batch: Tensors) -> torch.Tensor:
    center = model.rows("input", 50_000, 128, batch["center"], 0.5)
    output = model.rows("output", 50_000, 128, torch.cat([batch["context"], batch["negative"]]), 0.5)
    num_negative = len(batch["negative"])
    context, negative = output[:-num_negative], output[-num_negative:]
    true, false = (center * context).sum(1), center @ negative.T
    return (functional.softplus(-true) + functional.softplus(false).sum(1)).mean()


def _wide_deep(model: TorchPeerModel, batch: Tensors) -> torch.Tensor:
    deep = model.rows("deep", 1_000_000, 10, batch["ids"], 0.1).flatten(1)
    wide = model.rows("wide", 1_000_000, 1, batch["ids"], 0.1)[..., 0].sum(1)
    logit = wide + model.stack(deep, [64, 32, 1])[:, 0]
    return functional.binary_cross_entropy_with_logits(logit, batch["label"])


def _logistic(model: TorchPeerModel, batch: Tensors) -> torch.Tensor:
    logit = model.rows("weights", 1_000_000, 1, batch["ids"], 0.1)[..., 0].sum(1) + model.value("bias", [], 0.0)
    return functional.binary_cross_entropy_with_logits(logit, batch["label"])


def _factorization(model: TorchPeerModel, batch: Tensors) -> torch.Tensor:
    user = model.rows("user", 100_000, 32, batch["user"], 0.5)
    item = model.rows("item", 100_000, 32, batch["item"], 0.5)
    return ((user * item).sum(1) - batch["label"]).square().mean()


def _resnet(model: TorchPeerModel, batch: Tensors) -> torch.Tensor:
    x = _conv(model, batch["features"].permute(0, 3, 1, 2), 16, 1, "first", is_active=True)
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(3):
            strides = 2 if stage and not block else 1
            name = f"stage{stage}_block{block}"
            y = _conv(model, x, filters, strides, f"{name}_a", is_active=True)
            y = _conv(model, y, filters, 1, f"{name}_b")
            if strides == 2:
                more = filters // 4
                x = functional.pad(x[:, :, ::2, ::2], [0, 0, 0, 0, more, more])
            x = torch.relu(x + y)
    return functional.cross_entropy(model.dense(x.mean([2, 3]), 10, "logits"), batch["label"])


def _conv(
    model: TorchPeerModel, x: torch.Tensor, filters: int, strides: int, name: str, *, is_active: bool = False
) -> torch.Tensor:
    channels = x.shape[1]
    kernel = model.value(f"{name}_kernel", [3, 3, channels, filters], (6 / (9 * channels)) ** 0.5)
    y = functional.conv2d(x, kernel.permute(3, 2, 0, 1), stride=strides, padding=1)
    scale, offset = model.value(f"{name}_scale", [filters], 0.0) + 1.0, model.value(f"{name}_offset", [filters], 0.0)
    y = functional.batch_norm(y, None, None, scale, offset, training=True)
    return torch.relu(y) if is_active else y


def _transformer(model: TorchPeerModel, batch: Tensors) -> torch.Tensor:
    tokens, target = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
    num_times, dim = tokens.shape[1], 128
    x = model.rows("words", 5_000, dim, tokens, 1.0) + model.value("positions", [num_times, dim], 1.0)
    x = x.reshape(-1, dim)
    for number in range(2):
        x = x + _attention(model, _norm(model, x, f"norm{number}_a"), num_times, f"attention{number}")
        hidden = torch.relu(model.dense(_norm(model, x, f"norm{number}_b"), 512, f"hidden{number}"))
        x = x + model.dense(hidden, dim, f"out{number}")
    return functional.cross_entropy(model.dense(_norm(model, x, "norm"), 5_000, "logits"), target.reshape(-1))


def _attention(model: TorchPeerModel, x: torch.Tensor, num_times: int, name: str) -> torch.Tensor:
    num_heads, dim = 4, x.shape[1]
    projected = model.dense(x, 3 * dim, f"{name}_in").reshape(-1, num_times, 3, num_heads, dim // num_heads)
    query, key, value = projected.permute(2, 0, 3, 1, 4)
    scores = query @ key.transpose(2, 3) / math.sqrt(dim // num_heads)
    future = torch.full([num_times, num_times], -1e9).triu(1)
    mixed = torch.softmax(scores + future, -1) @ value
    return model.dense(mixed.permute(0, 2, 1, 3).reshape(-1, dim), dim, f"{name}_out")


def _norm(model: TorchPeerModel, x: torch.Tensor, name: str) -> torch.Tensor:
    size = x.shape[1]
    scale, offset = model.value(f"{name}_scale", [size], 0.0) + 1.0, model.value(f"{name}_offset", [size], 0.0)
    return functional.layer_norm(x, [size], scale, offset)


_LOSSES: dict[str, Callable[[TorchPeerModel, Tensors], torch.Tensor]] = {
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
