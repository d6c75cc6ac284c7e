"""A whole cluster on this machine: tasks, hosts, log folder, and supervision until the last one has ended."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging
from rich.console import Console

from ps_trainer.config import PARENT_PID_VARIABLE, TrainConfig
from ps_trainer.disturbances import faults as faults_lib
from ps_trainer.errors import OptionError
from ps_trainer.launch import summary
from ps_trainer.launch.events import EventLog
from ps_trainer.launch.forkserver import PROGRAM, ForkServer, ForkServerEndedError
from ps_trainer.launch.hosts import Hosts, LocalHosts, TaskHost
from ps_trainer.launch.injector import Injector
from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.restarts import Restarts
from ps_trainer.launch.signals import SignalRecorder
from ps_trainer.launch.status import Board
from ps_trainer.launch.supervisor import Limits, Supervisor
from ps_trainer.launch.view import create_view

_MAX_TASKS = 50_000
TASK_COMMAND = (*PROGRAM, "task")


def run(
    *,
    num_ps: int,
    num_workers: int,
    num_evaluators: int,
    train_args: Sequence[str],
    config: TrainConfig,
    plain: bool,
    faults: Sequence[str] = (),
    max_restarts: int | None = None,
    preload: bool = False,
    server: ForkServer | None = None,
    task_command: Sequence[str] = TASK_COMMAND,
    hosts: Hosts | None = None,
    spawn: Callable[..., subprocess.Popen] = subprocess.Popen,
    clock: Callable[[], float] = time.monotonic,
    environ: Mapping[str, str] = os.environ,
    console: Console | None = None,
    limits: Limits | None = None,
) -> int:
    """Trains on a cluster of child processes and returns when all of them have ended.

    Args:
        num_ps: ps tasks, at least 1.
        num_workers: worker tasks, at least 1.
        num_evaluators: 0 or 1.
        train_args: flags passed to every task as they are.
        config: what these flags say, already checked.
        plain: plain lines even on a terminal.
        faults: what the run is to meet; see `ps_trainer/disturbances/faults.py`.
        max_restarts: how often each task is started again; None = the number of kills that `chaos` asks for.
        preload: whether TensorFlow is imported once, and tasks are forked (`forkserver.py`), where the system can.
        server: a fork server of this process, to be used for that; None = one is made for this run.
        task_command: program and first arguments of a task; its flags follow.
        hosts: where the tasks run; None = this machine itself.
        spawn: `subprocess.Popen` or the like; without effect on tasks that are forked.
        clock: seconds, monotonic.
        environ: environment that the tasks get, with additions.
        console: where to print; None = standard output.
        limits: deadlines; None = the defaults, and `config.stall_timeout_secs` for the evaluator.

    Returns:
        0 if every task ended with 0; 2 if the task that failed first ended with 2; 1 for any other failure;
        130 or 143 after SIGINT or SIGTERM.

    Raises:
        OptionError: a count is out of range, such hosts cannot be made here, or a folder cannot be made.
        UsageError: a delay of `config.straggler`, or a fault, cannot be, or is for a task that there is not.
        RunError: a host cannot be made, or a task cannot be started.
    """
    _check_counts(num_ps, num_workers, num_evaluators)
    if max_restarts is not None and max_restarts < 0:
        raise OptionError(f"--max_restarts={max_restarts}: max_restarts must be at least 0")
    if config.straggler:
        from ps_trainer.disturbances import delays

        delays.parse_all(config.straggler, num_workers)
    hosts = hosts or LocalHosts()
    planned = faults_lib.parse_all(
        faults,
        faults_lib.ClusterShape(
            num_ps=num_ps,
            num_workers=num_workers,
            num_evaluators=num_evaluators,
            max_steps=config.max_steps,
            has_links=hosts.has_links,
        ),
    )
    restarts = Restarts(faults_lib.num_chaos_kills(planned) if max_restarts is None else max_restarts)
    counts = {"ps": num_ps, "worker": num_workers, "evaluator": num_evaluators}
    names = [(job_name, index) for job_name, count in counts.items() for index in range(count)]
    console = console or Console()
    # Signals are recorded from before the first host is made until the last one is removed.
    with SignalRecorder(clock) as signals, hosts as entered, contextlib.ExitStack() as files:
        logdir = create_logdir(config)
        started_at = time.time()
        # What killed tasks leave there ends with the run.
        temporary = files.enter_context(temporary_folder())
        environment = task_environment(environ, temporary)
        if preload and server is None and ForkServer.is_available():
            server = files.enter_context(ForkServer(environment, logdir / "logs" / "forkserver.log", str(logdir)))
        placed = entered.place([f"{job}-{index}" for job, index in names if job != "evaluator"])
        flags = [*cluster_flags(placed), *train_args, f"--logdir={logdir}"]
        tasks = [
            TaskProcess(
                job_name=job,
                task_index=index,
                log_path=logdir / "logs" / f"{job}-{index}.log",
                env=environment,
                clock=clock,
                **_start_of(
                    [*task_command, *_role_flags(job, index), *flags], placed.get(f"{job}-{index}"), server, spawn
                ),
            )
            for job, index in names
        ]
        board = Board(tasks, logdir / "metrics", config.max_steps)
        log = EventLog(logdir / "metrics")
        injector = Injector(planned, tasks=tasks, board=board, log=log, set_link=entered.set_link, clock=clock)
        evaluators = f", {num_evaluators} evaluator" if num_evaluators else ""
        where = f" in {entered.summary}" if entered.summary else ""
        headline = f"{num_ps} ps, {num_workers} workers{evaluators}{where}; files in {logdir}"
        console.print(headline, highlight=False, soft_wrap=True)
        with create_view(board, console, plain, clock) as view:
            if server:
                server.wait_until_ready(lambda: signals.first is not None)
            outcome = Supervisor(
                tasks=tasks,
                board=board,
                watcher=view,
                signals=signals,
                limits=limits or Limits(evaluator_exit=config.stall_timeout_secs),
                restarts=restarts,
                injector=injector if planned else None,
                log=log,
                clock=clock,
            ).run()
            view.finish(outcome, str(logdir))
        if planned or restarts.max_restarts:
            summary.complete(logdir, outcome, started_at=started_at, restarts=restarts.counts, faults=injector.report())
        entered.write_report(logdir)
    return outcome.exit_code


def create_logdir(config: TrainConfig, now: datetime.datetime | None = None) -> pathlib.Path:
    """Makes the run's folder, with its `logs`: `config.logdir`, or a new one under `runs`.

    Raises:
        OptionError: the folder cannot be made.
    """
    if config.logdir:
        path = pathlib.Path(config.logdir)
    else:
        stamp = (now or datetime.datetime.now()).strftime("%Y%m%d-%H%M%S")
        names = (re.sub(r"[^A-Za-z0-9_.]+", "-", name) for name in (config.model, config.update))
        path = _unused(pathlib.Path("runs") / "-".join([*names, stamp]))
    try:
        (path / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"--logdir={path}: cannot make this folder ({error}); name one that can be written"
        ) from error
    return path


def temporary_folder() -> tempfile.TemporaryDirectory:
    """A new folder for temporary files; on entering, its path; on leaving, it is removed with what is in it.

    Raises:
        OptionError: there is no place for it.
    """
    try:
        return tempfile.TemporaryDirectory(prefix="ps_trainer-", ignore_cleanup_errors=True)
    except OSError as error:
        raise OptionError(
            f"no folder for temporary files can be made ({error}); set TMPDIR to a folder that can be written"
        ) from error


def cluster_flags(placed: Mapping[str, TaskHost]) -> list[str]:
    """`--ps_hosts` and `--worker_hosts` with the address of each task; the tasks of a job in their order."""
    by_job = {
        job: [host.address for task, host in placed.items() if task.startswith(f"{job}-")] for job in ("ps", "worker")
    }
    return [f"--{job}_hosts={','.join(addresses)}" for job, addresses in by_job.items()]


def task_environment(environ: Mapping[str, str], temporary: str | None = None) -> dict[str, str]:
    """The environment of a task: that of the launcher, with additions.

    The pid lets a task notice that the launcher was killed. Output is unbuffered, so that the log of a
    task that crashes holds its last lines. A `TF_CONFIG` describes another cluster, not this one.

    Args:
        environ: of the launcher.
        temporary: folder for temporary files; None = as `environ` says.
    """
    defaults = {"PYTHONUNBUFFERED": "1"}
    environment = {**defaults, **environ, PARENT_PID_VARIABLE: str(os.getpid())}
    if temporary is not None:
        environment["TMPDIR"] = temporary
    environment.pop("TF_CONFIG", None)
    return environment


def _start_of(
    command: Sequence[str], host: TaskHost | None, server: ForkServer | None, spawn: Callable[..., subprocess.Popen]
) -> dict[str, Any]:
    """What starts a task, and by which command; the evaluator has no host, as it talks to nobody."""
    prefix = host.prefix if host else ()
    if server is None:
        return {"command": [*prefix, *command], "spawn": spawn}

    def fork(command: Sequence[str], **kwargs: Any) -> Any:
        try:
            return server.popen(command, netns=host.netns if host else None, **kwargs)
        except ForkServerEndedError as error:  # somebody has killed it, perhaps for its memory
            logging.warning("%s; a fresh process is started instead", error)
            return spawn([*prefix, *command], **kwargs)

    return {"command": command, "spawn": fork}


def _role_flags(job_name: str, index: int) -> list[str]:
    return [f"--job_name={job_name}", f"--task_index={index}"]


def _check_counts(num_ps: int, num_workers: int, num_evaluators: int) -> None:
    for flag, count in (("num_ps", num_ps), ("num_workers", num_workers)):
        if count < 1:
            raise OptionError(f"--{flag}={count}: {flag} must be at least 1")
        if count > _MAX_TASKS:
            raise OptionError(f"--{flag}={count}: {flag} must be at most {_MAX_TASKS}: one machine has no more ports")
    if num_evaluators not in (0, 1):
        raise OptionError(f"--num_evaluators={num_evaluators}: 0 or 1 is allowed; one evaluator sees every checkpoint")


def _unused(path: pathlib.Path) -> pathlib.Path:
    number = 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
