"""`PushCounts`: the number of pushes of each worker that are in the run's state.

Ps task 0 counts the pushes, and a checkpoint holds the counts. A worker's own state (a residual) belongs to a certain
number of its pushes. With an older state the worker would send a part of its gradients twice; with a newer state, what
it sent since would be lost. So the worker's file and the state on the ps tasks both hold that number.

A worker must know at which of its pushes the chief saved. So ps task 0 also counts the pushes since the last save. One
op adds a push to both counts, and the op that begins a save sets the second count to 0. Whichever op comes first, the
difference of the two counts is the number of pushes at the last save. The worker's step fetches both counts.
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
_ALL, _SINCE_SAVE = 0, 1  # rows of one variable, so that one op changes both and no save falls in between


class PushMark(NamedTuple):
    """A moment of a run, from the view of one worker.

    Attributes:
        lineage: Random number, 1 or more, drawn when the counts began, so that counts of another run are recognised.
        pushes: Number of pushes of this worker that are in the parameters.
    """

    lineage: int
    pushes: int


class PushCounts:
    """The counts, in one worker's graph.

    Args:
        num_workers: Number of workers that train.
        worker_index: Index of this worker.
        ps_device: Device of ps task 0.
        is_in_lockstep: Whether all workers take part in each update, by an exchange. Then global_step is the count of
            every worker.

    Attributes:
        is_in_lockstep: The argument of this name.
        count: Count for `StoredState`, int64 [1 + num_workers]: the lineage and each worker's pushes. Reading it marks
            a save.
    """

    def __init__(self, num_workers: int, worker_index: int, ps_device: str, *, is_in_lockstep: bool):
        self._place = 1 + worker_index
        self.is_in_lockstep = is_in_lockstep
        with tf.device(ps_device):
            self._variable = create_variable(PUSHES, [2, 1 + num_workers], tf.int64)
            self._read = self._variable.read_value()[_ALL]
            # Two numbers travel to the worker, not the counts of all workers.
            self._own = tf.gather(self._read, [0, self._place])
            mark_op = self._variable.scatter_nd_update([[_SINCE_SAVE]], tf.zeros([1, 1 + num_workers], tf.int64)).op
            # A push between the mark and the read adds to both rows, so their difference stays the count at the mark.
            with tf.control_dependencies([mark_op]):
                saved = _pushes_at_save(self._variable.read_value())
        self.count = Count(self._variable, functools.partial(_adapt, num_workers), saved)

    def build(self, phase: Phase) -> list[tf.Tensor]:
        """Builds the count of a phase's push, which happens when the push is in the parameters of ps task 0.

        Returns:
            int64 [2] on ps task 0: the number of this worker's pushes, this one included, and the number at the last
            save. Empty for a phase that pushes nothing.
        """
        if phase.pushed is None or self.is_in_lockstep:
            return []
        with tf.device(self._variable.device):
            # Not `!=`: in a plain graph it compares Python objects and is always True.
            amount = tf.cast(tf.not_equal(phase.pushed, RELEASED), tf.int64)
            indices = [[_ALL, self._place], [_SINCE_SAVE, self._place]]
            count_op = self._variable.scatter_nd_add(indices, tf.fill([2], amount)).op
            with tf.control_dependencies([count_op]):
                own_counts = self._variable.read_value()[:, self._place]
            return [tf.stack([own_counts[_ALL], _pushes_at_save(own_counts)])]

    def begin(self, session: tf.Session) -> None:
        """Draws a lineage if the counts begin at 0. The chief calls this before any worker joins."""
        counts = session.run(self._read)
        if not counts[0]:
            counts[0] = 1 + secrets.randbelow(_MAX_LINEAGE)
            session.run(self._variable.initializer, {self._variable.initializer.inputs[1]: _just_saved(counts)})

    def mark(self, session: tf.Session, global_step: int) -> PushMark:
        """Reads the current moment of the run; `global_step` is the last value that this worker saw."""
        lineage, pushes = session.run(self._own)
        return PushMark(int(lineage), self.now(int(pushes), global_step))

    def now(self, pushes: int, global_step: int) -> int:
        """Returns the number of pushes to which a state between two steps belongs; `global_step` in lockstep."""
        return int(global_step) if self.is_in_lockstep else pushes


def _pushes_at_save(counts: tf.Tensor) -> tf.Tensor:
    return counts[_ALL] - counts[_SINCE_SAVE]


def _adapt(num_workers: int, saved: np.ndarray | None) -> np.ndarray:
    """Adapts saved counts (`Count.adapt`); they start at 0 for another number of workers or an older checkpoint."""
    if saved is None or len(saved) != 1 + num_workers:
        saved = np.zeros([1 + num_workers], np.int64)
    return _just_saved(saved)


def _just_saved(counts: np.ndarray) -> np.ndarray:
    """Returns the value of the variable directly after a save with these counts."""
    return np.stack([counts, np.zeros_like(counts)])
