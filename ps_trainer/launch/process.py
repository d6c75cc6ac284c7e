"""`TaskProcess`: one task of a cluster as a child process, with its start, its end and its log."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ps_trainer.errors import RunError
from ps_trainer.launch import tail

# How `cli.command_wrapper` and `runtime.job_runner` write the error that ends a process; the prefix is absl's.
_ERROR = re.compile(r"(?:E\d{4} [^\]]*\] )?error: ")
_LOGGED = re.compile(r"[IWEF]\d{4} ")
_ERROR_LINES = 25


class StartedProcess(Protocol):
    """The part of `subprocess.Popen` that `TaskProcess` uses."""

    @property
    def pid(self) -> int:
        """Process id."""

    def wait(self) -> int:
        """Waits for the end of the process; returns its exit code, negative for the number of a signal."""


class TaskProcess:
    """A child process in a separate session, and so in a separate process group.

    The session keeps a Ctrl-C at the terminal away from it: the launcher decides when each task ends. After the child
    has ended, the rest of its process group is killed. Its standard output and error are appended to one log file.

    Args:
        job_name: Name of the job: "ps", "worker" or "evaluator".
        task_index: Index within the job.
        command: Program and arguments.
        log_path: File for the output; its folder must exist.
        env: Whole environment of the child; None = the environment of this process. A change takes effect at the next
            start.
        spawn: `subprocess.Popen` or a replacement.
        time_fn: Monotonic time in seconds.
    """

    def __init__(
        self,
        *,
        job_name: str,
        task_index: int,
        command: Sequence[str],
        log_path: pathlib.Path,
        env: Mapping[str, str] | None = None,
        spawn: Callable[..., StartedProcess] = subprocess.Popen,
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self.job_name = job_name
        self.task_index = task_index
        self.log_path = log_path
        self.exit_code: int | None = None  # as subprocess reports it: negative = number of the signal
        self.started_at: float | None = None  # by `time_fn`
        self.ended_at: float | None = None
        self.is_asked_to_end = False
        self.num_starts = 0
        self.env = env
        self._command = list(command)
        self._spawn = spawn
        self._time_fn = time_fn
        self._popen: StartedProcess | None = None
        self._log_start = 0

    @property
    def name(self) -> str:
        """Job name and task index, for example `worker-0`."""
        return f"{self.job_name}-{self.task_index}"

    @property
    def pid(self) -> int | None:
        """Process id and process group id; None before the start."""
        return self._popen.pid if self._popen else None

    @property
    def is_running(self) -> bool:
        """Whether the child was started and had not ended at the last `poll`."""
        return self._running is not None

    @property
    def elapsed_secs(self) -> float:
        """Seconds from the start to the end or to now."""
        if self.started_at is None:
            return 0.0
        return (self._time_fn() if self.ended_at is None else self.ended_at) - self.started_at

    def start(self) -> None:
        """Starts the child, or restarts it after its end as a new process with the same command.

        Raises:
            RunError: The program cannot be run, or the log file cannot be written.
        """
        try:
            # Appended, so that after a restart the log still says why the process before has ended.
            with self.log_path.open("ab") as log:
                if log.tell():
                    with contextlib.suppress(OSError):  # a full disk must not keep a task from starting
                        log.write(f"\n{'=' * 20} {time.strftime('%Y-%m-%d %H:%M:%S')} new run {'=' * 20}\n".encode())
                        log.flush()
                self._log_start = log.tell()
                self._popen = self._spawn(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self.env,
                    start_new_session=True,
                )
        except OSError as error:
            raise RunError(f"{self.name}: cannot start {self._command[0]}, log in {self.log_path}: {error}") from error
        self.started_at = self._time_fn()
        self.ended_at = self.exit_code = None
        self.num_starts += 1

    def poll(self) -> int | None:
        """Returns the exit code if the child has ended (negative: number of the signal), else None; never blocks."""
        child = self._running
        if child is None:
            return self.exit_code
        # WNOWAIT only looks: the dead child stays a zombie, and so keeps its pid, until `wait` collects it below.
        if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        # Until the dead child is collected, the kernel gives the group's number to no other process.
        _signal_group(child, signal.SIGKILL)
        self.exit_code = child.wait()
        self.ended_at = self._time_fn()
        return self.exit_code

    def announce_end(self) -> None:
        """Notes that the run ends, so the child ends soon, by itself or because it is asked to."""
        self.poll()
        self.is_asked_to_end = self.is_asked_to_end or self.is_running

    def terminate(self) -> None:
        """Asks the child, but not its children, to end by SIGTERM. Does nothing if it has ended."""
        self.poll()
        if child := self._running:
            self.is_asked_to_end = True
            os.kill(child.pid, signal.SIGTERM)  # this pid is still the child's, because the child is not collected yet

    def kill(self) -> None:
        """Kills the child and its process group by SIGKILL. Does nothing if it has ended."""
        self.poll()
        if child := self._running:
            self.is_asked_to_end = True
            _signal_group(child, signal.SIGKILL)

    def send(self, signum: int) -> None:
        """Sends a signal that should not end the run. Does nothing if the last `poll` found the child ended."""
        if child := self._running:
            os.kill(child.pid, signum)  # this pid is still the child's, because the child is not collected yet

    def outcome(self) -> str:
        """Returns in words how the child ended: done, stopped (by the launcher), failed (exit 1), killed (SIGSEGV)."""
        if self.exit_code is None:
            return "not started" if self._popen is None else "stopping" if self.is_asked_to_end else "running"
        if self.exit_code == 0:
            return "done"
        # A task that has its handlers exits with 143. One that was still starting dies of the signal itself.
        if self.is_asked_to_end and self.exit_code in (-signal.SIGTERM, 128 + signal.SIGTERM):
            return "stopped"
        if self.is_asked_to_end and self.exit_code == -signal.SIGKILL:
            return "stopped (SIGKILL)"
        if self.exit_code < 0:
            return f"killed ({_signal_name(-self.exit_code)})"
        return f"failed (exit {self.exit_code})"

    def log_tail(self, num_lines: int) -> list[str]:
        """Returns the last lines that the child has written to the log since its last start."""
        return tail.last_lines(self.log_path, num_lines, start=self._log_start)

    def last_error(self) -> str | None:
        """Returns the last error among the last lines of the log since the last start; None if there is none."""
        lines = self.log_tail(_ERROR_LINES)
        for number, line in reversed(list(enumerate(lines))):
            if found := _ERROR.match(line):
                rest = itertools.takewhile(lambda later: not _LOGGED.match(later), lines[number + 1 :])
                return "\n".join([line[found.end() :], *rest])
        return None

    @property
    def _running(self) -> StartedProcess | None:
        """The child, unless the last `poll` found that it has ended."""
        return self._popen if self.exit_code is None else None


def _signal_group(child: StartedProcess, signum: int) -> None:
    # The group may be empty; macOS answers EPERM if only the dead child is in it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signum)


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
