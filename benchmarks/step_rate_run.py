"""One run of the step-rate benchmark: starts the tasks, waits for a window in which all workers train, ends them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import pathlib
import statistics
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks.contenders import REPOSITORY, Cell, CellJob, Contender
from benchmarks.thread_cpu import ThreadKind, ThreadMeter
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.errors import RunError
from ps_trainer.experiments.harness.cpu import UNKNOWN_USE, CpuMeter
from ps_trainer.launch.command import cpu_environment
from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.tail import JsonLinesTail

_POLL_SECS = 0.2
_END_SECS = 10.0
_LOG_LINES = 30


class StepCount(NamedTuple):
    """A worker's count of its own steps (`local_step`) at a time (`wall_time`, seconds since the epoch)."""

    wall_time: float
    local_step: int


class Window(NamedTuple):
    """A stretch of wall time, seconds since the epoch."""

    start: float
    end: float

    @property
    def secs(self) -> float:
        """Length in seconds; negative when nothing is common yet."""
        return self.end - self.start


class RunTiming(NamedTuple):
    """Times of a run, in seconds.

    Attributes:
        warmup_secs: Time after the last worker's first step that does not count.
        window_secs: Shortest measured window.
        deadline_secs: a run without such a window by then has failed.
    """

    warmup_secs: float
    window_secs: float
    deadline_secs: float


class Measurement(NamedTuple):
    """The figures of one run.

    Attributes:
        worker_steps_per_sec: Step rate of each worker.
        window_secs: Length of the measured window.
        cpu_secs_per_step: CPU seconds of all tasks per step of a worker.
        other_cores: Cores that other processes of the machine were using meanwhile.
        ps_cpu_secs_per_step: CPU seconds of the ps tasks alone per step of a worker.
        thread_secs_per_step: The same by kind of threads; empty if it was not asked for.
    """

    worker_steps_per_sec: tuple[float, ...]
    window_secs: float
    cpu_secs_per_step: float
    other_cores: float
    ps_cpu_secs_per_step: float = math.nan
    thread_secs_per_step: Mapping[ThreadKind, float] = MappingProxyType({})

    @property
    def steps_per_sec(self) -> float:
        """Step rate of a worker, the mean over the workers."""
        return statistics.fmean(self.worker_steps_per_sec)


def measure(
    contender: Contender, cell: Cell, timing: RunTiming, folder: pathlib.Path, *, has_threads: bool = False
) -> Measurement:
    """Runs `cell` once; no process is left running, whatever happens.

    Args:
        contender: Contender that runs the cell.
        cell: Cell to run.
        timing: Times of the run.
        folder: Folder for the tasks' logs and reports, which this function makes.
        has_threads: Whether to measure the CPU time of each kind of threads, which costs the machine a little.

    Raises:
        RunError: A task ended or the deadline passed before the window was complete; holds the end of the log.
    """
    folder.mkdir(parents=True)
    ports = pick_free_ports(cell.num_ps + cell.num_workers)
    hosts = tuple(f"127.0.0.1:{port}" for port in ports)
    job = CellJob(cell, hosts[: cell.num_ps], hosts[cell.num_ps :], folder)
    with contextlib.ExitStack() as stack:
        return _Run(contender, job, timing, stack, ThreadMeter() if has_threads else None).measure()


def training_reports(records: Iterable[dict[str, Any]]) -> list[StepCount]:
    """Returns the reports among a worker's metrics: the records of kind "train"."""
    return [StepCount(r["wall_time"], r["local_step"]) for r in records if r.get("kind") == "train"]


def common_window(reports: Sequence[Sequence[StepCount]], warmup_secs: float) -> Window | None:
    """Returns the time in which all workers were training and warm.

    From `warmup_secs` after the last worker's first report to the first of the last reports. None when a
    worker has reported nothing yet.

    Args:
        reports: Reports of each worker, in order of time.
        warmup_secs: Seconds that do not count after the last worker has begun.
    """
    if not all(reports):
        return None
    return Window(max(r[0].wall_time for r in reports) + warmup_secs, min(r[-1].wall_time for r in reports))


def steps_per_sec(reports: Sequence[StepCount], window: Window) -> float | None:
    """Returns the mean step rate of one worker, between its first and its last report in the window; None without two.

    Raises:
        RunError: The worker's steps went back or stood still from one report to the next.
    """
    inside = [r for r in reports if window.start <= r.wall_time <= window.end]
    for earlier, later in itertools.pairwise(inside):
        if later.local_step <= earlier.local_step or later.wall_time <= earlier.wall_time:
            raise RunError(f"a worker's reports do not go forward: {earlier} is followed by {later}")
    if len(inside) < 2:
        return None
    # From report to report: the window begins and ends between reports, where the count of steps is unknown.
    return (inside[-1].local_step - inside[0].local_step) / (inside[-1].wall_time - inside[0].wall_time)


class _Run:
    """The tasks of a job, and the steps that they have reported."""

    def __init__(
        self,
        contender: Contender,
        job: CellJob,
        timing: RunTiming,
        stack: contextlib.ExitStack,
        threads: ThreadMeter | None,
    ):
        self._contender = contender
        self._job = job
        self._timing = timing
        self._stack = stack
        self._deadline = time.monotonic() + timing.deadline_secs
        self._tasks: list[TaskProcess] = []
        num_workers = job.cell.num_workers
        self._tails = [JsonLinesTail(contender.report_path(job, i)) for i in range(num_workers)]
        self._reports: list[list[StepCount]] = [[] for _ in range(num_workers)]
        self._cpu, self._ps_cpu = CpuMeter(), CpuMeter()
        self._threads = threads

    def measure(self) -> Measurement:
        contender, job = self._contender, self._job
        for index in range(job.cell.num_ps if contender.has_ps else 0):
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
            env=cpu_environment({**os.environ, **self._contender.environ}),
            spawn=functools.partial(subprocess.Popen, cwd=REPOSITORY),
        )
        task.start()
        self._tasks.append(task)
        # Only after the start: `_kill` would wait for a process that does not exist.
        self._stack.callback(_kill, task)

    def _poll(self) -> None:
        time.sleep(_POLL_SECS)
        for task in self._tasks:
            if task.poll() is not None:
                raise RunError(f"{task.name} ended before the measurement did: {task.outcome()}\n{_log_end(task)}")
        for tail, reports in zip(self._tails, self._reports, strict=True):
            reports += training_reports(tail.read())
        self._cpu.sample(task.pid for task in self._tasks if task.pid is not None)
        self._ps_cpu.sample(task.pid for task in self._tasks if task.pid is not None and task.job_name == "ps")
        if self._threads is not None:
            self._threads.sample({task.pid: task.job_name for task in self._tasks if task.pid is not None})
        if time.monotonic() > self._deadline:
            counts = ", ".join(f"worker-{i}: {len(reports)} reports" for i, reports in enumerate(self._reports))
            logs = "\n".join(_log_end(task) for task in self._tasks)
            raise RunError(
                f"no window of {self._timing.window_secs:g} s within {self._timing.deadline_secs:g} s ({counts});"
                f" look for the cause here, or raise --deadline_secs\n{logs}"
            )

    def _result(self) -> Measurement | None:
        """Returns the measurement, once the window is long enough."""
        window = common_window(self._reports, self._timing.warmup_secs)
        if window is None or window.secs < self._timing.window_secs:
            return None
        rates = [rate for reports in self._reports if (rate := steps_per_sec(reports, window)) is not None]
        if len(rates) < len(self._reports):
            return None
        cpu = self._cpu.between(window.start, window.end) or UNKNOWN_USE
        ps_cpu = self._ps_cpu.between(window.start, window.end) or UNKNOWN_USE
        threads = {} if self._threads is None else self._threads.between(window.start, window.end)
        num_steps = sum(rates) * window.secs
        return Measurement(
            worker_steps_per_sec=tuple(rates),
            window_secs=window.secs,
            cpu_secs_per_step=cpu.tasks_secs / num_steps,
            other_cores=cpu.others_secs / window.secs,
            ps_cpu_secs_per_step=ps_cpu.tasks_secs / num_steps,
            thread_secs_per_step={kind: secs / num_steps for kind, secs in threads.items()},
        )


def _kill(task: TaskProcess) -> None:
    """Kills a task at once; only its log is kept."""
    task.kill()
    deadline = time.monotonic() + _END_SECS
    while task.poll() is None:
        if time.monotonic() > deadline:
            raise RunError(f"{task.name}, pid {task.pid}, is still there {_END_SECS:g} s after SIGKILL")
        time.sleep(0.01)


def _log_end(task: TaskProcess) -> str:
    lines = task.log_tail(_LOG_LINES) or ["(empty)"]
    return "\n".join([f"--- the end of {task.log_path}", *lines])
