"""Advice about features whose values are spread far from 1: training then diverges or hardly moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

LARGE, SMALL = 20.0, 0.01
"""Standard deviations above and below which a feature needs another learning rate than the rest of a model."""

_SAMPLE = 1000  # examples, spread evenly


def advice(deviations: Mapping[str, float], fix: str) -> str:
    """Returns a sentence about features with a large or small standard deviation; empty if there are none.

    Args:
        deviations: Standard deviation of each feature by its name; 0 for a constant one, which counts as no feature.
        fix: The action that helps, as the end of the sentence.
    """
    wrong = {name: value for name, value in deviations.items() if value > LARGE or 0 < value < SMALL}
    if not wrong:
        return ""
    name = max(wrong, key=lambda one: abs(math.log(wrong[one])))
    others = f", and {len(wrong) - 1} more," if len(wrong) > 1 else ""
    return (
        f"the values of {name}{others} are spread far from 1 (standard deviation {wrong[name]:.4g}), so training may"
        f" diverge or hardly move; {fix}"
    )


def of_arrays(arrays: Iterable[np.ndarray]) -> dict[str, float]:
    """Returns the largest standard deviation of a feature in each array of float features, by a name of the array."""
    found = {}
    for number, array in enumerate(arrays):
        if array.ndim > 1 and len(array) and array.dtype.kind == "f":
            rows = _sample(array)
            # Values that are not finite end the run with another error.
            with np.errstate(all="ignore"):
                found[f"array {number}"] = float(
                    np.nan_to_num(rows.std(axis=0, dtype=np.float64).max(initial=0), posinf=0)
                )
    return found


def _sample(array: np.ndarray | Sequence[float]) -> np.ndarray:
    rows = np.asarray(array[:: max(1, len(array) // _SAMPLE)])
    return rows.reshape(len(rows), -1)
