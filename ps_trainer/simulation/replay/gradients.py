"""Gradients in NumPy, with the sums and means that ps tasks compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

Values = dict[str, np.ndarray]
"""Values of the model variables, by name. Nothing changes an array in place, since versions share equal arrays."""


class RowsGradient(NamedTuple):
    """Gradient of an embedding table.

    Attributes:
        values: [num_rows, …], gradients of rows.
        indices: int64 [num_rows], indices of these rows; the gradients of a repeated row add up.
    """

    values: np.ndarray
    indices: np.ndarray


Gradient = Mapping[str, "np.ndarray | RowsGradient"]
"""Gradients by variable, without the variables that the loss does not depend on."""


def total(gradients: Sequence[Gradient]) -> Gradient:
    """Sums up gradients in the given order, as ps tasks do."""
    first, *others = gradients
    if not others:
        return first
    return {name: _sum([gradient[name] for gradient in gradients]) for name in first}


def scaled_gradient(gradient: Gradient, factor: float) -> Gradient:
    """Computes factor · gradient."""
    return {name: _scale_part(value, np.float32(factor)) for name, value in gradient.items()}


def mean(gradients: Sequence[Gradient]) -> Gradient:
    """Divides the sum of gradients by their number, including rows that only some gradients have."""
    if len(gradients) == 1:
        return gradients[0]
    return scaled_gradient(total(gradients), 1.0 / len(gradients))


def move(values: Mapping[str, np.ndarray], differences: Mapping[str, np.ndarray], factor: float = 1.0) -> Values:
    """Computes values + factor · differences; values without a difference stay the same."""
    scale = np.float32(factor)
    return {name: v + scale * differences[name] if name in differences else v for name, v in values.items()}


def difference(values: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> Values:
    """Computes values − others."""
    return {name: value - others[name] for name, value in values.items()}


def dense(gradient: Gradient) -> Values:
    """Returns the gradient of a model without tables as `Values`.

    Raises:
        ValueError: The gradient has rows of a table.
    """
    values = {name: value for name, value in gradient.items() if not isinstance(value, RowsGradient)}
    if len(values) < len(gradient):
        raise ValueError(
            f"{', '.join(sorted(gradient.keys() - values))}: rows of a table; this rule needs dense gradients"
        )
    return values


def _sum(values: Sequence[np.ndarray | RowsGradient]) -> np.ndarray | RowsGradient:
    if isinstance(values[0], RowsGradient):
        return RowsGradient(*(np.concatenate(parts) for parts in zip(*values, strict=True)))
    # A new array, so that the sums in place below change no gradient that another step still needs.
    result = values[0] + values[1]
    for value in values[2:]:
        result += value
    return result


def _scale_part(value: np.ndarray | RowsGradient, factor: np.float32) -> np.ndarray | RowsGradient:
    if isinstance(value, RowsGradient):
        return RowsGradient(value.values * factor.astype(value.values.dtype), value.indices)
    return value * factor.astype(value.dtype)
