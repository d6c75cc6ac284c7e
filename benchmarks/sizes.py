"""The numbers that all contenders share. Imports no TensorFlow."""

from __future__ import annotations

from typing import NamedTuple

BATCH_SIZE = 32
# Small enough that thousands of steps on one batch do not explode, whatever the staleness.
LEARNING_RATE = 0.001


class Size(NamedTuple):
    """Size of a workload's model: `num_layers` dense layers of `width` x `width` with bias."""

    num_layers: int
    width: int


DEEP = Size(num_layers=40, width=64)  # 80 variables, 0.67 MB
WIDE = Size(num_layers=4, width=512)  # 8 variables, 4.2 MB

SIZES = {"deep": DEEP, "wide": WIDE}

# For update rules that train no model without an embedding table: `deep` with one.
TABLE_WORKLOAD = "deep_table"
RULE_SIZES = {**SIZES, TABLE_WORKLOAD: DEEP}
