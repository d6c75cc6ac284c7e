"""`EvaluationSums`: sums over the batches of an evaluation, from which the test metrics are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class EvaluationSums:
    """Sums over the batches of an evaluation.

    Args:
        metric_names: Names of the metrics whose means over the examples are computed.
        pooled: The model's metrics that are computed from all examples together.

    Attributes:
        num_examples: Number of examples.
        loss: Sum of the losses of the batches, each multiplied by its weight.
        weight: Sum of the weights.
        totals: Sum of each metric over the examples.
        collected: Arrays of each pooled metric, for each batch.
        streamed: Values of `tf.metrics`.
    """

    def __init__(self, metric_names: Sequence[str], pooled: Mapping[str, Any]):
        self._pooled = pooled
        self.totals = dict.fromkeys(metric_names, 0.0)
        self.collected: list[Mapping[str, Sequence[np.ndarray]]] = []
        self.loss = self.weight = 0.0
        self.num_examples = 0
        self.streamed: dict[str, float] = {}

    def add(self, size: Any, loss: Any, weight: Any, sums: Mapping[str, Any], parts: dict[str, list[Any]]) -> None:
        """Adds a batch."""
        self.collected.append(parts)
        self.num_examples += int(size)
        self.loss += float(loss) * float(weight)
        self.weight += float(weight)
        for name, value in sums.items():
            self.totals[name] += float(value)

    def add_sums(self, other: EvaluationSums) -> None:
        """Adds the sums over other batches."""
        self.collected += other.collected
        self.num_examples += other.num_examples
        self.loss += other.loss
        self.weight += other.weight
        for name, value in other.totals.items():
            self.totals[name] += value

    def take_result(
        self,
        *,
        num_examples: int,
        loss: float,
        weight: float,
        totals: Mapping[str, float],
        collected: Mapping[str, Sequence[np.ndarray]],
    ) -> None:
        """Takes over sums that another task has computed; the arguments are like the attributes.

        Raises:
            ValueError: They are not the sums of this model.
        """
        expected = {name: len(metric.tensors) for name, metric in self._pooled.items()}
        has_arrays = {name: len(arrays) for name, arrays in collected.items()} == expected
        # Of a scalar it is (), which has no number of examples.
        lengths = {array.shape[:1] for arrays in collected.values() for array in arrays}
        if totals.keys() != self.totals.keys() or not has_arrays or not lengths <= {(num_examples,)}:
            raise ValueError("it has other metrics than this model, or another number of examples")
        self.num_examples, self.loss, self.weight = num_examples, loss, weight
        self.totals, self.collected = dict(totals), [collected]

    def pooled_arrays(self) -> dict[str, list[np.ndarray]]:
        """Returns the arrays of each pooled metric, of all examples."""
        batches = {name: [batch[name] for batch in self.collected] for name in self._pooled}
        return {name: [np.concatenate(parts) for parts in zip(*found, strict=True)] for name, found in batches.items()}

    def num_pooled_bytes(self) -> int:
        """Returns the size of all arrays of pooled metrics."""
        return sum(array.nbytes for batch in self.collected for arrays in batch.values() for array in arrays)

    def metrics(self) -> dict[str, float]:
        """Returns the loss and all metrics by name."""
        means = {name: total / self.num_examples for name, total in self.totals.items()}
        arrays = self.pooled_arrays()
        pooled = {name: float(metric.compute(*arrays[name])) for name, metric in self._pooled.items()}
        return {"loss": self.loss / self.weight} | means | pooled | self.streamed
