"""Runs a whole cluster on this machine: hosts, folder of the run, tasks, and supervision until all have ended."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console

from ps_trainer.config import TrainConfig
from ps_trainer.disturbances import faults as faults_lib
from ps_trainer.errors import OptionError, UsageError
from ps_trainer.launch import summary_file, trial_build
from ps_trainer.launch.event_log import EventLog
from ps_trainer.launch.forkserver import ForkServer
from ps_trainer.launch.hosts import Hosts, LocalHosts
from ps_trainer.launch.injector import Injector
from ps_trainer.launch.local_cluster import LocalClusterSpec
from ps_trainer.launch.process import StartedProcess, TaskProcess
from ps_trainer.launch.restarts import Restarts
from ps_trainer.launch.signals import SignalRecorder
from ps_trainer.launch.status import Board
from ps_trainer.launch.supervisor import RunOutcome, ShutdownDeadlines, TaskSupervisor
from ps_trainer.launch.task_factory import TaskFactory, task_environment
from ps_trainer.launch.view import create_view

_RUNS = pathlib.Path("runs")
"""Folder of the runs whose user names no folder."""


def run(
    cluster: LocalClusterSpec,
    *,
    server: ForkServer | None = None,
    hosts: Hosts | None = None,
    spawn: Callable[..., StartedProcess] = subprocess.Popen,
    time_fn: Callable[[], float] = time.monotonic,
    environ: Mapping[str, str] = os.environ,
    console: Console | None = None,
) -> int:
    """Trains on a cluster of child processes and returns when all of them have ended.

    Args:
        cluster: Tasks to start, with their flags.
        server: Fork server of this process to use with `cluster.preload`; None starts one for this run.
        hosts: Where the tasks run; None = this machine itself.
        spawn: `subprocess.Popen` or a replacement; used for tasks that are not forked.
        time_fn: Monotonic time in seconds.
        environ: Environment that the tasks get, with additions.
        console: Where to print; None = standard output.

    Returns:
        0 if every task ended with 0; 2 if the task that failed first ended with 2; 1 for any other failure;
        130 or 143 after SIGINT or SIGTERM.

    Raises:
        OptionError: This system cannot make such hosts, or a folder cannot be made.
        UsageError: `cluster` is not valid, its model cannot be trained, or a task has rejected the input before a step.
        RunError: A host cannot be made, or a task cannot be started.
    """
    cluster.check()
    hosts = hosts or LocalHosts()
    faults = cluster.planned_faults(has_links=hosts.has_links)
    console = console or Console()
    # Signals are recorded from before the first host is made until the last one is removed.
    with SignalRecorder(time_fn) as signals, hosts as entered, contextlib.ExitStack() as resources:
        folder = resources.enter_context(_folder_of_run(cluster.config))
        # Tasks that are killed leave temporary files behind; in a folder of the run, these end with it.
        environment = task_environment(environ, resources.enter_context(temporary_folder()))
        server = resources.enter_context(_fork_server(cluster, server, environment, folder.path))
        local_run = _LocalRun(
            cluster=cluster,
            hosts=entered,
            folder=folder,
            environment=environment,
            server=server,
            signals=signals,
            console=console,
            time_fn=time_fn,
        )
        outcome = local_run.supervise(local_run.create_tasks(spawn), faults)
        entered.write_report(folder.path)
    return outcome.exit_code


def create_logdir(config: TrainConfig, now: datetime.datetime | None = None) -> pathlib.Path:
    """Makes the run's folder with its `logs`: `config.logdir`, or a new folder under `runs`.

    Raises:
        OptionError: The folder cannot be made.
    """
    if config.logdir:
        path = pathlib.Path(config.logdir)
    else:
        stamp = (now or datetime.datetime.now()).strftime("%Y%m%d-%H%M%S")
        names = (re.sub(r"[^A-Za-z0-9_.]+", "-", name) for name in (config.model, config.update))
        path = _find_unused(_RUNS / "-".join([*names, stamp]))
    try:
        (path / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--logdir={path}: cannot make this folder ({error}); name a writable folder") from error
    return path


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Returns a context manager for a new folder for temporary files, which is removed with its contents on leaving.

    Raises:
        OptionError: No folder can be made.
    """
    try:
        # Errors are ignored: a killed task that the kernel has not ended yet may still write into the folder.
        return tempfile.TemporaryDirectory(prefix="ps_trainer-", ignore_cleanup_errors=True)
    except OSError as error:
        raise OptionError(
            f"cannot make a folder for temporary files ({error}); set TMPDIR to a writable folder"
        ) from error


@dataclasses.dataclass
class _RunFolder:
    """The folder of a run.

    Attributes:
        path: Path of the folder.
        is_new: Whether the run has made it.
        is_unused: Whether the run has ended with nothing to keep.
    """

    path: pathlib.Path
    is_new: bool
    is_unused: bool = False


@contextlib.contextmanager
def _folder_of_run(config: TrainConfig) -> Iterator[_RunFolder]:
    """Makes the run's folder; if the input is rejected, or the folder is unused at the end, removes what is new there.

    Raises:
        OptionError: The folder cannot be made, or not be read.
    """
    given = pathlib.Path(config.logdir) if config.logdir else None
    try:
        before = set(given.iterdir()) if given is not None and given.is_dir() else None
    except OSError as error:
        raise OptionError(f"--logdir={given}: cannot read this folder ({error}); name another one") from error
    missing = [folder for folder in (given or _RUNS / "new").parents if not folder.exists()]
    folder = _RunFolder(create_logdir(config), is_new=before is None)
    try:
        yield folder
    except UsageError:
        folder.is_unused = True
        raise
    finally:
        if folder.is_unused:
            _remove_new(folder.path, before or set())
            for path in (folder.path, *missing) if folder.is_new else ():
                with contextlib.suppress(OSError):  # it has a checkpoint, or another run
                    path.rmdir()


def _has_checkpoint(logdir: pathlib.Path) -> bool:
    return any(logdir.glob("checkpoints/*.index"))


def _remove_new(logdir: pathlib.Path, before: set[pathlib.Path]) -> None:
    """Removes what is in a run's folder and was not there before it, unless the run has saved a checkpoint."""
    new = set(logdir.iterdir()) - before
    if logdir / "checkpoints" in new and _has_checkpoint(logdir):
        return
    for path in new:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _fork_server(
    cluster: LocalClusterSpec, given: ForkServer | None, environment: Mapping[str, str], logdir: pathlib.Path
) -> Iterator[ForkServer | None]:
    """Returns the run's fork server: the given one, or a new one that ends with the run; None if no task is forked."""
    if not cluster.is_forked:
        yield None
    elif given is not None:
        yield given
    else:
        with ForkServer(environment, logdir / "logs" / "forkserver.log", str(logdir)) as server:
            yield server


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LocalRun:
    """A run whose hosts and folder exist.

    Attributes:
        cluster: Tasks of the run, with their flags.
        hosts: Where the tasks run.
        folder: Folder of the run.
        environment: Environment of the tasks.
        server: Fork server; None if no task is forked.
        signals: Record of the signals that this process has received.
        console: Where to print.
        time_fn: Monotonic time in seconds.
    """

    cluster: LocalClusterSpec
    hosts: Hosts
    folder: _RunFolder
    environment: Mapping[str, str]
    server: ForkServer | None
    signals: SignalRecorder
    console: Console
    time_fn: Callable[[], float]

    def create_tasks(self, spawn: Callable[..., StartedProcess]) -> list[TaskProcess]:
        """Creates the tasks without starting them; `spawn` starts those that are not forked."""
        factory = TaskFactory(
            command=self.cluster.task_command,
            train_args=self.cluster.train_args,
            logdir=self.folder.path,
            environment=self.environment,
            server=self.server,
            spawn=spawn,
            time_fn=self.time_fn,
            is_alone=self.cluster.is_alone,
        )
        return factory.create_all(self.cluster.task_ids, self.hosts)

    def supervise(self, tasks: Sequence[TaskProcess], faults: Sequence[faults_lib.Fault]) -> RunOutcome:
        """Runs the tasks to their end, shows them meanwhile, and completes the summary of the run."""
        cluster, logdir = self.cluster, self.folder.path
        # Settings that may be rejected are checked first, because a rejected run leaves no folder.
        is_checked_first = self.server is not None and trial_build.is_needed(cluster.config, cluster.num_workers)
        if not is_checked_first:
            self._print_tasks()
        # Wall time, because `summary_file.complete` compares it with the time of a file.
        started_at = time.time()
        # Made before any task starts: a board ignores the lines that exist by then, which an earlier run has left.
        board = Board(tasks, logdir / "metrics", cluster.config.max_steps)
        log = EventLog(logdir / "metrics")
        injector = Injector(
            faults, tasks=tasks, board=board, log=log, set_link=self.hosts.set_link, time_fn=self.time_fn
        )
        num_kills = faults_lib.num_chaos_kills(faults)
        restarts = Restarts(num_kills if cluster.max_restarts is None else cluster.max_restarts)
        with create_view(board, self.console, self.time_fn, plain=cluster.plain) as view:
            if self.server is not None:
                self.server.wait_until_ready(lambda: self.signals.first is not None)
                warnings = self._check_components(self.server)
                if is_checked_first:
                    self._print_tasks()
                for warning in warnings:
                    self.console.print(f"warning: {warning}", style="yellow", highlight=False, soft_wrap=True)
            outcome = TaskSupervisor(
                board=board,
                observer=view,
                signals=self.signals,
                deadlines=cluster.deadlines or ShutdownDeadlines(evaluator_exit=cluster.config.stall_timeout_secs),
                restarts=restarts,
                injector=injector if faults else None,
                log=log,
                time_fn=self.time_fn,
            ).run()
            if outcome.rejection is not None:
                raise UsageError(outcome.rejection)
            board.refresh()
            is_untrained = board.reached_step is None and not _has_checkpoint(logdir)
            self.folder.is_unused = self.folder.is_new and outcome.signum is not None and is_untrained
            view.finish(outcome, None if self.folder.is_unused else str(logdir))
        # Without faults and restarts the launcher has nothing to add to the chief's summary.
        if faults or restarts.max_restarts:
            summary_file.complete(
                logdir, outcome, started_at=started_at, restarts=restarts.counts, faults=injector.report()
            )
        return outcome

    def _print_tasks(self) -> None:
        where = f" in {self.hosts.summary}" if self.hosts.summary else ""
        text = f"{self.cluster.summary}{where}; files in {self.folder.path}"
        self.console.print(text, highlight=False, soft_wrap=True)

    def _check_components(self, server: ForkServer) -> list[str]:
        """Checks the components and the user's own classes; returns the warnings about the model.

        Without a fork server a check of the user's own classes would have to import TensorFlow. That takes longer than
        everything else up to the first step. Each worker makes the same check before it joins the run, so a wrong model
        still ends the run with 2.

        Raises:
            UsageError: A setting is wrong, a class cannot be loaded, or the model cannot be trained.
        """
        if self.signals.first is not None:
            return []
        return trial_build.run(
            self.cluster.config,
            self.cluster.num_workers,
            self.cluster.train_args,
            spawn=server.popen,
            environ=self.environment,
            folder=pathlib.Path(self.environment["TMPDIR"]),
            is_cancelled=lambda: self.signals.first is not None,
        )


def _find_unused(path: pathlib.Path) -> pathlib.Path:
    # Two runs of the same model may begin within one second.
    number = 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
