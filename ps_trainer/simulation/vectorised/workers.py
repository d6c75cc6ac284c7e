"""`Workers`: the steps that are under way, all workers at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ps_trainer.disturbances import delays
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import ScheduleRule
from ps_trainer.simulation.schedule import Block, Steps, as_steps, concatenate

_BLOCK_STEPS = 1 << 16


class ComputeTimes:
    """Everybody's compute times, seconds, drawn in blocks.

    Args:
        cluster: whose they are.
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
        """Each worker's next one; float64 [num_workers]."""
        return self._drawn[self._all, self._position]

    def take(self, workers: np.ndarray) -> np.ndarray:
        """The next ones of some workers, each once; float64 [len(workers)]."""
        positions = self._position[workers]
        taken = self._drawn[workers, positions]
        self._position[workers] = positions + 1
        for worker in workers[positions + 1 == self._drawn.shape[1]]:
            self._drawn[worker] = next(self._streams[worker])
            self._position[worker] = 0
        return taken


class Workers:
    """The step that each worker is at.

    Args:
        cluster: where no transfer slows another one down.
        rule: whose schedule it is.

    Attributes:
        all: indices of all workers.
        version: global_step at the last pull.
        t_push_done: when the step is over, virtual seconds.
        compute: the compute times to come.
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
        """Some workers, each once, begin a step.

        Args:
            workers: which ones; int [k].
            when: at what time, or each at its own; [] or [k].
            version: global_step that they pull; None: they do not pull.
            pushes: whether they push at its end.
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
        """When the step after this one would be over if each worker pulled again right after this one; [n]."""
        return ((self.t_push_done + self._transfer_secs) + self.compute.peek()) + self._transfer_secs

    def end(self, workers: np.ndarray, update: int, *, pushed: bool = True, version: int = 0) -> Steps:
        """The steps of some workers, which are over.

        Args:
            workers: which ones; int [k].
            update: see `Steps`.
            pushed: whether they pushed something.
            version: global_step when they did.
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


def in_order(parts: Iterable[Steps], update_secs: float) -> Block:
    """A block of steps that ended until an update, and that update."""
    block = concatenate(Block(part, np.empty(0)) for part in parts)
    order = np.argsort(block.steps.t_push_done, kind="stable")
    return Block(block.steps.select(order), np.array([update_secs]))


def in_large_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same schedule in fewer blocks."""
    held: list[Block] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block.steps.worker)
        if size >= _BLOCK_STEPS:
            yield concatenate(held)
            held, size = [], 0
    if held:
        yield concatenate(held)
