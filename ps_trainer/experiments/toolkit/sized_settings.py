"""Sizes that the models without computation share with their runs; needs no TensorFlow."""

from __future__ import annotations

DIM = 64
"""Values in a row of a table."""

ROW_BYTES = 4 * DIM

TABLE_RATIO = 16
"""Rows of the large one of two tables over those of the small one."""


def variable_rows(num_rows: int, num_variables: int, largest_share: float) -> list[int]:
    """Returns the rows of 2 variables or more, at least 1 each: the first one's share, the rest as even as possible."""
    num_others = num_variables - 1
    first = min(max(1, round(largest_share * num_rows)), num_rows - num_others)
    rest = num_rows - first
    return [first, *(rest * (i + 1) // num_others - rest * i // num_others for i in range(num_others))]
