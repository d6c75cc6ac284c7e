"""A fork server: a process that has imported TensorFlow, and of which a launcher's tasks are forked (Linux).

To import TensorFlow takes seconds of CPU and hundreds of megabytes in every process. Here it is done once for all
tasks of a launcher, and they share the memory.

    launcher ── socket ── fork server ── fork ── (in between) ── fork ── task

The process in between ends at once. The task then becomes a child of the launcher, which has asked the kernel for
its orphaned descendants ("subreaper"). So a task is waited for, signalled, and left without a parent when the
launcher is killed, as if the launcher had started it itself.

A launcher that was itself forked of such a process becomes its own fork server, by one more fork.

Forking is safe because nothing runs in the fork server: no session or server has been made, no GPU was looked for,
and NumPy's BLAS ends its threads before a fork.
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
PROGRAM = (sys.executable, "-m", "ps_trainer")  # what can be forked: commands that start like this

_READY_SECS = 300.0
_FORK_SECS = 30.0
_LOG_LINES = 40
_MODULE = "ps_trainer.cli.forkserver_main"
_LENGTH = struct.Struct("!I")
_PR_SET_CHILD_SUBREAPER = 36
_serve: list[Callable[[socket.socket], None]] = []  # what a fork server does, in a process that can become one


class ForkedProcess(NamedTuple):
    """A task that was forked: the part of `subprocess.Popen` that `TaskProcess` uses."""

    pid: int

    def wait(self) -> int:
        """Waits for its end; its exit code, negative = number of the signal that killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class ForkServerEndedError(OSError):
    """The fork server has ended, or was killed: nothing has been forked."""


class ForkServer:
    """Starts the process on entering, ends it on leaving; what was forked lives on.

    Args:
        environ: environment in which TensorFlow is imported.
        log_path: file for its output; its folder must exist.
        label: put on the command line of the process and so of everything forked, for listings of processes.
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
        """Whether this system has what it takes."""
        return sys.platform == "linux"

    def __enter__(self) -> ForkServer:
        _be_subreaper()
        self._socket, theirs = socket.socketpair()
        with theirs, self._log_path.open("ab") as log:
            self._process = self._fork(theirs, log) if _serve else self._spawn(theirs, log)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()
        # It holds nothing; and as long as it imports, it would not notice the closed socket.
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_until_ready(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Waits until TensorFlow is imported, or until `is_cancelled()`.

        Raises:
            RunError: it could not be imported; holds the end of the log. Or it takes longer than 5 minutes.
        """
        if self._is_ready:
            return
        deadline = time.monotonic() + _READY_SECS
        while not select.select([self._socket], [], [], 0.1)[0]:
            if is_cancelled():
                return
            if time.monotonic() > deadline:
                raise RunError(f"TensorFlow is not imported after {_READY_SECS:g} s; see {self._log_path}")
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
        """Forks a process that does what the command would; to be used like `subprocess.Popen`, once ready.

        It is in a session of its own, without standard input, and writes its errors to `stdout`.

        Args:
            command: starts with `PROGRAM`.
            stdout: file for its output.
            env: its environment.
            netns: name of the network namespace to enter; None = that of the launcher.

        Raises:
            ForkServerEndedError: there is none any more.
            OSError: the process could not be forked.
        """
        if tuple(command[: len(PROGRAM)]) != PROGRAM:
            raise ValueError(f"{command} does not start with {PROGRAM}")
        request = {"args": list(command[len(PROGRAM) :]), "env": dict(env)}
        with contextlib.ExitStack() as files:
            fds = [stdout.fileno()]
            if netns is not None:
                fds.append(files.enter_context(open(f"/run/netns/{netns}", "rb")).fileno())
            self._socket.settimeout(_FORK_SECS)
            try:
                send(self._socket, request, fds)
                answer = receive(self._socket)
            except (BrokenPipeError, ConnectionResetError):
                answer = None
        if answer is None:
            raise ForkServerEndedError(f"the fork server has ended; see {self._log_path}")
        if "error" in answer.message:
            raise OSError(answer.message["error"])
        return ForkedProcess(answer.message["pid"])

    def _spawn(self, theirs: socket.socket, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(theirs.fileno()), self._label],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(self._environ),
            start_new_session=True,
        )

    def _fork(self, theirs: socket.socket, log: IO[bytes]) -> ForkedProcess:
        pid = os.fork()
        if not pid:
            try:
                self._socket.close()
                for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(signum, signal.SIG_DFL)
                become_background(log.fileno())
                _serve[0](theirs)
            finally:
                os._exit(0)
        return ForkedProcess(pid)


class Received(NamedTuple):
    """A message, with the open files that came with it."""

    message: dict[str, Any]
    fds: list[int]


def send(sock: socket.socket, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Sends a JSON object and open files."""
    body = json.dumps(message).encode()
    socket.send_fds(sock, [_LENGTH.pack(len(body))], fds)
    sock.sendall(body)


def receive(sock: socket.socket) -> Received | None:
    """The next message; None when the other side has closed."""
    header, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, 2)
    if len(header) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(header)
    body = b""
    while len(body) < size:
        if not (part := sock.recv(size - len(body))):
            return None
        body += part
    return Received(json.loads(body), list(fds))


def become_background(output_fd: int) -> None:
    """Makes this process one like those of `popen`: a session of its own, no input, output into the file."""
    os.setsid()
    for fd, standard in ((os.open(os.devnull, os.O_RDONLY), 0), (output_fd, 1), (output_fd, 2)):
        os.dup2(fd, standard)


def allow_forks(serve: Callable[[socket.socket], None]) -> None:
    """Says that this process was forked of a fork server, has no thread, and may become one itself by `serve`."""
    _serve.append(serve)


def _be_subreaper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
