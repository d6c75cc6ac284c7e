"""Clusters of the hand-written TF1 script (`stock_script.py`), with the same flags, delays and logs as ours."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.comparison import run_lines
from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit.clusters import Training, flags_of
from ps_trainer.launch.command import cpu_environment
from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.tail import JsonLinesTail
from ps_trainer.metrics.step_record import StepRecord

_MODULE = "ps_trainer.experiments.toolkit.stock_script"
_POLL_SECS = 0.1
_LOG_LINES = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class StockCluster:
    """A cluster of the script on this machine, with one ps task."""

    num_workers: int
    num_updates: int  # value of global_step at which the run ends
    settings: Mapping[str, Any]  # flags of the script besides tasks, steps and folder
    deadline_secs: float = 600.0

    def train(self, folder: pathlib.Path) -> Training:
        """Trains until a worker has seen the last update; leaves no process behind.

        Raises:
            RunError: A task failed, the run was too slow, or it made too few steps.
        """
        logdir = folder.resolve() / "stock"
        logdir.mkdir(parents=True)
        tasks = self._tasks(logdir)
        logs = [logdir / f"steps-{i}.jsonl" for i in range(self.num_workers)]
        with contextlib.ExitStack() as ended:
            for task in tasks:
                task.start()
                ended.callback(_end, task)
            started = time.monotonic()
            self._wait(tasks, [JsonLinesTail(path) for path in logs], started + self.deadline_secs)
            wall_secs = time.monotonic() - started
        steps = sorted((step for path in logs for step in _complete_steps(path)), key=lambda step: step.t_end)
        return Training({"workers": _counts(steps, self.num_workers)}, steps, wall_secs)

    def _tasks(self, logdir: pathlib.Path) -> list[TaskProcess]:
        hosts = [f"127.0.0.1:{port}" for port in pick_free_ports(1 + self.num_workers)]
        cluster = {"ps_hosts": hosts[0], "worker_hosts": ",".join(hosts[1:]), "folder": str(logdir)}
        flags = flags_of({**self.settings, **cluster, "max_steps": self.num_updates})
        names = [("ps", 0), *(("worker", i) for i in range(self.num_workers))]
        return [
            TaskProcess(
                job_name=job,
                task_index=i,
                command=[sys.executable, "-m", _MODULE, f"--job_name={job}", f"--task_index={i}", *flags],
                log_path=logdir / f"{job}-{i}.log",
                env=cpu_environment(os.environ),
            )
            for job, i in names
        ]

    def _wait(self, tasks: Sequence[TaskProcess], logs: Sequence[JsonLinesTail], deadline: float) -> None:
        """Waits until a worker has seen the last update; the others then cannot make a further one that counts."""
        last = 0
        while last < self.num_updates:
            last = max([last, *(record["global_step"] for log in logs for record in log.read())])
            failed = next((task for task in tasks if task.poll()), None)
            if failed or time.monotonic() > deadline:
                what = f"{failed.name} failed" if failed else f"not finished after {self.deadline_secs:g} s"
                lines = (failed or tasks[1]).log_tail(_LOG_LINES)
                raise RunError("\n".join([f"the stock script: {what}", *lines]))
            time.sleep(_POLL_SECS)


def _end(task: TaskProcess) -> None:
    task.kill()
    while task.poll() is None:
        time.sleep(_POLL_SECS)


def _complete_steps(path: pathlib.Path) -> list[StepRecord]:
    """Returns the steps of a log, whose last line may be cut, because its worker was killed."""
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
    return list(run_lines.read_steps(path))


def _counts(steps: Sequence[StepRecord], num_workers: int) -> dict[str, dict[str, int]]:
    """Returns the pushes of each worker, and those that were too late, as the summary of a run of ours has them."""
    own = [[step for step in steps if step.worker == worker] for worker in range(num_workers)]
    return {
        str(worker): {"pushes": len(made), "gradients_dropped": sum(bool(step.dropped) for step in made)}
        for worker, made in enumerate(own)
    }
