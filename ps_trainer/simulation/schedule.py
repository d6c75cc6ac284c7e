"""`Schedule`: what happened in virtual time, step by step; arrays of NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# What `Steps.update` says of a step that is in no update.
LOCAL = -1
DROPPED = -2

_DTYPES = (np.int32, np.int32, np.int64, *[np.float64] * 4, np.int64, np.int64)


class Steps(NamedTuple):
    """Steps of workers, an entry each, in the order in which they ended; times are virtual seconds.

    A worker's next step begins at its t_push_done or, where it waits for others, later. In a step that does not
    pull, t_pull_done = t_start; in one that does not push, t_push_done = t_compute_done. `easgd` pulls after it has
    computed, so that t_compute_done < t_pull_done.

    Attributes:
        worker: its index; int32.
        local_step: number of the step among this worker's own, from 0; int32.
        version: global_step at its last pull; int64.
        t_start: when the step begins, and the parameters are read on the ps tasks; float64.
        t_pull_done: when they are there.
        t_compute_done: when the gradient is computed.
        t_push_done: when the ps tasks have taken it in.
        update: index of the update that the gradient is in, `LOCAL` if it was not pushed, `DROPPED`; int64.
        staleness: updates between pull and push, also for what is then dropped; -1 if nothing was pushed; int64.
    """

    worker: np.ndarray
    local_step: np.ndarray
    version: np.ndarray
    t_start: np.ndarray
    t_pull_done: np.ndarray
    t_compute_done: np.ndarray
    t_push_done: np.ndarray
    update: np.ndarray
    staleness: np.ndarray

    def select(self, which: np.ndarray | slice) -> Steps:
        """Some of the steps, in the order of `which`."""
        return Steps(*(column[which] for column in self))


class Block(NamedTuple):
    """A stretch of a schedule.

    Attributes:
        steps: that ended in it.
        update_secs: times of the updates made in it; float64.
    """

    steps: Steps
    update_secs: np.ndarray


class Schedule(NamedTuple):
    """A whole run in virtual time.

    Attributes:
        num_workers: workers of the cluster.
        steps: that ended before the last update; those under way at that moment are not there.
        update_secs: time of each update; float64 [num_updates]. Update i leads from version i to i + 1.
    """

    num_workers: int
    steps: Steps
    update_secs: np.ndarray

    @property
    def num_updates(self) -> int:
        """Updates made: global_step at the end."""
        return len(self.update_secs)

    def pushes_by_update(self) -> list[np.ndarray]:
        """For each update the indices of the steps whose gradients are in it, in the order of arrival."""
        (pushed,) = np.nonzero(self.steps.update >= 0)
        order = pushed[np.argsort(self.steps.update[pushed], kind="stable")]
        sizes = np.bincount(self.steps.update[pushed], minlength=self.num_updates)
        return np.split(order, np.cumsum(sizes)[:-1])


def as_steps(columns: Iterable[npt.ArrayLike]) -> Steps:
    """`Steps` of what NumPy makes arrays of, in the types that they have there; of nothing if there are no columns."""
    columns = list(columns) or [()] * len(_DTYPES)
    return Steps(*(np.asarray(column, dtype) for column, dtype in zip(columns, _DTYPES, strict=True)))


def concatenate(blocks: Iterable[Block]) -> Block:
    """One block of several that follow each other."""
    blocks = list(blocks)
    steps = as_steps(np.concatenate(column) for column in zip(*(block.steps for block in blocks), strict=True))
    return Block(steps, np.concatenate([block.update_secs for block in blocks] or [np.empty(0)]))


def before_of_worker(worker: np.ndarray, values: np.ndarray, last: np.ndarray) -> np.ndarray:
    """For each entry the value at the same worker's entry before; [k].

    Args:
        worker: int [k].
        values: [k].
        last: [num_workers], the values before each worker's first entry; set to those of the last ones.
    """
    order = np.argsort(worker.astype(np.uint16) if len(last) <= 1 << 16 else worker, kind="stable")
    ordered = worker[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    before = np.empty_like(values)
    before[order[1:]] = values[order[:-1]]
    before[order[is_first]] = last[ordered[is_first]]
    is_last = np.roll(is_first, -1)
    last[ordered[is_last]] = values[order[is_last]]
    return before
