"""`PushCounts`: how many pushes of each worker are in the run's state; counted on ps task 0, saved with the parameters.

What a worker alone knows (a residual) belongs to a number of its own pushes: older, it would be sent twice, and newer,
what was sent since would be lost. So both say that number: the worker's file, and the state on the ps tasks.
"""

from __future__ import annotations

import functools
import secrets
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.store.state import Count
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.base import RELEASED, Phase

PUSHES = "worker_state/pushes"
_MAX_LINEAGE = 2**62


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
        in_lockstep: whether all workers take part in each update, by an exchange: then global_step counts for each.

    Attributes:
        count: for `StoredState`: int64 [1 + num_workers], the lineage and each worker's pushes.
    """

    def __init__(self, num_workers: int, worker_index: int, ps_device: str, *, in_lockstep: bool):
        self._place = 1 + worker_index
        self._in_lockstep = in_lockstep
        with tf.device(ps_device):
            self._variable = create_variable(PUSHES, [1 + num_workers], tf.int64)
            self._read = self._variable.read_value()
            self._own = tf.gather(self._read, [0, self._place])
        self.count = Count(self._variable, functools.partial(_adapt, num_workers))

    def build(self, phase: Phase) -> list[tf.Operation]:
        """The op that counts a phase's push, when ps task 0 has it in its parameters; none where it pushes nothing."""
        if phase.pushed is None or self._in_lockstep:
            return []
        with tf.device(self._variable.device):
            amount = tf.cast(tf.not_equal(phase.pushed, RELEASED), tf.int64)
            return [self._variable.scatter_nd_add([[self._place]], tf.reshape(amount, [1])).op]

    def begin(self, session: tf.Session) -> None:
        """Called by the chief before any worker joins: draws a lineage where counting begins anew."""
        counts = session.run(self._read)
        if not counts[0]:
            counts[0] = 1 + secrets.randbelow(_MAX_LINEAGE)
            session.run(self._variable.initializer, {self._variable.initializer.inputs[1]: counts})

    def mark(self, session: tf.Session, global_step: int) -> Mark:
        """Where the run is now; `global_step` as this worker knows it."""
        lineage, pushes = session.run(self._own)
        return Mark(int(lineage), self.after(int(pushes), global_step, 0))

    def after(self, pushes: int, global_step: int, num_sent: int) -> int:
        """The pushes after `num_sent` more, at `global_step`, as `mark` would tell them."""
        return int(global_step) if self._in_lockstep else pushes + num_sent


def _adapt(num_workers: int, saved: np.ndarray | None) -> np.ndarray:
    """See `Count.adapt`: with another number of workers, or where an older version saved, counting begins anew."""
    if saved is None or len(saved) != 1 + num_workers:
        return np.zeros([1 + num_workers], np.int64)
    return saved
