"""`ForkServer`: a process that has imported TensorFlow and forks the tasks of a launcher (Linux).

Importing TensorFlow takes seconds of CPU time and hundreds of megabytes in every process. The fork server imports it
once for all tasks of a launcher, and the tasks share the memory.

    launcher ── socket ── fork server ── fork ── (in between) ── fork ── task

The process in between ends at once. The task then becomes a child of the launcher, because the launcher has asked the
kernel for its orphaned descendants ("subreaper"). So the launcher can wait for a task and signal it, as if it had
started the task itself. A killed launcher leaves the task without a parent.

A launcher that was itself forked from a fork server becomes its own fork server by one more fork.

Forking is safe because no thread runs in the fork server. It has made no session or server, and has not looked for
GPUs. NumPy's BLAS ends its threads before a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, NamedTuple

from ps_trainer.errors import RunError
from ps_trainer.launch import tail
from ps_trainer.launch.process import StartedProcess

READY = b"ready"
PROGRAM = (sys.executable, "-m", "ps_trainer")  # the start of every command that can be forked

# An import of TensorFlow takes about 5 s of CPU time; the limit is for machines that are busy with many other tasks.
_READY_SECS = 300.0
_FORK_SECS = 30.0
_LOG_LINES = 40
_MODULE = "ps_trainer.cli.forkserver_main"
_LENGTH = struct.Struct("!I")
_PR_SET_CHILD_SUBREAPER = 36
_serve: list[
    Callable[[socket.socket], None]
] = []  # the function that a fork server runs, in a process that can become one


class ForkedProcess(NamedTuple):
    """A forked task, with the part of `subprocess.Popen` that `TaskProcess` uses."""

    pid: int

    def wait(self) -> int:
        """Waits for the end of the task; returns its exit code, negative = number of the signal that killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class ForkServerEndedError(OSError):
    """The fork server has ended or was killed, and no process was forked."""


class ForkServer:
    """Starts the process on entering and ends it on leaving; forked tasks live on.

    Args:
        environ: Environment in which TensorFlow is imported.
        log_path: File for the output; its folder must exist.
        label: Last argument on the command line of the process and of all forked tasks, for listings of processes.
    """

    def __init__(self, environ: Mapping[str, str], log_path: pathlib.Path, label: str):
        self._environ = environ
        self._log_path = log_path
        self._label = label
        self._process: StartedProcess  # set on entering, as is the socket
        self._socket: socket.socket
        self._is_ready = False

    @staticmethod
    def is_available() -> bool:
        """Returns whether this system supports fork servers."""
        return sys.platform == "linux"

    def __enter__(self) -> ForkServer:
        _be_subreaper()
        self._socket, theirs = socket.socketpair()
        with theirs, self._log_path.open("ab") as log:
            # A process that can fork has TensorFlow in memory, so its fork server need not import it again.
            self._process = self._fork(theirs, log) if _serve else self._spawn(theirs, log)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()
        # SIGKILL is safe, as it holds no state; during the import it would not notice the closed socket.
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_until_ready(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Waits until TensorFlow is imported, or until `is_cancelled()`.

        Raises:
            RunError: The import failed, with the end of the log; or it took longer than 5 minutes.
        """
        if self._is_ready:
            return
        deadline = time.monotonic() + _READY_SECS
        # Short waits: the launcher's signal handlers only record a signal, after which Python continues a `select`.
        while not select.select([self._socket], [], [], 0.1)[0]:
            if is_cancelled():
                return
            if time.monotonic() > deadline:
                raise RunError(f"the import of TensorFlow took longer than {_READY_SECS:g} s; see {self._log_path}")
        # No bytes mean that the process ended during the import, which closed its end of the socket.
        if self._socket.recv(len(READY)) != READY:
            raise RunError("\n".join(["TensorFlow cannot be imported", *tail.last_lines(self._log_path, _LOG_LINES)]))
        self._is_ready = True

    def popen(
        self,
        command: Sequence[str],
        *,
        stdout: IO[bytes],
        env: Mapping[str, str],
        netns: str | None = None,
        **_fixed: Any,
    ) -> ForkedProcess:
        """Forks a process that runs the command; used like `subprocess.Popen` once the server is ready.

        The process has its own session and no standard input, and writes its errors to `stdout`.

        Args:
            command: Command that starts with `PROGRAM`.
            stdout: File for the output.
            env: Environment of the process.
            netns: Name of the network namespace to enter; None = the namespace of the launcher.

        Raises:
            ForkServerEndedError: The fork server has ended.
            OSError: The process could not be forked.
        """
        if tuple(command[: len(PROGRAM)]) != PROGRAM:
            raise ValueError(f"{command} does not start with {PROGRAM}")
        request = ForkRequest(list(command[len(PROGRAM) :]), dict(env))
        with contextlib.ExitStack() as files:
            fds = [stdout.fileno()]
            if netns is not None:
                fds.append(files.enter_context(open(f"/run/netns/{netns}", "rb")).fileno())
            # A stopped fork server must not block the launcher. The timeout is an OSError, which `start` reports.
            self._socket.settimeout(_FORK_SECS)
            try:
                send(self._socket, request._asdict(), fds)
                received = receive(self._socket)
            except (BrokenPipeError, ConnectionResetError):
                # Which error, or None from `receive`, depends on how much of the request the server had read.
                received = None
        if received is None:
            raise ForkServerEndedError(f"the fork server has ended; see {self._log_path}")
        answer = ForkAnswer(**received.message)
        if answer.pid is None:
            raise OSError(answer.error)
        return ForkedProcess(answer.pid)

    def _spawn(self, theirs: socket.socket, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(theirs.fileno()), self._label],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(self._environ),
            # A Ctrl-C at the terminal must not end it: the launcher decides, and may need it for restarts until then.
            start_new_session=True,
        )

    def _fork(self, theirs: socket.socket, log: IO[bytes]) -> ForkedProcess:
        pid = os.fork()
        if not pid:
            try:
                # An open copy of the launcher's end would keep the server from noticing that the launcher ended.
                self._socket.close()
                # The launcher's handlers only record a signal. Inherited, they would make this process ignore SIGTERM.
                for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(signum, signal.SIG_DFL)
                become_background(log.fileno())
                _serve[0](theirs)
            finally:
                # Even after an error this process must not return into the launcher's code, which would then run twice.
                os._exit(0)
        return ForkedProcess(pid)


class ForkRequest(NamedTuple):
    """Request of the launcher to the fork server: the arguments after `PROGRAM`, and the environment of the process."""

    args: list[str]
    env: dict[str, str]


class ForkAnswer(NamedTuple):
    """Answer of the fork server: the pid of the process, or, if that is None, why no process was forked."""

    pid: int | None = None
    error: str | None = None


class ForkMessage(NamedTuple):
    """A message and the open files that came with it."""

    message: dict[str, Any]
    fds: list[int]


def send(sock: socket.socket, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Sends a JSON object and open files."""
    body = json.dumps(message).encode()
    # The files go with the header: the receiver gets them only with the bytes that they were sent with.
    socket.send_fds(sock, [_LENGTH.pack(len(body))], fds)
    sock.sendall(body)


def receive(sock: socket.socket) -> ForkMessage | None:
    """Returns the next message; None if the other side has closed the socket."""
    # At most two files: the output, and the network namespace.
    header, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, 2)
    if len(header) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(header)
    body = b""
    while len(body) < size:
        if not (part := sock.recv(size - len(body))):
            return None
        body += part
    return ForkMessage(json.loads(body), list(fds))


def become_background(output_fd: int) -> None:
    """Gives this process its own session, no standard input, and a file for its output, as `popen` promises."""
    os.setsid()
    for fd, standard in ((os.open(os.devnull, os.O_RDONLY), 0), (output_fd, 1), (output_fd, 2)):
        os.dup2(fd, standard)


def allow_forks(serve: Callable[[socket.socket], None]) -> None:
    """Declares that this process has no threads, so that it may become a fork server itself by running `serve`."""
    _serve.append(serve)


def _be_subreaper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
