"""The values that a parameter store passes around: pieces on ps tasks, their gradients, and snapshots of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.extents import Extent


class Piece(NamedTuple):
    """A variable on a ps task, and the parts of the model that it holds.

    Attributes:
        variable: Resource variable on ps task `ps`.
        ps: Index of the ps task.
        extents: Ranges of model variables that the variable holds.
        pulled: The worker's copy, of the same shape; gradients are taken with respect to it. For an embedding table it
            is the variable itself, from which a worker only gathers rows. None for an untrained variable.
        trainable: Whether updates change it.
        is_table: Whether it is an embedding table, or a partition of one.
        device: Device to which it is pulled and on which its gradient is computed. For a table, the worker's device.
        replica: This worker's own copy of a trainable dense variable, if the update rule keeps one.
    """

    variable: tf.Variable
    ps: int
    extents: tuple[Extent, ...]
    pulled: Any
    trainable: bool = True
    is_table: bool = False
    device: str = ""
    replica: tf.Variable | None = None

    @property
    def own_replica(self) -> tf.Variable:
        """The replica of a piece that has one.

        Raises:
            ValueError: The update rule keeps no replica of this piece.
        """
        if self.replica is None:
            raise ValueError(f"{self.variable.op.name} has no replica on the worker")
        return self.replica


class DensePart(NamedTuple):
    """A dense variable on ps task `ps`, as a layout creates it, and the ranges of model variables in it."""

    variable: tf.Variable
    ps: int
    extents: Sequence[Extent]


class Gradient(NamedTuple):
    """The gradient of one piece: a tensor of the piece's shape, or IndexedSlices of a table's rows."""

    piece: Piece
    value: tf.Tensor | tf.IndexedSlices


class Snapshot(NamedTuple):
    """The clocks and dense parameters of the ps tasks; each ps task is read at its own moment.

    Attributes:
        clocks: For each ps task its clock before the read, int64 scalar on that ps.
        values: For each trainable dense piece its value on the ps, in the type in which it travels.
    """

    clocks: list[tf.Tensor]
    values: list[tuple[Piece, tf.Tensor]]
