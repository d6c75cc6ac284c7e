"""NumPy forms of the scripted models and of the plain rules, as oracles for a cluster's numbers.

The arithmetic inside is float64; parameters and gradients are float32, as on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

Values = dict[str, np.ndarray]
"""A value for each model variable, by name."""

LossAndGradient = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], tuple[float, Values]]
"""(parameters, batch) -> (mean loss over the batch, its gradient for each parameter)."""


class Trajectory(NamedTuple):
    """The behaviour of a rule under a script.

    Attributes:
        values: Parameters after each entry of the script.
        losses: Losses of each worker's steps, each before the step's update.
        staleness: Staleness of each worker's gradients.
    """

    values: list[Values]
    losses: list[list[float]]
    staleness: list[list[int]]


def linear(params: Mapping[str, np.ndarray], batch: Mapping[str, np.ndarray]) -> tuple[float, Values]:
    """Loss and gradient of `tests.testing.script.Linear`.

    Args:
        params: Arrays "kernel" [6, 4] and "bias" [4].
        batch: Arrays "x" [B, 6] and "label" [B].
    """
    loss, logits_gradient, features = _softmax_regression(params, batch["x"], batch["label"])
    return loss, _float32(kernel=features.T @ logits_gradient, bias=logits_gradient.sum(axis=0))


def embedded_linear(params: Mapping[str, np.ndarray], batch: Mapping[str, np.ndarray]) -> tuple[float, Values]:
    """Loss and gradient of `tests.testing.script.EmbeddedLinear`; the table's gradient is dense, [VOCAB_SIZE, D].

    Args:
        params: Arrays "table" [VOCAB_SIZE, D], "kernel" [D + 6, 4] and "bias" [4].
        batch: Arrays "ids" [B, 3], "x" [B, 6] and "label" [B].
    """
    table, ids = params["table"].astype(np.float64), batch["ids"]
    mean_rows = table[ids].mean(axis=1)
    loss, logits_gradient, features = _softmax_regression(
        params, np.concatenate([mean_rows, batch["x"]], axis=1), batch["label"]
    )
    rows_gradient = (logits_gradient @ params["kernel"].astype(np.float64).T)[:, : table.shape[1]] / ids.shape[1]
    table_gradient = np.zeros_like(table)
    np.add.at(table_gradient, ids, rows_gradient[:, None, :])  # an id that occurs twice counts twice
    return loss, _float32(
        table=table_gradient, kernel=features.T @ logits_gradient, bias=logits_gradient.sum(axis=0)
    )  # fmt: skip


def sgd(params: Mapping[str, np.ndarray], gradient: Mapping[str, np.ndarray], learning_rate: float) -> Values:
    """New arrays `params − learning_rate · gradient`; a parameter without a gradient keeps its value."""
    rate = np.float32(learning_rate)
    return {name: value - rate * gradient[name] if name in gradient else value for name, value in params.items()}


def mean(gradients: Sequence[Mapping[str, np.ndarray]]) -> Values:
    """The average of several gradients, which have the same names."""
    return _float32(**{name: np.mean([g[name] for g in gradients], axis=0, dtype=np.float64) for name in gradients[0]})


def async_sgd(
    loss_and_gradient: LossAndGradient,
    initial: Mapping[str, np.ndarray],
    script: Sequence[int],
    batch_of: Callable[[int, int], Mapping[str, np.ndarray]],
    learning_rate: float,
) -> Trajectory:
    """Update rule `async`, where every worker pulls right after its own apply.

    Args:
        loss_and_gradient: Function of the model, from parameters and batch.
        initial: Parameters that every worker pulls first.
        script: Worker of each step, in the order in which the ps tasks apply the gradients.
        batch_of: Function (worker, number of its step) -> batch.
        learning_rate: Learning rate of plain SGD.
    """
    num_workers = max(script) + 1
    params = dict(initial)
    pulled = [(0, params)] * num_workers
    trajectory = Trajectory([], [[] for _ in range(num_workers)], [[] for _ in range(num_workers)])
    for clock, worker in enumerate(script):
        pulled_at, seen = pulled[worker]
        loss, gradient = loss_and_gradient(seen, batch_of(worker, len(trajectory.losses[worker])))
        params = sgd(params, gradient, learning_rate)
        trajectory.values.append(params)
        trajectory.losses[worker].append(loss)
        trajectory.staleness[worker].append(clock - pulled_at)
        pulled[worker] = (clock + 1, params)
    return trajectory


def sync_sgd(
    loss_and_gradient: LossAndGradient,
    initial: Mapping[str, np.ndarray],
    num_workers: int,
    num_steps: int,
    batch_of: Callable[[int, int], Mapping[str, np.ndarray]],
    learning_rate: float,
) -> Trajectory:
    """Synchronous SGD by the average of all workers' gradients; `values` has one entry per update."""
    params = dict(initial)
    trajectory = Trajectory([], [[] for _ in range(num_workers)], [[0] * num_steps for _ in range(num_workers)])
    for step in range(num_steps):
        gradients = []
        for worker in range(num_workers):
            loss, gradient = loss_and_gradient(params, batch_of(worker, step))
            trajectory.losses[worker].append(loss)
            gradients.append(gradient)
        params = sgd(params, mean(gradients), learning_rate)
        trajectory.values.append(params)
    return trajectory


def _softmax_regression(
    params: Mapping[str, np.ndarray], features: np.ndarray, label: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Mean cross-entropy, its gradient with respect to the logits [B, N], and the features in float64."""
    features = features.astype(np.float64)
    logits = features @ params["kernel"].astype(np.float64) + params["bias"].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows = np.arange(len(label))
    loss = float(-np.log(probabilities[rows, label]).mean())
    probabilities[rows, label] -= 1.0
    return loss, probabilities / len(label), features


def _float32(**values: np.ndarray) -> Values:
    return {name: value.astype(np.float32) for name, value in values.items()}
