"""How the rows of the skewed model are shared out among its variables; needs no TensorFlow."""

from __future__ import annotations

from ps_trainer.experiments.lab.sized_settings import DIM

ROW_BYTES = 4 * DIM


def variable_rows(num_rows: int, num_variables: int, largest_share: float) -> list[int]:
    """Rows of each variable, at least 1: the first one's share, the rest in parts as even as they can be.

    Args:
        num_rows: of all variables.
        num_variables: at least 2.
        largest_share: of the rows in the first variable, between 0 and 1.
    """
    num_others = num_variables - 1
    first = min(max(1, round(largest_share * num_rows)), num_rows - num_others)
    rest = num_rows - first
    return [first, *(rest * (i + 1) // num_others - rest * i // num_others for i in range(num_others))]
