"""A line per step of one worker, for who studies steps one by one: `--step_log`.

    <logdir>/steps/<task>.jsonl

    worker        index of the worker
    local_step    of this worker, from 1
    global_step   after the step, as the step returned it
    staleness     of the gradient on ps 0, null where it was dropped or nothing was pushed
    staleness_by_ps   of each ps task, where there are several
    dropped       1 where the gradient was dropped, else 0
    t_start       the step begins, with the parameters already pulled. Seconds, monotonic: one clock for all
                  processes of a machine
    t_computed    its gradient is there, and has been held back by `--straggler`
    t_applied     the update is made, as far as this worker waits for it
    t_end         the parameters of the next step are pulled: the step is over
    wall_time     seconds since the epoch, at t_end
    injected_delay   seconds that the gradient was held back by `--straggler`; 0 without
    loss          null where it is no number
    examples      of the batch
    cpu_user, cpu_sys   CPU seconds of the whole process since the step before

A run that is continued in the same folder appends to the file. Where a rule applies each gradient as it comes,
global_step − 1 − staleness is the version that the worker read.
"""

from __future__ import annotations

import functools
import math
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.metrics.lines import LineFile
from ps_trainer.training.progress import Progress


def progress_for(cluster: ClusterConfig, config: TrainConfig) -> Callable[[int], Progress]:
    """Makes the counter of a worker's steps from the batch size: one that logs steps where the run asks for it.

    Args:
        cluster: with this worker's place in it.
        config: of the run; without a logdir nothing is kept.
    """
    if not (config.step_log and config.logdir):
        return Progress
    path = pathlib.Path(config.logdir) / "steps" / f"{cluster.task_name}.jsonl"
    return functools.partial(LoggedProgress, path=path, worker=cluster.worker_index)


class LoggedProgress(Progress):
    """`Progress` that also writes a line per step; the file is made at the first one.

    Args:
        batch_size: examples per step.
        path: of the file; appended to.
        worker: index of the worker.
        clock: seconds, monotonic.
        wall_clock: seconds since the epoch.
    """

    def __init__(
        self,
        batch_size: int,
        path: pathlib.Path,
        worker: int,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ):
        super().__init__(batch_size, clock)
        self._path = path
        self._worker = worker
        self._wall_clock = wall_clock
        self._file: LineFile | None = None
        self._began_at = self.last_step_at
        self._cpu = os.times()

    def timed(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """See `Progress`."""

        def call() -> Any:
            self._began_at = self._clock()
            return run()

        return call

    def add(self, global_step: int, staleness: np.ndarray, loss: float, times: Sequence[float] = ()) -> None:
        """See `Progress`; a step whose loss is not finite is written too."""
        ended_at = self._clock()
        values = np.atleast_1d(staleness).tolist()
        is_dropped = any(value < 0 for value in values)
        cpu, self._cpu = self._cpu, os.times()
        wall_time = self._wall_clock()
        computed, applied = (ended_at - (wall_time - time_) for time_ in times) if len(times) else (None, None)
        record = {
            "worker": self._worker,
            "local_step": self.local_steps + 1,
            "global_step": int(global_step),
            "staleness": values[0] if values and not is_dropped else None,
            "dropped": int(is_dropped),
            "t_start": self._began_at,
            "t_computed": computed,
            "t_applied": applied,
            "t_end": ended_at,
            "wall_time": wall_time,
            "injected_delay": self.injected_delay,
            "loss": float(loss) if math.isfinite(loss) else None,
            "examples": self.examples_of(self.local_steps + 1) - self.examples_of(self.local_steps),
            "cpu_user": round(self._cpu.user - cpu.user, 3),
            "cpu_sys": round(self._cpu.system - cpu.system, 3),
        } | ({"staleness_by_ps": values} if len(values) > 1 else {})
        self._write(record)
        super().add(global_step, staleness, loss)

    def close(self) -> None:
        """See `Progress`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is None:
            # A worker that is killed leaves every step that it has made.
            self._file = LineFile(self._path)
        self._file.write(record)
