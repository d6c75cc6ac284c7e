"""Functions that packing transforms share: sizes that are not static, and one factor per model variable."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import static_size


def size_of(values: tf.Tensor) -> tuple[int | None, tuple[tf.Tensor, ...]]:
    """Returns the static size of a vector and (), or None and a vector with the size, which must be sent to the ps."""
    size = static_size(values)
    return size, () if size is not None else (tf.reshape(tf.size(values), [1]),)


def scale_and_concatenate(parts: Sequence[tf.Tensor], scales: tf.Tensor) -> tf.Tensor:
    """Concatenates part i times scale i to one vector."""
    return concatenate_vectors([part * scales[i] for i, part in enumerate(parts)])


def concatenate_vectors(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Concatenates vectors."""
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)
