"""Builds a run's model once in a child process, before the launcher starts a task: checks the user's own classes."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_USAGE, RunError, UsageError
from ps_trainer.launch.forkserver import PROGRAM
from ps_trainer.launch.process import StartedProcess, TaskProcess

COMMAND = "check_model"
ERROR, WARNING = "error: ", "warning: "
"""Starts of the lines in which the child reports what it found."""

# Each worker repeats the check before it joins, so a check that takes long may be given up.
_LIMIT_SECS = 30.0
_KILL_SECS = 1.0
_POLL_SECS = 0.02
_NUM_LINES = 20


def run(
    config: TrainConfig,
    flags: Sequence[str],
    *,
    spawn: Callable[..., StartedProcess],
    environ: Mapping[str, str],
    folder: pathlib.Path,
    is_cancelled: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Builds the model in a child process if the run has a class of the user's own; returns the warnings about it.

    A child that fails for another reason than a wrong use, such as an exception in the model, is ignored: the tasks
    will fail in the same way, and their logs hold the traceback.

    Args:
        config: Settings of the run.
        flags: Flags of the training, and `--num_workers`.
        spawn: `ForkServer.popen` of a server that is ready, so that the child has TensorFlow in memory.
        environ: Environment of the child.
        folder: Existing folder for the child's output.
        is_cancelled: Whether to give up.
        clock: Monotonic time in seconds.
        sleep: Function that waits for a number of seconds.

    Raises:
        UsageError: A class does not exist or is of another kind, or the model cannot be trained; the message says what
            to change.
    """
    if not config.has_own_class:
        return []
    child = TaskProcess(
        job_name=COMMAND,
        task_index=0,
        command=[*PROGRAM, COMMAND, *flags],
        log_path=folder / f"{COMMAND}.log",
        env={**environ, "CUDA_VISIBLE_DEVICES": ""},  # a check needs no GPU
        spawn=spawn,
        clock=clock,
    )
    try:
        child.start()
    except RunError:
        return []  # the fork server has ended; the tasks, which are started without it, check the model
    try:
        while child.poll() is None and child.elapsed_secs < _LIMIT_SECS and not is_cancelled():
            sleep(_POLL_SECS)
    finally:
        child.kill()
        until = clock() + _KILL_SECS
        while child.poll() is None and clock() < until:
            sleep(_POLL_SECS)
    lines = child.log_tail(_NUM_LINES)
    if child.exit_code == EXIT_USAGE:
        raise UsageError(lines[-1].removeprefix(ERROR))
    return [line.removeprefix(WARNING) for line in lines if line.startswith(WARNING)]
