"""One run: start the tasks, wait for a window in which all workers train, end the tasks."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pathlib
import statistics
import subprocess
import time
from typing import NamedTuple

from benchmarks.contenders import REPOSITORY, Cell, Contender, Job
from benchmarks.window import Report, common_window, steps_per_sec, training_reports
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.errors import RunError
from ps_trainer.experiments.frame.cpu import CpuMeter, CpuUse
from ps_trainer.launch.command import cpu_environment
from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.tail import JsonLinesTail

_POLL_SECS = 0.2
_END_SECS = 10.0
_LOG_LINES = 30
_UNKNOWN = CpuUse(math.nan, math.nan, math.nan)  # of a window that was over before it was noticed


class Timing(NamedTuple):
    """How long a run may and must take, in seconds.

    Attributes:
        warmup_secs: left out after the last worker has begun to train.
        window_secs: least length of the measured window.
        deadline_secs: a run that has no such window after so long has failed.
    """

    warmup_secs: float
    window_secs: float
    deadline_secs: float


class Measurement(NamedTuple):
    """What one run gave.

    Attributes:
        worker_steps_per_sec: step rate of each worker.
        window_secs: length of the window it was measured in.
        cpu_secs_per_step: CPU seconds of all tasks per step of a worker.
        other_cores: cores that other processes of the machine were using meanwhile.
    """

    worker_steps_per_sec: tuple[float, ...]
    window_secs: float
    cpu_secs_per_step: float
    other_cores: float

    @property
    def steps_per_sec(self) -> float:
        """Step rate of a worker, the mean over the workers."""
        return statistics.fmean(self.worker_steps_per_sec)


def measure(contender: Contender, cell: Cell, timing: Timing, folder: pathlib.Path) -> Measurement:
    """Runs `cell` once; nothing is left running, whatever happens.

    Args:
        contender: who runs it.
        cell: what.
        timing: for how long.
        folder: made here, for the tasks' logs and reports.

    Raises:
        RunError: a task ended or the deadline passed before the window was complete; holds the log's end.
    """
    folder.mkdir(parents=True)
    ports = pick_free_ports(cell.num_ps + cell.num_workers)
    hosts = tuple(f"127.0.0.1:{port}" for port in ports)
    job = Job(cell, hosts[: cell.num_ps], hosts[cell.num_ps :], folder)
    with contextlib.ExitStack() as stack:
        return _Run(contender, job, timing, stack).measure()


class _Run:
    """The tasks of a job and what they have reported so far."""

    def __init__(self, contender: Contender, job: Job, timing: Timing, stack: contextlib.ExitStack):
        self._contender = contender
        self._job = job
        self._timing = timing
        self._stack = stack
        self._deadline = time.monotonic() + timing.deadline_secs
        self._tasks: list[TaskProcess] = []
        num_workers = job.cell.num_workers
        self._tails = [JsonLinesTail(contender.report_path(job, i)) for i in range(num_workers)]
        self._reports: list[list[Report]] = [[] for _ in range(num_workers)]
        self._cpu = CpuMeter()

    def measure(self) -> Measurement:
        contender, job = self._contender, self._job
        for index in range(job.cell.num_ps):
            self._start("ps", index, contender.ps_command(job, index))
        for index in range(job.cell.num_workers):
            self._start("worker", index, contender.worker_command(job, index))
            while index == 0 and contender.is_chief_first and not self._reports[0]:
                self._poll()
        while (result := self._result()) is None:
            self._poll()
        return result

    def _start(self, job_name: str, index: int, command: list[str]) -> None:
        task = TaskProcess(
            job_name=job_name,
            task_index=index,
            command=command,
            log_path=self._job.folder / f"{job_name}-{index}.log",
            env=cpu_environment(os.environ),
            spawn=functools.partial(subprocess.Popen, cwd=REPOSITORY),
        )
        task.start()
        self._tasks.append(task)
        self._stack.callback(_end, task)

    def _poll(self) -> None:
        time.sleep(_POLL_SECS)
        for task in self._tasks:
            if task.poll() is not None:
                raise RunError(f"{task.name} ended before the measurement did: {task.outcome()}\n{_log_end(task)}")
        for tail, reports in zip(self._tails, self._reports, strict=True):
            reports += training_reports(tail.read())
        self._cpu.sample(task.pid for task in self._tasks)
        if time.monotonic() > self._deadline:
            counts = ", ".join(f"worker-{i}: {len(reports)} reports" for i, reports in enumerate(self._reports))
            logs = "\n".join(_log_end(task) for task in self._tasks)
            raise RunError(
                f"no window of {self._timing.window_secs:g} s within {self._timing.deadline_secs:g} s ({counts});"
                f" look for the cause here, or raise --deadline_secs\n{logs}"
            )

    def _result(self) -> Measurement | None:
        """The measurement, once the window is long enough."""
        window = common_window(self._reports, self._timing.warmup_secs)
        if window is None or window.secs < self._timing.window_secs:
            return None
        rates = [steps_per_sec(reports, window) for reports in self._reports]
        if None in rates:
            return None
        cpu = self._cpu.between(window.start, window.end) or _UNKNOWN
        return Measurement(
            worker_steps_per_sec=tuple(rates),
            window_secs=window.secs,
            cpu_secs_per_step=cpu.tasks_secs / (sum(rates) * window.secs),
            other_cores=cpu.others_secs / window.secs,
        )


def _end(task: TaskProcess) -> None:
    """Kills a task at once: nothing of a run is kept but its logs."""
    task.kill()
    deadline = time.monotonic() + _END_SECS
    while task.poll() is None:
        if time.monotonic() > deadline:
            raise RunError(f"{task.name}, pid {task.pid}, is still there {_END_SECS:g} s after SIGKILL")
        time.sleep(0.01)


def _log_end(task: TaskProcess) -> str:
    lines = task.log_tail(_LOG_LINES) or ["(empty)"]
    return "\n".join([f"--- the end of {task.log_path}", *lines])
