"""`LargeTable`: sets a large table on a ps task in pieces, so that the chief never holds it as a whole."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.store import initial_rows, undo_log
from ps_trainer.store.pieces import Piece

_MESSAGE_BYTES = 16 * 2**20


class LargeTable:
    """Ops that set a table, or one of its slots, on a ps task; built in the chief's graph.

    Args:
        variable: Variable of the table, or of the slot.
        first_row: Row of the whole table with which the variable begins.
        initial: Initial value of the whole table in another graph; None for a slot.

    Attributes:
        initial_op: Op by which the ps task makes the variable's initial value; None if it cannot.
    """

    def __init__(self, variable: tf.Variable, first_row: int, initial: tf.Tensor | None):
        self._variable = variable
        self._first_row = first_row
        num_rows = int(variable.shape[0])
        with tf.control_dependencies(None), tf.device(variable.device):
            with tf.device("/device:CPU:0"):  # as the whole value; other kernels may give other bits
                rows = None if initial is None else initial_rows.build(initial, first_row, first_row + num_rows)
            self.initial_op: tf.Operation | None = (
                None if rows is None else tf.raw_ops.AssignVariableOp(resource=variable.handle, value=rows)
            )
            self._start = tf.placeholder(tf.int64, [])
            self._rows = tf.placeholder(variable.dtype.base_dtype, [None, *variable.shape[1:]])
            self._set_op = tf.raw_ops.ResourceScatterUpdate(
                resource=variable.handle,
                indices=tf.range(self._start, self._start + tf.shape(self._rows, out_type=tf.int64)[0]),
                updates=self._rows,
            )

    def load(self, session: tf.Session, name: str, checkpoint: Checkpoint) -> None:
        """Sets the variable from a checkpoint.

        Args:
            session: Session on the graph.
            name: Name of the whole table, or of the whole slot.
            checkpoint: The checkpoint.
        """
        session.run(self._variable.initializer)  # zeros, or the optimizer's initial value: the memory for the rows
        num_rows = int(self._variable.shape[0])
        step = max(1, _MESSAGE_BYTES * num_rows // num_bytes(self._variable))
        for first, rows in checkpoint.chunks(name, self._first_row, self._first_row + num_rows):
            for offset in range(0, len(rows), step):
                start = first - self._first_row + offset
                session.run(self._set_op, {self._start: start, self._rows: rows[offset : offset + step]})


def build(piece: Piece, variable: tf.Variable, initial: tf.Tensor | None) -> LargeTable | None:
    """Builds the ops for a table or a slot of it; None for other variables and for small tables.

    Args:
        piece: The table.
        variable: Its variable, or that of a slot.
        initial: Initial value of the whole table in another graph; None for a slot, or if it is not known.
    """
    if not piece.is_table or num_bytes(variable) < undo_log.LARGE_BYTES or variable.shape != piece.variable.shape:
        return None
    (extent,) = piece.extents  # a table never shares its variable with another one
    return LargeTable(variable, extent.start // (extent.size // int(variable.shape[0])), initial)


def num_bytes(variable: tf.Variable) -> int:
    """Returns the size of a variable's value in bytes."""
    return int(variable.shape.num_elements() * variable.dtype.size)
