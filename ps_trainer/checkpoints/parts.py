"""Cuts the content of a checkpoint into data files: large tensors by rows, so that none lies in memory as a whole.

The first data file holds all tensors up to `PART_BYTES` as a whole. Each further one holds some rows of a larger
tensor, as TensorFlow saves the parts of a partitioned variable. TensorFlow's readers put them together again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

PART_BYTES = 128 * 2**20


class Slice(NamedTuple):
    """A tensor, or some rows of one.

    Attributes:
        name: Name of the tensor.
        spec: TensorFlow's text for the rows; "" for the whole tensor.
        value: The values.
    """

    name: str
    spec: str
    value: np.ndarray


def divide(values: Mapping[str, np.ndarray]) -> list[list[Slice]]:
    """Returns the content of each data file of a checkpoint."""
    arrays = {name: np.asarray(values[name]) for name in sorted(values)}
    large = {name: array for name, array in arrays.items() if array.ndim and array.nbytes > PART_BYTES}
    first = [Slice(name, "", array) for name, array in arrays.items() if name not in large]
    parts = [
        [Slice(name, slice_spec(array.shape, start, stop), array[start:stop])]
        for name, array in large.items()
        for start, stop in row_ranges(array.shape, array.itemsize)
    ]
    return [first, *parts] if first or not parts else parts


def count(shapes: Mapping[str, Sequence[int]], itemsizes: Mapping[str, int]) -> int:
    """Returns the number of data files of a checkpoint with tensors of these shapes, by name."""
    large = [name for name, shape in shapes.items() if shape and _num_bytes(shape, itemsizes[name]) > PART_BYTES]
    num_parts = sum(len(list(row_ranges(shapes[name], itemsizes[name]))) for name in large)
    return num_parts + (len(large) < len(shapes) or not large)


def row_ranges(shape: Sequence[int], itemsize: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges of rows, (start, stop), into which a tensor above `PART_BYTES` is cut."""
    rows = max(1, PART_BYTES // _num_bytes(shape[1:], itemsize))
    for start in range(0, shape[0], rows):
        yield start, min(start + rows, shape[0])


def slice_spec(shape: Sequence[int], start: int, stop: int) -> str:
    """Returns TensorFlow's text for rows `start` to `stop` of a tensor: "10 4 2,3:-" for rows 2 to 4 of [10, 4]."""
    return f"{' '.join(map(str, shape))} {':'.join([f'{start},{stop - start}', *('-' for _ in shape[1:])])}"


def _num_bytes(shape: Sequence[int], itemsize: int) -> int:
    return itemsize * int(np.prod(shape, dtype=np.int64))
