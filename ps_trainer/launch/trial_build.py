"""Checks a run's components in a child process before the launcher starts a task, and builds a model of the user's."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

from ps_trainer.config import MODEL_PARALLEL, TrainConfig
from ps_trainer.errors import EXIT_USAGE, RunError, UsageError
from ps_trainer.launch.forkserver import PROGRAM
from ps_trainer.launch.process import StartedProcess, TaskProcess

COMMAND = "check_model"
ERROR, WARNING = "error: ", "warning: "
"""Starts of the lines in which the child reports what it found."""

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""Environment of the check, which needs no GPU."""

# Each worker repeats the check before it joins, so a check that takes long may be given up.
_LIMIT_SECS = 30.0
_KILL_SECS = 1.0
_POLL_SECS = 0.02
_NUM_LINES = 20


def run(
    config: TrainConfig,
    num_workers: int,
    flags: Sequence[str],
    *,
    spawn: Callable[..., StartedProcess],
    environ: Mapping[str, str],
    folder: pathlib.Path,
    is_cancelled: Callable[[], bool] = lambda: False,
    time_fn: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Checks the components in a child process if they can be wrong; returns the warnings about a model.

    A child that fails for another reason than a wrong use, such as an exception in the model, is ignored. The tasks
    will fail in the same way, and their logs hold the traceback.

    Args:
        config: Settings of the run.
        num_workers: Number of workers in the cluster.
        flags: Flags of the training.
        spawn: `ForkServer.popen` of a server that is ready, so that the child has TensorFlow in memory.
        environ: Environment of the child.
        folder: Existing folder for the child's output.
        is_cancelled: Whether to give up.
        time_fn: Monotonic time in seconds.
        sleep: Function that waits for a number of seconds.

    Raises:
        UsageError: A setting of a component is wrong, a class does not exist or is of another kind, or the model cannot
            be trained. The message says what to change.
    """
    if not is_needed(config, num_workers):
        return []
    child = TaskProcess(
        job_name=COMMAND,
        task_index=0,
        command=[*PROGRAM, COMMAND, f"--num_workers={num_workers}", *flags],
        log_path=folder / f"{COMMAND}.log",
        env={**environ, **NO_GPU},
        spawn=spawn,
        time_fn=time_fn,
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
        until = time_fn() + _KILL_SECS
        while child.poll() is None and time_fn() < until:
            sleep(_POLL_SECS)
    lines = child.log_tail(_NUM_LINES)
    if child.exit_code == EXIT_USAGE:
        raise UsageError(lines[-1].removeprefix(ERROR))
    return [line.removeprefix(WARNING) for line in lines if line.startswith(WARNING)]


def is_needed(config: TrainConfig, num_workers: int) -> bool:
    """Returns whether the components of a run can be wrong, so that `run` starts a child."""
    return config.has_own_class or may_be_rejected(config, num_workers)


def may_be_rejected(config: TrainConfig, num_workers: int) -> bool:
    """Returns whether a setting of a packaged component may be wrong; the answer needs no TensorFlow.

    An update rule or optimizer without options goes with the defaults of all other settings.
    """
    has_optimizer = config.optimizer != TrainConfig.optimizer or bool(config.optimizer_for)
    has_rule = config.update != TrainConfig.update
    return (
        _has_options(config)
        or bool(config.gradient_transform)
        or (has_rule and (has_optimizer or num_workers == 1 or config.pull_dtype != TrainConfig.pull_dtype))
        or config.steps_per_call > 1
        or config.init_from is not None
        or config.lacks_data_dir
        or needs_model(config)
    )


def needs_model(config: TrainConfig) -> bool:
    """Returns whether the check needs the model, for its stages, its default batch size or its preset."""
    return config.placement == MODEL_PARALLEL or config.devices_per_worker > 1 or config.preset is not None


def _has_options(config: TrainConfig) -> bool:
    """Returns whether the run gives any component an option; the defaults need no check."""
    names = [field.name for field in dataclasses.fields(config) if field.name.endswith("_option")]
    return any(":" in text for text in config.optimizer_for) or any(getattr(config, name) for name in names)
