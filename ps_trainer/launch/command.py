"""Runs `python -m ps_trainer local` as a child process, for callers that train many times."""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from ps_trainer.errors import RunError
from ps_trainer.launch.forkserver import PROGRAM, ForkServer
from ps_trainer.launch.process import StartedProcess, TaskProcess

OUTPUT_NAME = "output.txt"

# The launcher kills its tasks within 10 s (`supervisor.ShutdownDeadlines`), so only one that hangs reaches this limit.
_END_SECS = 30.0
_POLL_SECS = 0.05
_SERVER_LOG_NAME = "forkserver.txt"
_LOG_LINES = 40
_servers: list[ForkServer] = []


def local_command(flags: Sequence[str]) -> list[str]:
    """Returns the command of a local cluster with these flags, which prints plain lines."""
    return [*PROGRAM, "local", *flags, "--plain"]


def run_local(
    flags: Sequence[str],
    logdir: pathlib.Path,
    deadline_secs: float,
    *,
    cwd: pathlib.Path | None = None,
    environ: Mapping[str, str] = os.environ,
    preloaded: bool = False,
) -> float:
    """Trains once and leaves no task running, even after an error.

    Args:
        flags: Flags of `local`, without `--logdir`.
        logdir: Folder of the run, created if it is missing. The launcher's output goes into its `output.txt`.
        deadline_secs: Time in seconds after which the run has failed.
        cwd: Working folder of the launcher; None = the current folder. Without effect if `preloaded`.
        environ: Environment, which `cpu_environment` changes.
        preloaded: True forks the launcher from a process that has imported TensorFlow, if the system supports it, so
            that it starts at once. The first such call starts that process, which ends with the calling process.

    Returns:
        Seconds from the start of the launcher to its end.

    Raises:
        RunError: The run failed or was too slow; the message contains the end of the output.
    """
    logdir.mkdir(parents=True, exist_ok=True)
    output = logdir / OUTPUT_NAME
    # `TaskProcess` appends, so the output of an earlier run in this folder would stand before the output of this one.
    output.unlink(missing_ok=True)
    launcher = TaskProcess(
        job_name="local",
        task_index=0,
        command=local_command([*flags, f"--logdir={logdir}"]),
        log_path=output,
        env=cpu_environment(environ),
        spawn=_preloaded_popen(logdir) if preloaded else functools.partial(subprocess.Popen, cwd=cwd),
    )
    launcher.start()
    try:
        while launcher.poll() is None:
            if launcher.elapsed_secs > deadline_secs:
                raise RunError(f"not finished after {deadline_secs:g} s\n{_end_of(launcher)}")
            time.sleep(_POLL_SECS)
    finally:
        _end(launcher)
    if launcher.exit_code:
        raise RunError(f"exit code {launcher.exit_code}\n{_end_of(launcher)}")
    return launcher.elapsed_secs


def cpu_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without GPUs or proxy (gRPC would send loopback traffic to it), and with few log lines."""
    environ = {name: value for name, value in environ.items() if name.lower() not in ("http_proxy", "https_proxy")}
    environ["CUDA_VISIBLE_DEVICES"] = ""
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return environ


def _end(launcher: TaskProcess) -> None:
    """Asks the launcher to end its tasks, and kills it after a while; then its tasks notice and end by themselves."""
    launcher.terminate()
    until = time.monotonic() + _END_SECS
    while launcher.poll() is None:
        if time.monotonic() > until:
            launcher.kill()
        time.sleep(_POLL_SECS)


def _end_of(launcher: TaskProcess) -> str:
    return "\n".join([f"--- the end of {launcher.log_path}", *launcher.log_tail(_LOG_LINES)])


def shared_server(logdir: pathlib.Path) -> ForkServer | None:
    """Returns the fork server for all runs of this process: the first call starts it, and it ends with this process.

    Args:
        logdir: Existing folder for the output of a new fork server.

    Returns:
        The server, ready to fork; None if the system does not support it.

    Raises:
        RunError: TensorFlow cannot be imported.
    """
    if not ForkServer.is_available():
        return None
    if not _servers:
        # It is entered but never left: it ends when the end of this process closes the socket between them.
        server = ForkServer(cpu_environment(os.environ), logdir / _SERVER_LOG_NAME, "local").__enter__()
        server.wait_until_ready()
        _servers.append(server)
    return _servers[0]


def _preloaded_popen(logdir: pathlib.Path) -> Callable[..., StartedProcess]:
    server = shared_server(logdir)
    return server.popen if server else subprocess.Popen
