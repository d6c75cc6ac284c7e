"""`GradientSums`: adds up gradients on one ps task until an update takes the sums.

The sums are plain variables. Queues and accumulators cannot hold them, because taking something out of those may wait,
and nothing in an exclusive section may wait (`exclusive.py`). The pushed rows of a table are kept one after the other.
So the memory grows with the number of pushed rows, not with the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Piece
from ps_trainer.store.variables import create_variable

Value: TypeAlias = tf.Tensor | tf.IndexedSlices


class GradientSums:
    """The sums of the pieces of one ps task, in the run's container; call its methods in the exclusive section.

    Args:
        store: The created store.
        ps: Index of the ps task.
        pieces: Pieces on that ps.
        name: Prefix of the names of the rule's resources.

    Attributes:
        state: Variables that the chief initialises.
    """

    def __init__(self, store: ParameterStore, ps: int, pieces: Sequence[Piece], name: str):
        with tf.device(store.ps_device(ps)):
            self._parts = [(_Rows if piece.is_table else _Dense)(piece, name) for piece in pieces]
        self.state = [variable for part in self._parts for variable in part.state]

    def add(self, values: Sequence[Value], is_accepted: tf.Tensor) -> tf.Operation:
        """Adds a gradient of each piece if `is_accepted`, a bool scalar, is true."""

        def add() -> tf.Tensor:
            adds = [part.add(value) for part, value in zip(self._parts, values, strict=True)]
            with tf.control_dependencies(adds):
                return tf.constant(True)

        return tf.cond(is_accepted, add, lambda: tf.constant(False)).op

    def take(self, share: tf.Tensor) -> list[tuple[Piece, Value]]:
        """Returns the sums times `share` (float32 scalar), and sets the sums to zero."""
        return [(part.piece, part.take(share)) for part in self._parts]


class _Dense:
    def __init__(self, piece: Piece, name: str):
        self.piece = piece
        variable = piece.variable
        self._sum = create_variable(f"{name}/{variable.op.name}/sum", variable.shape, variable.dtype.base_dtype)
        self.state = [self._sum]

    def add(self, value: tf.Tensor) -> tf.Operation:
        return self._sum.assign_add(value, read_value=False)

    def take(self, share: tf.Tensor) -> tf.Tensor:
        total = self._sum.read_value()
        average = total * tf.cast(share, total.dtype)
        # Order: compute the average, clear the sum, return the average. An op that uses the average then runs after
        # the sum is cleared, within the section.
        with tf.control_dependencies([average]):
            cleared = self._sum.assign(tf.zeros_like(total), read_value=False)
        with tf.control_dependencies([cleared]):
            return tf.identity(average)


class _Rows:
    def __init__(self, piece: Piece, name: str):
        self.piece = piece
        row_shape = piece.variable.shape.as_list()[1:]
        self._no_indices = np.zeros([0], np.int64)
        self._no_values = np.zeros([0, *row_shape], piece.variable.dtype.base_dtype.as_numpy_dtype)
        name = f"{name}/{piece.variable.op.name}"
        self._indices = _create_list(f"{name}/indices", self._no_indices)
        self._values = _create_list(f"{name}/values", self._no_values)
        self.state = [self._indices, self._values]

    def add(self, value: tf.IndexedSlices) -> tf.Operation:
        indices = tf.concat([self._indices.read_value(), tf.cast(value.indices, tf.int64)], axis=0)
        values = tf.concat([self._values.read_value(), value.values], axis=0)
        return tf.group(self._indices.assign(indices, read_value=False), self._values.assign(values, read_value=False))

    def take(self, share: tf.Tensor) -> tf.IndexedSlices:
        indices, values = self._indices.read_value(), self._values.read_value()
        average = values * tf.cast(share, values.dtype)
        with tf.control_dependencies([indices, average]):
            cleared = [
                self._indices.assign(self._no_indices, read_value=False),
                self._values.assign(self._no_values, read_value=False),
            ]
        with tf.control_dependencies(cleared):
            shape = tf.constant(self.piece.variable.shape.as_list(), tf.int64)
            # Copies, so that an op that uses the rows runs after the lists are cleared, as with dense sums.
            return tf.IndexedSlices(tf.identity(average), tf.identity(indices), shape)


def _create_list(name: str, nothing: np.ndarray) -> tf.Variable:
    """Creates a variable whose number of rows may change."""
    with tf.name_scope(None):
        return tf.Variable(
            tf.constant(nothing),
            name=name,
            # Without it, TensorFlow takes the shape of the initial value for constant, and folds `tf.shape` of what is
            # read into 0 rows.
            shape=tf.TensorShape([None, *nothing.shape[1:]]),
            collections=[tf.GraphKeys.GLOBAL_VARIABLES],
            trainable=False,
            use_resource=True,
        )
