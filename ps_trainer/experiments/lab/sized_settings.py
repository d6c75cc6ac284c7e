"""Constants of the experiment on the null step that its runs, its models and its analysis share."""

from __future__ import annotations

import enum

DIM = 64
"""Values in a row of a table."""

ROWS_PER_STEP = 32
"""Rows of a table that a worker's step pulls and pushes, as in the source."""

LEARNING_RATE = 0.001

MEGABYTE = 1_000_000

PAPER_PS = 16
"""ps tasks of the source."""


class Curve(str, enum.Enum):
    """Curves of the source's figure, and what is measured for the prediction."""

    SCALAR = "scalar"  # one float32 value on each ps task
    DENSE = "dense"  # all parameters, both ways
    SPARSE = "sparse"  # a few rows of a table
    GOODPUT = "goodput"  # no training: plain transfers over a shaped link
