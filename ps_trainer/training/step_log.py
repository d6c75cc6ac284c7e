"""Writes a line for each step of one worker (`--step_log`), so that steps can be studied one by one.

    <logdir>/steps/<task>.jsonl

`metrics/step_record.py` describes a line. A run that continues in the same folder appends to the file.
"""

from __future__ import annotations

import functools
import math
import os
import pathlib
import time
from collections.abc import Callable, Sequence

import numpy as np

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.metrics.line_file import LineFile
from ps_trainer.metrics.step_record import StepRecord
from ps_trainer.training.worker_progress import WorkerProgress


def progress_for(cluster: ClusterConfig, config: TrainConfig) -> Callable[[int], WorkerProgress]:
    """Returns the factory of the worker's progress, whose argument is the batch size. With `--step_log` it logs steps.

    Args:
        cluster: Cluster, with this worker's place in it.
        config: Configuration of the run. Without a logdir no steps are logged.
    """
    if not (config.step_log and config.logdir):
        return WorkerProgress
    path = pathlib.Path(config.logdir) / "steps" / f"{cluster.task_name}.jsonl"
    return functools.partial(LoggedProgress, path=path, worker=cluster.worker_index)


class LoggedProgress(WorkerProgress):
    """Progress that also writes a line for each step. The first step creates the file.

    Args:
        batch_size: Number of examples per step.
        path: Path of the file, to which lines are appended.
        worker: Index of the worker.
        time_fn: Function that returns monotonic seconds.
        wall_time_fn: Function that returns seconds since the epoch.
    """

    def __init__(
        self,
        batch_size: int,
        path: pathlib.Path,
        worker: int,
        time_fn: Callable[[], float] = time.monotonic,
        wall_time_fn: Callable[[], float] = time.time,
    ):
        super().__init__(batch_size, time_fn)
        self._path = path
        self._worker = worker
        self._wall_time_fn = wall_time_fn
        self._file: LineFile | None = None
        self._began_at = self.last_step_at
        self._cpu = os.times()

    def begin_step(self) -> None:
        """Notes the time at which the step begins."""
        super().begin_step()
        self._began_at = self._time_fn()

    def add(self, global_step: int, staleness: np.ndarray, loss: float, times: Sequence[float] = ()) -> None:
        """Counts a step and writes its line, even if the loss is NaN or infinite."""
        ended_at = self._time_fn()
        values = np.atleast_1d(staleness).tolist()
        is_dropped = any(value < 0 for value in values)
        cpu, self._cpu = self._cpu, os.times()
        wall_time = self._wall_time_fn()
        # TensorFlow's `timestamp` counts from the epoch; its distance to now gives the monotonic time.
        computed, applied = (ended_at - (wall_time - time_) for time_ in times) if len(times) else (None, None)
        record = StepRecord(
            worker=self._worker,
            local_step=self.local_steps + 1,
            global_step=int(global_step),
            staleness=values[0] if values and not is_dropped else None,
            dropped=int(is_dropped),
            t_start=self._began_at,
            t_computed=computed,
            t_applied=applied,
            t_end=ended_at,
            wall_time=wall_time,
            injected_delay=self.injected_delay,
            loss=float(loss) if math.isfinite(loss) else None,
            examples=self.examples_of(self.local_steps + 1) - self.examples_of(self.local_steps),
            cpu_user=round(self._cpu.user - cpu.user, 3),
            cpu_sys=round(self._cpu.system - cpu.system, 3),
            staleness_by_ps=values if len(values) > 1 else None,
        )
        self._write(record)
        super().add(global_step, staleness, loss)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, record: StepRecord) -> None:
        if self._file is None:
            # A `LineFile` buffers nothing, so a worker that is killed leaves the line of every step.
            self._file = LineFile(self._path)
        self._file.write(record.as_json())
