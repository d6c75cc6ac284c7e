"""`PushCounts`: how many pushes of each worker are in the run's state; counted on ps task 0, saved with the parameters.

What a worker alone knows (a residual) belongs to a number of its own pushes: older, it would be sent twice, and newer,
what was sent since would be lost. So both say that number: the worker's file, and the state on the ps tasks.

A worker must know at which of its pushes the chief has saved. So ps task 0 counts the pushes since the last save as
well: one op adds a push to both counts, and one op with which a save begins sets the second to 0. Whichever comes
first, the difference of the two counts is the number of pushes at the last save, and the worker's step brings it along.
"""

from __future__ import annotations

import functools
import secrets
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints.stored_state import Count
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.base import RELEASED, Phase

PUSHES = "worker_state/pushes"
_MAX_LINEAGE = 2**62
_ALL, _SINCE_SAVE = 0, 1  # rows of the variable


class Mark(NamedTuple):
    """Where a run is, for one worker.

    Attributes:
        lineage: a number drawn where counting began, so that other runs' counts are not taken for this one's; from 1.
        pushes: of this worker that are in the parameters.
    """

    lineage: int
    pushes: int


class PushCounts:
    """The counts, in one worker's graph.

    Args:
        num_workers: that train.
        worker_index: of this one.
        ps_device: of ps task 0.
        is_in_lockstep: whether all workers take part in each update, by an exchange: then global_step counts for each.

    Attributes:
        is_in_lockstep: as given.
        count: for `StoredState`: int64 [1 + num_workers], the lineage and each worker's pushes. To read it marks a
            save.
    """

    def __init__(self, num_workers: int, worker_index: int, ps_device: str, *, is_in_lockstep: bool):
        self._place = 1 + worker_index
        self.is_in_lockstep = is_in_lockstep
        with tf.device(ps_device):
            self._variable = create_variable(PUSHES, [2, 1 + num_workers], tf.int64)
            self._read = self._variable.read_value()[_ALL]
            self._own = tf.gather(self._read, [0, self._place])
            mark_op = self._variable.scatter_nd_update([[_SINCE_SAVE]], tf.zeros([1, 1 + num_workers], tf.int64)).op
            with tf.control_dependencies([mark_op]):
                saved = _pushes_at_save(self._variable.read_value())
        self.count = Count(self._variable, functools.partial(_adapt, num_workers), saved)

    def build(self, phase: Phase) -> list[tf.Tensor]:
        """Counts a phase's push, when ps task 0 has it in its parameters.

        Returns:
            int64 [2] on ps task 0: this worker's pushes with this one, and at the last save. To be fetched there: an
            edge to the worker would be a message. Nothing for a phase that pushes nothing.
        """
        if phase.pushed is None or self.is_in_lockstep:
            return []
        with tf.device(self._variable.device):
            amount = tf.cast(tf.not_equal(phase.pushed, RELEASED), tf.int64)
            places = [[_ALL, self._place], [_SINCE_SAVE, self._place]]
            count_op = self._variable.scatter_nd_add(places, tf.fill([2], amount)).op
            with tf.control_dependencies([count_op]):
                own = self._variable.read_value()[:, self._place]
            return [tf.stack([own[_ALL], _pushes_at_save(own)])]

    def begin(self, session: tf.Session) -> None:
        """Called by the chief before any worker joins: draws a lineage where counting begins anew."""
        counts = session.run(self._read)
        if not counts[0]:
            counts[0] = 1 + secrets.randbelow(_MAX_LINEAGE)
            session.run(self._variable.initializer, {self._variable.initializer.inputs[1]: _just_saved(counts)})

    def mark(self, session: tf.Session, global_step: int) -> Mark:
        """Where the run is now; `global_step` as this worker knows it."""
        lineage, pushes = session.run(self._own)
        return Mark(int(lineage), self.now(int(pushes), global_step))

    def now(self, pushes: int, global_step: int) -> int:
        """To how many pushes a state between two steps belongs: this worker's, or in lockstep `global_step`."""
        return int(global_step) if self.is_in_lockstep else pushes


def _pushes_at_save(counts: tf.Tensor) -> tf.Tensor:
    return counts[_ALL] - counts[_SINCE_SAVE]


def _adapt(num_workers: int, saved: np.ndarray | None) -> np.ndarray:
    """See `Count.adapt`: with another number of workers, or where an older version saved, counting begins anew."""
    if saved is None or len(saved) != 1 + num_workers:
        saved = np.zeros([1 + num_workers], np.int64)
    return _just_saved(saved)


def _just_saved(counts: np.ndarray) -> np.ndarray:
    """The variable's value when no push was made since a save with these counts."""
    return np.stack([counts, np.zeros_like(counts)])
