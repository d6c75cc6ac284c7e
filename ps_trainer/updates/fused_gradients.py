"""`FusedGradients`: many gradients concatenated to few long vectors, so that each needs only one collective op."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf


class FusedGradients:
    """The gradients of one worker, end to end, followed by a one-hot vector that names the worker.

    Each dtype has its own vectors. The sum of such vectors names the workers whose gradients are in the sum.

    Args:
        values: Dense gradients with static shapes, on the worker.
        worker_index: Index of this worker.
        num_workers: Number of workers whose vectors are added up.
        max_bytes: Size of the largest vector; a longer one is cut into even parts.

    Attributes:
        vectors: The vectors, in the device scope of the call.
        dtypes: Dtype of each vector.
        sizes: Number of elements of each vector.
    """

    def __init__(self, values: Sequence[tf.Tensor], worker_index: int, num_workers: int, max_bytes: int):
        self._num_workers = num_workers
        self._shapes = [value.shape.as_list() for value in values]
        self._dtypes = [value.dtype.base_dtype for value in values]
        # The one-hot vector goes with the first dtype.
        # A model whose parameters are all tables has no dense gradient, but the turn still has to name its givers.
        self._groups = list(dict.fromkeys(self._dtypes)) or [tf.float32]
        self._cuts: list[list[int]] = []
        self.vectors: list[tf.Tensor] = []
        for number, dtype in enumerate(self._groups):
            flat = [
                tf.reshape(v, [-1]) for v, value_dtype in zip(values, self._dtypes, strict=True) if value_dtype == dtype
            ]
            flat += [tf.one_hot(worker_index, num_workers, dtype=dtype)] if number == 0 else []
            whole = tf.concat(flat, axis=0)
            self._cuts.append(_even_parts(whole.shape.num_elements(), max(1, max_bytes // dtype.size)))
            self.vectors += tf.split(whole, self._cuts[-1]) if len(self._cuts[-1]) > 1 else [whole]
        self.dtypes = [vector.dtype for vector in self.vectors]
        self.sizes = [vector.shape.num_elements() for vector in self.vectors]

    @property
    def num_bytes(self) -> int:
        """Size of all vectors in bytes."""
        return sum(size * dtype.size for size, dtype in zip(self.sizes, self.dtypes, strict=True))

    def split(self, vectors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Splits sums of `vectors` into int64 [num_workers], 1 for each worker in the sums, and the gradients' sums."""
        left = list(vectors)
        found: dict[int, tf.Tensor] = {}
        for number, (dtype, cuts) in enumerate(zip(self._groups, self._cuts, strict=True)):
            parts, left = left[: len(cuts)], left[len(cuts) :]
            members = [i for i, own in enumerate(self._dtypes) if own == dtype]
            sizes = [tf.TensorShape(self._shapes[i]).num_elements() for i in members]
            sizes += [self._num_workers] if number == 0 else []
            values = tf.split(tf.concat(parts, axis=0) if len(parts) > 1 else parts[0], sizes)
            if number == 0:
                givers = tf.cast(tf.round(values.pop()), tf.int64)
            found |= {i: tf.reshape(value, self._shapes[i]) for i, value in zip(members, values, strict=True)}
        return givers, [found[i] for i in range(len(self._shapes))]


def _even_parts(size: int, max_size: int) -> list[int]:
    count = -(-size // max_size)
    # Even parts: a short last vector would take as many rounds around the ring as a full one.
    return [size * (i + 1) // count - size * i // count for i in range(count)]
