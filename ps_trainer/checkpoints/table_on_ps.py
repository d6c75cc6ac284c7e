"""`TableOnPs`: looks up rows of a large table on the ps tasks, beside the steps of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.store.extents import VariableSpec
from ps_trainer.store.pieces import Piece


class TableOnPs:
    """A table whose rows lie in contiguous blocks on the ps tasks; built in a worker's graph.

    Args:
        spec: The table.
        pieces: Its pieces, in order of their rows.

    Attributes:
        shape: Shape of the whole table.
    """

    def __init__(self, spec: VariableSpec, pieces: Sequence[Piece]):
        self.shape, self._dtype = spec.shape, spec.dtype
        num_rows = [int(piece.variable.shape[0]) for piece in pieces]
        self._first_rows = np.cumsum([0, *num_rows[:-1]])
        self._parts: list[tuple[tf.Tensor, tf.Tensor]] = []
        for piece in pieces:
            with tf.control_dependencies(None), tf.device(piece.variable.device):
                ids = tf.placeholder(tf.int64, [None])
                self._parts.append((ids, tf.gather(piece.variable, ids)))

    def take_rows(self, session: tf.Session, ids: np.ndarray) -> np.ndarray:
        """Returns current rows, read in one call.

        Args:
            session: Session on the graph.
            ids: Valid numbers of rows, int64 [n].

        Returns:
            [n, ...]

        Raises:
            tf.errors.OpError: A ps task is lost, or has not answered in time.
        """
        part_of = np.searchsorted(self._first_rows, ids, side="right") - 1
        places = {part: np.flatnonzero(part_of == part) for part in np.unique(part_of)}
        feeds = {self._parts[part][0]: ids[at] - self._first_rows[part] for part, at in places.items()}
        rows = session.run({part: self._parts[part][1] for part in places}, feeds)
        found = np.empty([len(ids), *self.shape[1:]], self._dtype)
        for part, at in places.items():
            found[at] = rows[part]
        return found


class TableRows(NamedTuple):
    """A table on the ps tasks, and a session that reads it."""

    table: TableOnPs
    session: tf.Session

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole table."""
        return self.table.shape

    def take_rows(self, ids: np.ndarray) -> np.ndarray:
        """Returns current rows, as `TableOnPs.take_rows` does."""
        return self.table.take_rows(self.session, ids)
