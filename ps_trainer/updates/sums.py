"""`Sums`: gradients added up on one ps task until an update takes them.

Dense ones in a `tf.ConditionalAccumulator` per piece, rows of a table in a queue: what is kept grows with the
rows that were pushed, not with the table. (A `tf.SparseConditionalAccumulator` is a reference, which no
conditional can take from.)
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore, Piece

Value = tf.Tensor | tf.IndexedSlices

_ACCEPTED, _REFUSED = 2**60, -1  # stamps by which an accumulator, which starts at step 0, takes or drops a gradient


class Sums:
    """The sums of the pieces of one ps task, in the run's container; call its methods in the exclusive section.

    Args:
        store: the created store.
        ps: the ps task.
        pieces: on that ps.
        name: of the rule's resources.
    """

    def __init__(self, store: ParameterStore, ps: int, pieces: Sequence[Piece], name: str):
        with tf.device(store.ps_device(ps)):
            self._parts = [(_Rows if piece.is_table else _Dense)(piece, name) for piece in pieces]

    def add(self, values: Sequence[Value], is_accepted: tf.Tensor) -> tf.Operation:
        """Adds a gradient of each piece, if `is_accepted` (bool scalar)."""
        return tf.group(*(part.add(value, is_accepted) for part, value in zip(self._parts, values, strict=True)))

    def take(self, share: tf.Tensor) -> list[tuple[Piece, Value]]:
        """Takes the sums times `share` (float32 scalar); the next ones start at zero. At least one was added."""
        return [(part.piece, part.take(share)) for part in self._parts]


class _Dense:
    def __init__(self, piece: Piece, name: str):
        self.piece = piece
        self._accumulator = tf.ConditionalAccumulator(
            piece.variable.dtype.base_dtype,
            shape=piece.variable.shape,
            shared_name=f"{name}/{piece.variable.op.name}",
            reduction_type="SUM",
        )

    def add(self, value: tf.Tensor, is_accepted: tf.Tensor) -> tf.Operation:
        stamp = tf.where(is_accepted, tf.constant(_ACCEPTED, tf.int64), tf.constant(_REFUSED, tf.int64))
        return self._accumulator.apply_grad(value, local_step=stamp)

    def take(self, share: tf.Tensor) -> tf.Tensor:
        total = self._accumulator.take_grad(1)
        return total * tf.cast(share, total.dtype)


class _Rows:
    """One queue element per gradient. The queue pads all to the longest: indices are kept plus 1, and 0 is padding."""

    def __init__(self, piece: Piece, name: str):
        self.piece = piece
        self._row_shape = piece.variable.shape.as_list()[1:]
        self._queue = tf.PaddingFIFOQueue(
            2**31 - 1,
            [tf.int64, piece.variable.dtype.base_dtype],
            shapes=[[None], [None, *self._row_shape]],
            shared_name=f"{name}/{piece.variable.op.name}",
        )

    def add(self, value: tf.IndexedSlices, is_accepted: tf.Tensor) -> tf.Operation:
        # A row of padding, as the queue hangs on an element without rows.
        indices = tf.concat([tf.cast(value.indices, tf.int64) + 1, tf.zeros([1], tf.int64)], axis=0)
        values = tf.concat([value.values, tf.zeros([1, *self._row_shape], value.values.dtype)], axis=0)
        count = tf.cast(is_accepted, tf.int32)
        return self._queue.enqueue_many(
            [tf.tile(indices[None], [count, 1]), tf.tile(values[None], [count] + [1] * len(values.shape))]
        )

    def take(self, share: tf.Tensor) -> tf.IndexedSlices:
        indices, values = self._queue.dequeue_many(self._queue.size())
        is_row = indices > 0
        values = tf.boolean_mask(values, is_row)
        return tf.IndexedSlices(
            values * tf.cast(share, values.dtype),
            tf.boolean_mask(indices, is_row) - 1,
            tf.constant(self.piece.variable.shape.as_list(), tf.int64),
        )
