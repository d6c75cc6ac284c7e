"""`LocalCluster`: trains on a cluster of this machine, in threads of this process or in separate processes."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from ps_trainer import options as options_lib
from ps_trainer.api import settings
from ps_trainer.api.callbacks import Callback
from ps_trainer.api.job import END_SECS, Job
from ps_trainer.api.result import Result
from ps_trainer.cli.local import LocalFlags
from ps_trainer.errors import ArgumentError, did_you_mean
from ps_trainer.launch import local_cluster

IN_PROCESS, PROCESSES = "in_process", "processes"
MODES = (IN_PROCESS, PROCESSES)

_MAX_THREADED = 64  # tasks in one process; each has about 20 threads of TensorFlow
_SEPARATE = ("num_ps", "num_workers", "plain")  # fields of `LocalFlags` that are separate arguments
# In one process no supervisor restarts a lost task, so a wait for it would only delay the error.
_IN_PROCESS_DEFAULTS = {"recover_timeout_secs": 0.0}


class LocalCluster:
    """A cluster on this machine, as a context manager; on leaving, it stops what still runs.

    In one process (`mode="in_process"`), each task is a thread with a real server of TensorFlow. Model, data and
    callbacks may be defined anywhere, also in a notebook. TensorFlow cannot stop a server, so servers stay until the
    process ends, each with a port and about 20 threads. The next training uses them again, unless a task had failed.

    As processes (`mode="processes"`), tasks have their own memory and Python, and may be killed and restarted. They
    import the classes and functions that are given, so these must be in a module.

    Args:
        num_ps: Number of ps tasks; 0: the workers hold the parameters; one worker then trains without servers.
        num_workers: Number of workers, the chief included.
        mode: "in_process" or "processes".

    Raises:
        ArgumentTypeError: A number of tasks is not a whole number.
        ArgumentError: A number of tasks is out of range, or the mode is unknown.
    """

    def __init__(self, num_ps: int = 1, num_workers: int = 2, *, mode: str = IN_PROCESS):
        if mode not in MODES:
            raise ArgumentError(f"mode={mode!r}: unknown; {did_you_mean(str(mode), MODES)}known: {', '.join(MODES)}")
        self.mode = mode
        self.num_ps = settings.convert("num_ps", int, num_ps)
        self.num_workers = settings.convert("num_workers", int, num_workers)
        with settings.python_errors():
            options_lib.check(LocalFlags(num_ps=self.num_ps, num_workers=self.num_workers))
        if mode == IN_PROCESS and self.num_ps + self.num_workers > _MAX_THREADED:
            raise ArgumentError(
                f"num_ps={self.num_ps} and num_workers={self.num_workers} are more than {_MAX_THREADED} tasks, too many"
                " for one process; start fewer, or use mode='processes'"
            )
        self._jobs: list[Job] = []

    def start(
        self,
        model: Any,
        data: Any,
        *,
        test_data: Any = None,
        callbacks: Callback | Sequence[Callback] = (),
        **options: Any,
    ) -> Job:
        """Starts a training and returns at once; `Job.wait` returns the result. Arguments and errors as in `train`."""
        return self._start("start()", model, data, test_data, callbacks, options)

    def train(
        self,
        model: Any,
        data: Any,
        *,
        test_data: Any = None,
        callbacks: Callback | Sequence[Callback] = (),
        **options: Any,
    ) -> Result:
        """Trains; arguments, result and errors are those of the function `train`."""
        return self._start("train()", model, data, test_data, callbacks, options).wait()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for job in self._jobs:
            job.stop()
        for job in self._jobs:
            job.close(END_SECS)

    def _start(
        self,
        owner: str,
        model: Any,
        data: Any,
        test_data: Any,
        callbacks: Callback | Sequence[Callback],
        options: Mapping[str, Any],
    ) -> Job:
        local_hints = {name: hint for name, hint in typing.get_type_hints(LocalFlags).items() if name not in _SEPARATE}
        local = {name: value for name, value in options.items() if name in local_hints}
        given = {name: value for name, value in options.items() if name not in local_hints}
        if self.mode == IN_PROCESS:
            if local:
                raise ArgumentError(f"{next(iter(local))} is for tasks that are processes; add mode='processes'")
            given = _IN_PROCESS_DEFAULTS | given
        from ps_trainer.runtime import environment, tensorflow_import

        environment.prepare(is_ps=False)
        tensorflow_import.load()

        from ps_trainer.api import in_process, plan, processes

        training_plan = plan.create(
            owner,
            model=model,
            data=data,
            test_data=test_data,
            callbacks=callbacks,
            num_workers=self.num_workers,
            given=given,
            is_in_process=self.mode == IN_PROCESS,
        )
        job: Job
        config, _ = local_cluster.resolved_placement(
            training_plan.config, self.num_ps, self.num_workers, {"num_ps", *training_plan.given}
        )
        training_plan = training_plan._replace(config=config, given=training_plan.given | {"placement"})
        with settings.python_errors():
            local_cluster.LocalClusterSpec(
                config=training_plan.config, num_ps=self.num_ps, num_workers=self.num_workers
            ).check()
            if self.mode == IN_PROCESS:
                job = in_process.start(training_plan, self.num_ps, self.num_workers)
            else:
                values = {name: settings.convert(name, local_hints[name], value) for name, value in local.items()}
                flags = LocalFlags(num_ps=self.num_ps, num_workers=self.num_workers, **values)
                options_lib.check(flags)
                job = processes.start(
                    training_plan, flags, {field.name for field in dataclasses.fields(flags)} - {"plain"}
                )
        self._jobs = [*(one for one in self._jobs if one.is_running), job]
        return job


def train(
    model: Any,
    data: Any,
    *,
    num_ps: int = 1,
    num_workers: int = 2,
    mode: str = IN_PROCESS,
    test_data: Any = None,
    callbacks: Callback | Sequence[Callback] = (),
    **options: Any,
) -> Result:
    """Trains a model on a cluster of this machine, and returns when training is done.

    Args:
        model: An instance with a method `build(batch, training)`, a class of such instances, the name of a registered
            model, "module:Class", or what `from_model_fn` returns.
        data: The name of a dataset, a dataset class or instance, or a tuple or dict of NumPy arrays. It may also be a
            function that returns arrays, a `tf.data.Dataset` of batches, or a generator of batches.
        num_ps: Number of ps tasks; 0: the workers hold the parameters; one worker then trains without servers, as a
            control.
        num_workers: Number of workers, the chief included.
        mode: "in_process": the tasks are threads of this process; "processes": each is a process.
        test_data: Arrays or a function like `data`, for the test metrics. None: a function with the argument `mode` is
            called with "eval"; other arrays and functions have no test data, and the result no metrics.
        callbacks: A function or several, called with a `Step` after each step of any worker; `StopTraining` ends the
            run. Only with mode "in_process".
        **options: Settings by the names of their flags: `update="sync"`, `learning_rate=0.05`, `max_steps=200`. Options
            of a component are a dict: `optimizer_option={"momentum": 0.9}`.

    Returns:
        The result: metrics, staleness, history of the steps, final variables.

    Raises:
        ArgumentTypeError: An argument is unknown or of a wrong type; also a TypeError. Nothing was started.
        ArgumentError: An argument has a wrong value; also a ValueError. Nothing was started.
        TrainingError: The run failed; its attributes name the task, the error and the exit code.
        KeyboardInterrupt: Ctrl-C; with a `logdir`, a checkpoint was saved.
    """
    with LocalCluster(num_ps, num_workers, mode=mode) as cluster:
        return cluster.train(model, data, test_data=test_data, callbacks=callbacks, **options)
