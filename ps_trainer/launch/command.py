"""Runs `python -m ps_trainer local` as a child process to its end: for callers that train many times."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from ps_trainer.errors import RunError
from ps_trainer.launch import tail

OUTPUT_NAME = "output.txt"

_END_SECS = 30.0
_LOG_LINES = 40


def local_command(flags: Sequence[str]) -> list[str]:
    """The command of a local cluster with these flags, shown in plain lines."""
    return [sys.executable, "-m", "ps_trainer", "local", *flags, "--plain"]


def run_local(
    flags: Sequence[str],
    logdir: pathlib.Path,
    deadline_secs: float,
    *,
    cwd: pathlib.Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> float:
    """Trains once; nothing is left running, whatever happens.

    Args:
        flags: of `local`, without `--logdir`.
        logdir: of the run; made here if need be. The launcher's output goes into its `output.txt`.
        deadline_secs: after so long the run has failed.
        cwd: folder to start from; None = the present one.
        environ: the environment; see `cpu_environment` for what is changed in it.

    Returns:
        Seconds from the start of the launcher to its end.

    Raises:
        RunError: the run failed or was too slow; holds the end of the output.
    """
    logdir.mkdir(parents=True, exist_ok=True)
    output = logdir / OUTPUT_NAME
    started = time.monotonic()
    with output.open("wb") as file:
        launcher = subprocess.Popen(
            local_command([*flags, f"--logdir={logdir}"]),
            cwd=cwd,
            env=cpu_environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
        try:
            code = launcher.wait(deadline_secs)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"not done after {deadline_secs:g} s\n{_end_of(output)}") from error
        finally:
            _end(launcher)
    if code:
        raise RunError(f"exit code {code}\n{_end_of(output)}")
    return time.monotonic() - started


def cpu_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without GPU, without proxy (gRPC would send loopback traffic there), with few log lines."""
    environ = {name: value for name, value in environ.items() if name.lower() not in ("http_proxy", "https_proxy")}
    environ["CUDA_VISIBLE_DEVICES"] = ""
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return environ


def _end(launcher: subprocess.Popen) -> None:
    """Asks the launcher to end its tasks, if it still runs; killed, its tasks notice that and end as well."""
    if launcher.poll() is not None:
        return
    launcher.terminate()
    try:
        launcher.wait(_END_SECS)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()


def _end_of(output: pathlib.Path) -> str:
    return "\n".join([f"--- the end of {output}", *tail.last_lines(output, _LOG_LINES)])
