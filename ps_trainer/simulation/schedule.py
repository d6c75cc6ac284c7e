"""`Schedule`: all steps of a run in virtual time, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LOCAL = -1
"""Value of `StepColumns.update` for a step that pushed nothing."""

DROPPED = -2
"""Value of `StepColumns.update` for a step whose gradient was dropped."""

_DTYPES = (np.int32, np.int32, np.int64, *[np.float64] * 4, np.int64, np.int64)


class StepColumns(NamedTuple):
    """Steps of workers, one entry per step, in the order in which they ended. Times are virtual seconds.

    A worker's next step begins at its t_push_done or, if it waits for others, later. A step without a pull has
    t_pull_done = t_start. A step without a push has t_push_done = t_compute_done. `easgd` pulls after it has computed,
    so t_compute_done < t_pull_done.

    Attributes:
        worker: int32, index of the worker.
        local_step: int32, number of the step among the worker's own steps, from 0.
        version: int64, global_step at the worker's last pull.
        t_start: float64, time at which the step begins and reads the parameters on the ps tasks.
        t_pull_done: float64, time at which the parameters have reached the worker.
        t_compute_done: float64, time at which the gradient is computed.
        t_push_done: float64, time at which the ps tasks have processed the gradient.
        update: int64, index of the update that has the gradient, or `LOCAL`, or `DROPPED`.
        staleness: int64, number of updates between pull and push, also of dropped gradients; -1 without a push.
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

    def select(self, which: np.ndarray | slice) -> StepColumns:
        """Returns some of the steps, in the order of `which`."""
        return StepColumns(*(column[which] for column in self))


class ScheduleBlock(NamedTuple):
    """A part of a schedule.

    Attributes:
        steps: Steps that ended in it.
        update_secs: float64, times of the updates made in it.
    """

    steps: StepColumns
    update_secs: np.ndarray


class Schedule(NamedTuple):
    """A whole run in virtual time.

    Attributes:
        num_workers: Number of workers in the cluster.
        steps: Steps that ended before the last update, without those that were unfinished at that moment.
        update_secs: float64 [num_updates], time of each update. Update i leads from version i to i + 1.
    """

    num_workers: int
    steps: StepColumns
    update_secs: np.ndarray

    @property
    def num_updates(self) -> int:
        """Number of updates, which is global_step at the end."""
        return len(self.update_secs)

    def pushes_by_update(self) -> list[np.ndarray]:
        """Lists for each update the indices of the steps whose gradients it has, in the order of arrival."""
        (pushed,) = np.nonzero(self.steps.update >= 0)
        # A stable sort keeps the order of arrival, on which the rounding of a sum of gradients depends.
        order = pushed[np.argsort(self.steps.update[pushed], kind="stable")]
        sizes = np.bincount(self.steps.update[pushed], minlength=self.num_updates)
        return np.split(order, np.cumsum(sizes)[:-1])


def as_steps(columns: Iterable[npt.ArrayLike]) -> StepColumns:
    """Converts columns to `StepColumns` with the types of its attributes; no columns make empty `StepColumns`."""
    columns = list(columns) or [()] * len(_DTYPES)
    return StepColumns(*(np.asarray(column, dtype) for column, dtype in zip(columns, _DTYPES, strict=True)))


def concatenate(blocks: Iterable[ScheduleBlock]) -> ScheduleBlock:
    """Joins successive blocks to one."""
    blocks = list(blocks)
    steps = as_steps(np.concatenate(column) for column in zip(*(block.steps for block in blocks), strict=True))
    return ScheduleBlock(steps, np.concatenate([block.update_secs for block in blocks] or [np.empty(0)]))


def before_of_worker(worker: np.ndarray, values: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Returns for each entry the value of the same worker's previous entry, [k].

    Args:
        worker: int [k], worker of each entry.
        values: [k], value of each entry.
        last: [num_workers], the values before each worker's first entry. The function replaces them by the values of
            each worker's last entry.
    """
    # NumPy sorts 16-bit integers by radix sort, which is several times as fast as its sort of larger ones.
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
