"""Slices of a test batch, each short enough that an evaluation can report, stop, or keep to its time between two."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

MAX_SECS = 5.0
"""Time in seconds that a slice takes at most, unless a single example takes longer."""

_GROWTH = 4


class BatchSlices:
    """Test batches, in slices if a whole one takes long, as with a large model that searches translations.

    Args:
        tensors: Placeholders of a batch.
        batch_size: Number of examples in a batch; the last one may be smaller.
    """

    def __init__(self, tensors: Sequence[tf.Tensor], batch_size: int):
        self._tensors = tensors
        self._batch_size = batch_size
        # A slice of a batch is a batch if the first axis of each tensor has any size. None = not measured.
        can_slice = all(tensor.shape.rank and tensor.shape[0] is None for tensor in tensors)
        self._size = None if can_slice else batch_size

    def feeds(
        self, read: Callable[[], Sequence[np.ndarray]], measure: Callable[[Mapping[tf.Tensor, np.ndarray]], Any]
    ) -> Iterator[Mapping[tf.Tensor, np.ndarray]]:
        """Yields what to feed for each slice, until `read` raises an error because no batch is left.

        Args:
            read: Function that returns the arrays of the next batch.
            measure: Function that evaluates a slice and forgets the result.
        """
        while True:
            arrays = read()
            if self._size is None:
                self._size = self._measured_size(arrays, measure)
            if self._size == self._batch_size:
                yield dict(zip(self._tensors, arrays, strict=True))
            else:
                yield from (self._slice(arrays, at, self._size) for at in range(0, len(arrays[0]), self._size))

    def _measured_size(
        self, arrays: Sequence[np.ndarray], measure: Callable[[Mapping[tf.Tensor, np.ndarray]], Any]
    ) -> int:
        num_examples = len(arrays[0])
        if any(len(array) != num_examples for array in arrays):
            return self._batch_size

        def secs_of(size: int) -> float:
            started = time.monotonic()
            measure(self._slice(arrays, 0, size))
            return time.monotonic() - started

        size = slice_size(num_examples, secs_of)
        return self._batch_size if size == num_examples else size

    def _slice(self, arrays: Sequence[np.ndarray], first: int, size: int) -> dict[tf.Tensor, np.ndarray]:
        return {tensor: array[first : first + size] for tensor, array in zip(self._tensors, arrays, strict=True)}


def slice_size(num_examples: int, secs_of: Callable[[int], float]) -> int:
    """Returns the number of examples in a slice: all of a batch, unless these take longer than `MAX_SECS`.

    Measures slices of 1, 4, 16, … examples until one takes a quarter of the limit, or all are sure to fit into it.

    Args:
        num_examples: Number of examples in a batch.
        secs_of: Function that evaluates this number of examples, and returns the time in seconds that it took.
    """
    secs_of(1)  # the first call takes longer, so it says nothing about the others
    size, secs = 1, secs_of(1)
    while size < num_examples and secs < MAX_SECS / _GROWTH:
        if secs * num_examples / size <= MAX_SECS:
            return num_examples
        size = min(_GROWTH * size, num_examples)
        secs = secs_of(size)
    return size
