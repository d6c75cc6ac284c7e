"""Creates the tasks of a local cluster: the command, environment and log file of each child process."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from ps_trainer.config import PARENT_PID_VARIABLE
from ps_trainer.launch.forkserver import PROGRAM, ForkServer, ForkServerEndedError
from ps_trainer.launch.hosts import Hosts, TaskHost
from ps_trainer.launch.process import StartedProcess, TaskProcess

TASK_COMMAND = (*PROGRAM, "task")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskFactory:
    """Creates the child processes of one run; none of them is started yet.

    Attributes:
        command: Program and first arguments of every task; its flags follow.
        train_args: Flags of the training run, the same for every task.
        logdir: Folder of the run; its `logs` exist.
        environment: Environment of every task.
        server: Fork server that forks the tasks; None if each task is a fresh process.
        spawn: `subprocess.Popen` or a replacement; used for tasks that are not forked.
        time_fn: Monotonic time in seconds.
        is_alone: Whether the only task trains alone, without server.
    """

    command: Sequence[str]
    train_args: Sequence[str]
    logdir: pathlib.Path
    environment: Mapping[str, str]
    server: ForkServer | None
    spawn: Callable[..., StartedProcess]
    time_fn: Callable[[], float]
    is_alone: bool = False

    def create_all(self, task_ids: Sequence[tuple[str, int]], hosts: Hosts) -> list[TaskProcess]:
        """Places the tasks on hosts and creates them, in the order of `task_ids` (job name and task index).

        Raises:
            RunError: A host cannot be made.
        """
        # The evaluator needs no host, because no other task connects to it.
        served = [f"{job}-{index}" for job, index in task_ids if job != "evaluator" and not self.is_alone]
        placed = hosts.place(served) if served else {}
        cluster = ["--alone"] if self.is_alone else cluster_flags(placed)
        flags = [*cluster, *self.train_args, f"--logdir={self.logdir}"]
        return [self._create(job, index, placed.get(f"{job}-{index}"), flags) for job, index in task_ids]

    def _create(self, job_name: str, task_index: int, host: TaskHost | None, flags: Sequence[str]) -> TaskProcess:
        command = [*self.command, f"--job_name={job_name}", f"--task_index={task_index}", *flags]
        spawn: Callable[..., Any] = self.spawn
        if self.server is not None:
            spawn = self._forking(self.server, host)
        elif host is not None:
            command = [*host.prefix, *command]
        return TaskProcess(
            job_name=job_name,
            task_index=task_index,
            command=command,
            log_path=self.logdir / "logs" / f"{job_name}-{task_index}.log",
            env=self.environment,
            spawn=spawn,
            time_fn=self.time_fn,
        )

    def _forking(self, server: ForkServer, host: TaskHost | None) -> Callable[..., Any]:
        """Returns a replacement for `subprocess.Popen` that forks; the fork server enters the host's namespace."""

        def fork(command: Sequence[str], **kwargs: Any) -> Any:
            try:
                return server.popen(command, netns=host.netns if host else None, **kwargs)
            except ForkServerEndedError as error:  # for example, the system killed it because memory ran out
                logging.warning("%s; a fresh process is started instead", error)
                return self.spawn([*(host.prefix if host else ()), *command], **kwargs)

        return fork


def cluster_flags(placed: Mapping[str, TaskHost]) -> list[str]:
    """Returns `--ps_hosts`, if there are ps tasks, and `--worker_hosts`, with the addresses of the tasks in order."""
    by_job = {
        job: [host.address for task, host in placed.items() if task.startswith(f"{job}-")] for job in ("ps", "worker")
    }
    return [f"--{job}_hosts={','.join(addresses)}" for job, addresses in by_job.items() if addresses]


def task_environment(environ: Mapping[str, str], temporary: str | None = None) -> dict[str, str]:
    """Returns the environment of a task: the launcher's environment with additions.

    The pid lets a task notice that the launcher was killed. Output is unbuffered, so that the log of a
    task that crashes holds its last lines. `TF_CONFIG` is removed because it describes another cluster.

    Args:
        environ: Environment of the launcher.
        temporary: Folder for temporary files; None keeps the folder that `environ` names.
    """
    defaults = {"PYTHONUNBUFFERED": "1"}
    # The pid comes last: in a launcher that is itself a child of one, `environ` has the pid of that other launcher.
    environment = {**defaults, **environ, PARENT_PID_VARIABLE: str(os.getpid())}
    if temporary is not None:
        environment["TMPDIR"] = temporary
    environment.pop("TF_CONFIG", None)
    return environment
