"""What the packing transforms share: sizes that the graph does not know, one factor per model variable."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import static_size


def size_of(values: tf.Tensor) -> tuple[int | None, tuple[tf.Tensor, ...]]:
    """The size of a vector where the graph knows it, and otherwise what to send so that the ps knows it."""
    size = static_size(values)
    return size, () if size is not None else (tf.reshape(tf.size(values), [1]),)


def scaled(parts: Sequence[tf.Tensor], scales: tf.Tensor) -> tf.Tensor:
    """Part i times scale i, as one vector."""
    return joined([part * scales[i] for i, part in enumerate(parts)])


def joined(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Vectors end to end."""
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)
