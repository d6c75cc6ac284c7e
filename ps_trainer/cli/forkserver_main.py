"""The process behind `forkserver.ForkServer`: imports TensorFlow, then forks tasks until its socket is closed.

python -m ps_trainer.cli.forkserver_main SOCKET_FD LABEL
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

from ps_trainer.launch.forkserver import (
    PROGRAM,
    READY,
    ForkAnswer,
    ForkRequest,
    allow_forks,
    become_background,
    receive,
    send,
)

_PR_SET_NAME = 15
_CLONE_NEWNET = 0x40000000


def main(sock: socket.socket) -> None:
    """Serves until the other side of the socket is closed."""
    from ps_trainer.runtime import environment, tensorflow_import

    environment.prepare(is_ps=False)
    tensorflow_import.load()

    import ps_trainer.training.task  # noqa: F401 - every task imports this

    # The warning counts the threads of NumPy's BLAS, but BLAS ends them itself before a fork.
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    gc.collect()
    gc.freeze()  # a collection would write to every object, and so copy the shared memory pages
    try:
        sock.sendall(READY)
        while (request := receive(sock)) is not None:
            send(sock, _fork(sock, ForkRequest(**request.message), request.fds)._asdict())
            for fd in request.fds:
                os.close(fd)
    except ConnectionError:
        pass  # the launcher has ended


def _fork(sock: socket.socket, request: ForkRequest, fds: Sequence[int]) -> ForkAnswer:
    """Forks a task that becomes a child of the launcher; returns its pid or an error.

    Two forks are needed: the kernel gives a process whose parent has ended to the launcher, which is a subreaper.
    """
    pid_read, pid_write = os.pipe()
    go_read, go_write = os.pipe()
    between = os.fork()
    if not between:
        try:
            pid = os.fork()
            if not pid:
                # With its copy of go_write the task would wait for itself. A copy of the socket would hide the fork
                # server's end from the launcher.
                for fd in (pid_read, pid_write, go_write, sock.detach()):
                    os.close(fd)
                _be_task(request, fds, go_read)
            os.write(pid_write, str(pid).encode())
        finally:
            os._exit(0)
    os.close(pid_write)
    # Its end is what makes the launcher the parent of the task.
    os.waitpid(between, 0)
    os.close(go_write)  # the task starts only now, because the launcher is its parent now
    os.close(go_read)
    with os.fdopen(pid_read) as file:
        answer = file.read()
    return ForkAnswer(pid=int(answer)) if answer else ForkAnswer(error="cannot fork another process")


def _be_task(request: ForkRequest, fds: Sequence[int], go_read: int) -> NoReturn:
    """Turns this process into a task and runs it to its end."""
    try:
        become_background(fds[0])
        # If the task is itself a launcher, it can fork its own tasks without another import of TensorFlow.
        allow_forks(main)
        os.environ.clear()
        os.environ.update(request.env)
        os.read(go_read, 1)  # returns when all other processes have closed the pipe
        libc = ctypes.CDLL(None, use_errno=True)
        # `setns` moves only the calling thread. TensorFlow's threads start later and inherit its namespace.
        if len(fds) > 1 and libc.setns(fds[1], _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter the network namespace")
        for fd in (go_read, *fds):
            os.close(fd)
        libc.prctl(_PR_SET_NAME, _short_name(request.args).encode(), 0, 0, 0)
        sys.argv = [PROGRAM[-1], *request.args]

        from ps_trainer.cli.main import console

        console()
    except BaseException:  # noqa: BLE001 - every error must reach the task's log
        traceback.print_exc()
        sys.stderr.flush()
    # `console` ends the process itself, so only an error leads here.
    os._exit(1)


def _short_name(args: Sequence[str]) -> str:
    """Returns the job name and task index, for listings such as `top`."""
    flags = dict(arg.lstrip("-").split("=", 1) for arg in args if "=" in arg)
    return "-".join(flags[name] for name in ("job_name", "task_index") if name in flags) or PROGRAM[-1]


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
