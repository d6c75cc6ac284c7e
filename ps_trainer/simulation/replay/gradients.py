"""Gradients in NumPy, and the sums and means that ps tasks make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

Values = dict[str, np.ndarray]
"""A value for each model variable, by name. Never changed in place: versions share what they have in common."""


class Rows(NamedTuple):
    """The gradient of an embedding table.

    Attributes:
        values: of rows, [num_rows, …].
        indices: which rows; one that is there twice counts twice; int64 [num_rows].
    """

    values: np.ndarray
    indices: np.ndarray


Gradient = Mapping[str, "np.ndarray | Rows"]
"""By variable; none of a variable that the loss does not depend on."""


def total(gradients: Sequence[Gradient]) -> Gradient:
    """The sum, added up in this order as ps tasks do; one gradient is its own sum."""
    first, *others = gradients
    if not others:
        return first
    return {name: _sum([gradient[name] for gradient in gradients]) for name in first}


def scaled(gradient: Gradient, factor: float) -> Gradient:
    """Factor · gradient."""
    return {name: _scaled(value, np.float32(factor)) for name, value in gradient.items()}


def mean(gradients: Sequence[Gradient]) -> Gradient:
    """The sum divided by the number of gradients; rows that few of them touch as well."""
    if len(gradients) == 1:
        return gradients[0]
    return scaled(total(gradients), 1.0 / len(gradients))


def moved(values: Mapping[str, np.ndarray], differences: Mapping[str, np.ndarray], factor: float = 1.0) -> Values:
    """Values + factor · differences; what has no difference stays."""
    scale = np.float32(factor)
    return {name: v + scale * differences[name] if name in differences else v for name, v in values.items()}


def difference(values: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> Values:
    """Values − others."""
    return {name: value - others[name] for name, value in values.items()}


def dense(gradient: Gradient) -> Values:
    """The gradient of a model without tables.

    Raises:
        ValueError: the gradient holds rows of a table.
    """
    values = {name: value for name, value in gradient.items() if not isinstance(value, Rows)}
    if len(values) < len(gradient):
        raise ValueError(
            f"{', '.join(sorted(gradient.keys() - values))}: rows of a table; this rule takes dense gradients"
        )
    return values


def _sum(values: Sequence[np.ndarray | Rows]) -> np.ndarray | Rows:
    if isinstance(values[0], Rows):
        return Rows(*(np.concatenate(parts) for parts in zip(*values, strict=True)))
    result = values[0] + values[1]
    for value in values[2:]:
        result += value
    return result


def _scaled(value: np.ndarray | Rows, factor: np.float32) -> np.ndarray | Rows:
    if isinstance(value, Rows):
        return Rows(value.values * factor.astype(value.values.dtype), value.indices)
    return value * factor.astype(value.dtype)
