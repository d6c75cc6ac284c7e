"""Settings that the models without computation share with their runs; needs no TensorFlow."""

from __future__ import annotations

from ps_trainer.experiments.harness.labels import Label

DIM = 64
"""Values in a row of a table."""

ROW_BYTES = 4 * DIM

ROWS_PER_STEP = 32
"""Rows of a table that a worker's step pulls and pushes, as in the source."""

LEARNING_RATE = 0.001

MEGABYTE = 1_000_000

PAPER_PS = 16
"""ps tasks of the source."""


class Curve(Label):
    """Curves of the source's figure, and the measurement for the prediction."""

    SCALAR = "scalar"  # one float32 value on each ps task
    DENSE = "dense"  # all parameters, both ways
    SPARSE = "sparse"  # a few rows of a table
    GOODPUT = "goodput"  # no training: plain transfers over a shaped link


PAPER_STEP_SECS = {
    (Curve.SCALAR, 0): {1: 0.0018, 100: 0.0088},
    (Curve.DENSE, 100): {1: 0.147, 100: 0.613},
    (Curve.DENSE, 1000): {1: 1.01, 100: 7.16},
    (Curve.SPARSE, 1000): {1: 0.005, 100: 0.020},
}
"""Median step of the source by curve, MB of parameters and number of workers, in seconds."""

PAPER_BYTES_PER_SEC = 10e9 / 8 * 1448 / 1514
"""Bytes per second of TCP over 10 Gbit/s; we assume this network card because the source's numbers fit it."""


def variable_rows(num_rows: int, num_variables: int, largest_share: float) -> list[int]:
    """Returns the rows of 2 variables or more, at least 1 each: the first one's share, the rest as even as possible."""
    num_others = num_variables - 1
    first = min(max(1, round(largest_share * num_rows)), num_rows - num_others)
    rest = num_rows - first
    return [first, *(rest * (i + 1) // num_others - rest * i // num_others for i in range(num_others))]
