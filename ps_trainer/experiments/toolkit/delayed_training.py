"""`DelayedTraining`: a training whose workers sleep, on a cluster of processes and in virtual time."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.experiments.harness.runs import Run
from ps_trainer.experiments.toolkit import virtual_run
from ps_trainer.experiments.toolkit.clusters import QUIET, Cluster, Training, flags_of
from ps_trainer.experiments.toolkit.step_times import add_pacing

_SETTINGS = {**QUIET, "dataset": "digits"}
# Nearly no arithmetic, so that the cores idle and a step lasts as long as its delay.
IDLE = {"model": "softmax", "batch_size": 4, "learning_rate": 0.001}
_START_SECS = 10.0
_START_SECS_PER_WORKER = 2.0
_DEADLINE_FACTOR = 10
_MIN_MS = 320.0
_MANY_TASKS, _MIN_MS_OF_MANY = 8, 400.0
_MS_PER_WORKER = 40.0
_BARRIER_FACTOR = 1.5
_BURST_MS, _BURST_MS_PER_WORKER = 300.0, 110.0


def mean_ms(num_workers: int, *, behind_barrier: bool = False, in_bursts: bool = False) -> float:
    """Returns the mean step time at which the tasks of a cluster with one ps task hardly wait for two cores.

    A step with one worker switches some 90 times from thread to thread of its two tasks. Each switch is a wait of about
    0.04 ms for a core, even if that core is idle: 4 ms of a step. Workers behind a barrier also wait for one another:
    12 ms of a step with 4 of them, and with 8 of them 17 to 21 ms on one machine, 24 to 28 ms on another.

    Args:
        num_workers: Number of workers.
        behind_barrier: Whether workers wait for each other, or are compared with workers that do.
        in_bursts: Whether all workers push and pull at about the same time, as those behind a barrier with nearly even
            steps do.
    """
    if in_bursts:
        return _BURST_MS + _BURST_MS_PER_WORKER * num_workers
    least = _MIN_MS_OF_MANY if num_workers + 1 >= _MANY_TASKS else _MIN_MS
    return (_BARRIER_FACTOR if behind_barrier else 1.0) * max(least, _MS_PER_WORKER * num_workers)


def expected_secs(num_workers: int, steps_secs: float) -> float:
    """Returns the expected duration of a run whose steps together take `steps_secs`."""
    return _START_SECS + num_workers * _START_SECS_PER_WORKER + steps_secs


class StepCost(NamedTuple):
    """The cost of one worker's step besides its delay, in seconds."""

    overhead_secs: float = 0.0  # all of it: push, ps task, pull, and the worker's own code
    service_secs: float = 0.0  # of it, the part in which a ps task serves this worker and no other one

    @property
    def latency_secs(self) -> float:
        """The rest of one transfer; a step has two."""
        return max(0.0, self.overhead_secs - self.service_secs) / 2


class DelayedTraining(NamedTuple):
    """A training whose workers are delayed, on a cluster with one ps task and in virtual time.

    On the cluster a delay counts from the start of a step, so that a worker's arithmetic is a part of it.
    """

    update: str  # Name of `--update`
    options: Sequence[str]  # Values of `--update_option`
    num_workers: int  # Number of workers
    num_updates: int  # Value of global_step at the end
    compute: Sequence[str]  # Delays, as for `--straggler`
    settings: Mapping[str, Any] = IDLE  # Model, batch size, optimizer and learning rate

    def train(self, run: Run[Any], folder: pathlib.Path) -> Training:
        """Trains on a cluster, with the seed of the run.

        Raises:
            RunError: The run failed.
        """
        delays = [add_pacing(text) for text in self.compute]
        options = {"update": self.update, "update_option": self.options, "straggler": delays}
        settings = {**_SETTINGS, **self.settings, **options, "max_steps": self.num_updates, "seed": run.seed}
        deadline_secs = _DEADLINE_FACTOR * run.expected_secs
        return Cluster(num_workers=self.num_workers, flags=flags_of(settings), deadline_secs=deadline_secs).train(
            folder
        )

    def simulate(self, run: Run[Any], cost: StepCost, start_secs: float = 0.0) -> virtual_run.VirtualRun:
        """Simulates the same delays in virtual time, with what a step costs besides them.

        Args:
            run: Run with the seed.
            cost: Cost of a step besides its delay.
            start_secs: Time in which the workers begin, one after the other; 0 = all at once.
        """
        return virtual_run.run(
            self.update,
            self.options,
            num_workers=self.num_workers,
            compute=self.compute,
            num_updates=self.num_updates,
            seed=run.seed,
            latency_secs=cost.latency_secs,
            ps_secs=cost.service_secs,
            start_secs=start_secs,
        )
