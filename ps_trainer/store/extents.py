"""Maps ranges of model variables to their places on the ps tasks: pure NumPy arithmetic.

Every layout flattens a model variable in row-major order, cuts it into contiguous ranges, and puts each range into some
variable on some ps task. An `Extent` is one such range. Initialising, restoring and saving all use `to_piece`,
`copy_into_model` and `from_pieces`, so a checkpoint never depends on the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

ALIGNMENT = 64
"""Multiple of bytes at which TensorFlow's tensors begin. It copies a part of a tensor that does not begin there, and a
fed array as well, which costs a save its own size once more."""


class VariableSpec(NamedTuple):
    """A variable as the model declares it.

    Attributes:
        name: Name in the model, without ":0".
        shape: Static shape.
        dtype: NumPy dtype.
        trainable: Whether gradients are taken with respect to it.
        is_table: Whether it is an embedding table. Only the rows of a batch leave the ps task.
        stage: Index of the model stage that it belongs to (`models.layers.stage`).
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    trainable: bool
    is_table: bool
    stage: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def num_bytes(self) -> int:
        """Size of its value in bytes."""
        return self.size * self.dtype.itemsize


class Extent(NamedTuple):
    """Elements `start` to `stop` of model variable `name`, which begin at `offset` in a ps variable (all flattened)."""

    name: str
    start: int
    stop: int
    offset: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.stop - self.start


def cut(specs: Sequence[VariableSpec], sizes: Sequence[int]) -> list[list[Extent]]:
    """Lays `specs` end to end and cuts the line into pieces of the given sizes.

    Args:
        specs: Variables, in the order in which they lie on the line.
        sizes: Number of elements of each piece; their sum is the number of elements of `specs`.

    Returns:
        The extents of each piece, in order.
    """
    pieces: list[list[Extent]] = []
    remaining = [(spec.name, 0, spec.size) for spec in reversed(specs) if spec.size]
    for size in sizes:
        extents, offset = [], 0
        while offset < size:
            name, start, stop = remaining.pop()
            taken = min(stop - start, size - offset)
            extents.append(Extent(name, start, start + taken, offset))
            offset += taken
            if start + taken < stop:
                remaining.append((name, start + taken, stop))
        pieces.append(extents)
    return pieces


def to_piece(extents: Sequence[Extent], shape: Sequence[int], values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the value of a ps variable of `shape`, given the values of the model's variables by name."""
    parts = [np.reshape(values[e.name], [-1])[e.start : e.stop] for e in extents]
    return np.reshape(parts[0] if len(parts) == 1 else np.concatenate(parts), shape)


def from_pieces(
    specs: Sequence[VariableSpec], pieces: Sequence[tuple[Sequence[Extent], np.ndarray]]
) -> dict[str, np.ndarray]:
    """Returns the values of the model's variables, given (extents, value) of the ps variables.

    Args:
        specs: The model's variables.
        pieces: Extents and value of each ps variable.

    Raises:
        ValueError: The extents do not cover every element of `specs` exactly once.
    """
    flat = allocate(specs, [extents for extents, _ in pieces])
    for extents, value in pieces:
        copy_into_model(flat, extents, value)
    return {spec.name: np.reshape(flat[spec.name], spec.shape) for spec in specs}


def allocate(
    specs: Sequence[VariableSpec],
    extents_of_pieces: Iterable[Sequence[Extent]],
    create: Callable[[VariableSpec], np.ndarray | None] = lambda spec: None,
) -> dict[str, np.ndarray]:
    """Returns a flat array for each of the model's variables, by name, which `copy_into_model` fills.

    Args:
        specs: The model's variables.
        extents_of_pieces: Extents of each ps variable.
        create: Creates the flat array of a variable; None = an array in memory.

    Raises:
        ValueError: The extents do not cover every element of `specs` exactly once.
    """
    covered: dict[str, list[tuple[int, int]]] = {spec.name: [] for spec in specs}
    for extents in extents_of_pieces:
        for extent in extents:
            covered[extent.name].append((extent.start, extent.stop))
    wrong = [spec.name for spec in specs if not _is_covered_once(covered[spec.name], spec.size)]
    if wrong:
        raise ValueError(f"the pieces do not cover these variables exactly once: {', '.join(wrong)}")
    created = {spec.name: create(spec) for spec in specs}
    return {spec.name: _empty(spec) if (array := created[spec.name]) is None else array for spec in specs}


def copy_into_model(
    flat: Mapping[str, np.ndarray], extents: Sequence[Extent], value: np.ndarray, first: int = 0
) -> None:
    """Copies a part of a ps variable into the model's variables.

    Args:
        flat: Flat values of the model's variables, by name.
        extents: Extents of the ps variable.
        value: Elements `first` and following of the ps variable.
        first: Index of the first element.
    """
    value = np.reshape(value, [-1])
    for extent in extents:
        start, stop = max(extent.offset, first), min(extent.offset + extent.size, first + value.size)
        if start < stop:
            start_in_model = extent.start - extent.offset
            flat[extent.name][start_in_model + start : start_in_model + stop] = value[start - first : stop - first]


def _empty(spec: VariableSpec) -> np.ndarray:
    """Returns a flat array with any content, so the caller must fill every element."""
    memory = np.empty([spec.num_bytes + ALIGNMENT], np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + spec.num_bytes].view(spec.dtype)


def _is_covered_once(ranges: Sequence[tuple[int, int]], size: int) -> bool:
    """Returns whether the sorted ranges go from 0 to `size` without a hole or an overlap."""
    reached = 0
    for start, stop in sorted(ranges):
        if start != reached:
            return False
        reached = stop
    return reached == size
