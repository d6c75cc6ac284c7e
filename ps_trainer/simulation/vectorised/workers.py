"""`Workers`: the current steps of all workers, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ps_trainer.disturbances import delays
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import ScheduleRule
from ps_trainer.simulation.schedule import ScheduleBlock, StepColumns, as_steps, concatenate

# As arrays, about 4 MB, as in `events.py`.
_BLOCK_STEPS = 1 << 16


class ComputeTimes:
    """Compute times of all workers in seconds, drawn in blocks.

    Args:
        cluster: Cluster with the distributions of the compute times.
    """

    def __init__(self, cluster: ClusterModel):
        self._streams = [
            cluster.compute_of(worker).blocks(delays.rng_for(cluster.seed, worker), worker)
            for worker in range(cluster.num_workers)
        ]
        self._drawn = np.stack([next(stream) for stream in self._streams])
        self._position = np.zeros(cluster.num_workers, np.int64)
        self._all = np.arange(cluster.num_workers)

    def peek(self) -> np.ndarray:
        """Returns each worker's next compute time, float64 [num_workers], without taking it."""
        return self._drawn[self._all, self._position]

    def take(self, workers: np.ndarray) -> np.ndarray:
        """Takes the next compute time of each of some different workers, float64 [len(workers)]."""
        positions = self._position[workers]
        taken = self._drawn[workers, positions]
        self._position[workers] = positions + 1
        # Blocks are refilled worker by worker: each has its own random stream, as event by event.
        for worker in workers[positions + 1 == self._drawn.shape[1]]:
            self._drawn[worker] = next(self._streams[worker])
            self._position[worker] = 0
        return taken


class Workers:
    """The current step of each worker.

    Args:
        cluster: Cluster in which no transfer slows another one down.
        rule: Rule of the schedule.

    Attributes:
        all: Indices of all workers.
        version: int64 [num_workers], global_step at the last pull.
        t_push_done: float64 [num_workers], virtual time at which the step ends.
        compute: Compute times of the next steps.
    """

    def __init__(self, cluster: ClusterModel, rule: ScheduleRule):
        n = cluster.num_workers
        self.all = np.arange(n)
        self.compute = ComputeTimes(cluster)
        self.version = np.zeros(n, np.int64)
        self.t_push_done = np.zeros(n)
        self._transfer_secs = cluster.transfer_secs if rule.uses_ps else 0.0
        self._local_step = np.zeros(n, np.int64)
        self._start, self._pull_done, self._compute_done = np.zeros(n), np.zeros(n), np.zeros(n)

    def begin(
        self,
        workers: np.ndarray,
        when: float | np.ndarray,
        version: int | None = None,
        *,
        pushes: bool = True,
    ) -> None:
        """Begins a step of some different workers.

        Args:
            workers: int [k], indices of the workers.
            when: Time of the beginning, the same for all, [], or one per worker, [k].
            version: Value of global_step that they pull; None: they do not pull.
            pushes: Whether they push at the end.
        """
        if version is not None:
            self.version[workers] = version
        pull_done = when + (self._transfer_secs if version is not None else 0.0)
        compute_done = pull_done + self.compute.take(workers)
        self._start[workers] = when
        self._pull_done[workers] = pull_done
        self._compute_done[workers] = compute_done
        self.t_push_done[workers] = compute_done + (self._transfer_secs if pushes else 0.0)

    def ends_if_again(self) -> np.ndarray:
        """Returns when the next step of each worker would end if it pulled right after the current one, [n].

        The additions have the same order as in `begin`, because the times must be equal to the last bit.
        """
        return ((self.t_push_done + self._transfer_secs) + self.compute.peek()) + self._transfer_secs

    def end(self, workers: np.ndarray, update: int, *, pushed: bool = True, version: int = 0) -> StepColumns:
        """Ends the steps of some workers and returns them.

        Args:
            workers: int [k], indices of the workers.
            update: Index of the update that has their gradients, or `LOCAL`, or `DROPPED`.
            pushed: Whether they pushed something.
            version: Value of global_step when they pushed.
        """
        read = self.version[workers]
        staleness = version - read if pushed else np.full(len(workers), -1)
        steps = as_steps(
            (
                workers,
                self._local_step[workers],
                read,
                self._start[workers],
                self._pull_done[workers],
                self._compute_done[workers],
                self.t_push_done[workers],
                np.full(len(workers), update),
                staleness,
            )
        )
        self._local_step[workers] += 1
        return steps


def in_order(parts: Iterable[StepColumns], update_secs: float) -> ScheduleBlock:
    """Joins the steps that ended up to an update to a block, sorted by time, with that update."""
    block = concatenate(ScheduleBlock(part, np.empty(0)) for part in parts)
    order = np.argsort(block.steps.t_push_done, kind="stable")
    return ScheduleBlock(block.steps.select(order), np.array([update_secs]))


def in_large_blocks(blocks: Iterable[ScheduleBlock]) -> Iterator[ScheduleBlock]:
    """Joins blocks to fewer, larger ones."""
    held: list[ScheduleBlock] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block.steps.worker)
        if size >= _BLOCK_STEPS:
            yield concatenate(held)
            held, size = [], 0
    if held:
        yield concatenate(held)
