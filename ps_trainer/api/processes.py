"""A training whose tasks are processes of this machine, started by `ps_trainer local`."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection

from ps_trainer.api import settings, shipped
from ps_trainer.api.callbacks import Step
from ps_trainer.api.job import Job
from ps_trainer.api.plan import TrainingPlan
from ps_trainer.api.result import Result
from ps_trainer.checkpoints import reader
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.local import LocalFlags
from ps_trainer.comparison import json_files, run_lines
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_USAGE, ArgumentError, PsTrainerError, TrainingError
from ps_trainer.launch import tail

_OUTPUT = "output.txt"
_OBJECTS = "objects.pickle"
_LOG_LINES = 30
_ERROR = "error: "  # the start of the line in which a command prints why it ended


def start(plan: TrainingPlan, local_flags: LocalFlags, given: Collection[str]) -> ProcessJob:
    """Starts a training on a cluster of processes.

    Args:
        plan: The training.
        local_flags: Cluster, hosts and faults.
        given: Names of the flags to pass on.

    Raises:
        ArgumentError: Callbacks or hooks are given that another process cannot call.
        ArgumentTypeError: The model or the data cannot be sent to another process.
    """
    _check_functions(plan)
    # Without a logdir of the caller's, the files end with the job, once its result is read.
    temporary = pathlib.Path(tempfile.mkdtemp(prefix="ps_trainer-"))
    try:
        logdir = pathlib.Path(plan.config.logdir or temporary / "run")
        args = [
            *flags_lib.to_args(plan.config, plan.given - {"logdir", "model", "dataset", "hook"}),
            *flags_lib.to_args(local_flags, given),
            *_component_flags(plan, temporary),
            f"--logdir={logdir}",
            "--plain",
        ]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        environ[shipped.VARIABLE] = str(temporary / _OBJECTS)
        with (temporary / _OUTPUT).open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "ps_trainer.api.launcher", str(os.getpid()), str(temporary), *args],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environ,
                # A Ctrl-C at the terminal must not reach it: `wait` passes one on.
                start_new_session=True,
            )
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return ProcessJob(process, plan.config, logdir, temporary)


class ProcessJob(Job):
    """A training on a cluster of processes.

    Args:
        process: The launcher.
        config: Settings of the run.
        logdir: Folder of the run.
        temporary: Folder that is removed when the job has ended.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], config: TrainConfig, logdir: pathlib.Path, temporary: pathlib.Path
    ):
        self._process = process
        self._config = config
        self._logdir = logdir
        self._temporary = temporary
        self._outcome: Result | PsTrainerError | None = None

    @property
    def is_running(self) -> bool:
        """Whether the launcher runs."""
        return self._process.poll() is None

    def stop(self, signum: int = signal.SIGTERM) -> None:
        """Asks the launcher to end all tasks; the chief saves a checkpoint."""
        if self.is_running:
            self._process.send_signal(signum)

    def _wait_for_end(self, timeout_secs: float | None) -> bool:
        try:
            self._process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _finish(self) -> None:
        if self._outcome is None and not self.is_running:
            self._outcome = self._read_result() if self._process.returncode == 0 else self._read_failure()
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _result(self) -> Result:
        self._finish()
        if isinstance(self._outcome, PsTrainerError):
            raise self._outcome
        if self._outcome is None:
            raise RuntimeError("the job has not ended yet")
        return self._outcome

    def _read_result(self) -> Result:
        found = reader.latest(self._logdir / "checkpoints") if (self._logdir / "checkpoints").is_dir() else None
        return Result(
            summary=json_files.read_object(self._logdir / "summary.json"),
            history=tuple(_history(self._logdir / "metrics")),
            variables=dict(found) if found is not None else {},
            logdir=self._config.logdir,
        )

    def _read_failure(self) -> PsTrainerError:
        code = self._process.returncode
        code = 128 - code if code < 0 else code  # negative: number of the signal that ended the launcher
        if code > 128:
            return TrainingError(
                f"the run was stopped by {signal.Signals(code - 128).name}", exit_code=code, cause="Interrupted"
            )
        for path in sorted((self._logdir / "metrics").glob("*.jsonl")):
            lines = [line for line in json_files.read_lines(path) if line.get("kind") == "state"]
            last = lines[-1] if lines else {}
            if last.get("error") and not last.get("peer_failure"):
                task, cause, reason = path.stem, last["error"], str(last.get("state", "")).removeprefix("failed: ")
                return TrainingError(f"{task} failed: {cause}: {reason}", exit_code=code, task=task, cause=cause)
        output = tail.last_lines(self._temporary / _OUTPUT, _LOG_LINES)
        if code == EXIT_USAGE and output and output[-1].startswith(_ERROR):
            return ArgumentError(settings.remove_dashes(output[-1].removeprefix(_ERROR)))
        return TrainingError("\n".join([f"the run failed with exit code {code}:", *output]), exit_code=code)


def _check_functions(plan: TrainingPlan) -> None:
    if plan.callbacks:
        raise ArgumentError(
            "callbacks are called in this process, and with mode='processes' no step runs here; use"
            " mode='in_process', or hook=, which each worker's process creates"
        )
    for hook in plan.objects.hooks:
        if not isinstance(hook, type) or not settings.is_importable(hook):
            name = getattr(hook, "__qualname__", hook)
            raise ArgumentError(
                f"hook={name}: with mode='processes' each worker's process imports the class of the hook; give a class"
                " of a module, or use mode='in_process'"
            )


def _component_flags(plan: TrainingPlan, folder: pathlib.Path) -> list[str]:
    objects = plan.objects
    if objects.model is not None or objects.dataset is not None:
        shipped.write(folder / _OBJECTS, objects.model, objects.dataset)
    return [
        f"--model={plan.config.model if objects.model is None else shipped.MODEL}",
        f"--dataset={plan.config.dataset if objects.dataset is None else shipped.DATASET}",
        *(f"--hook={name}" for name in plan.config.hook),
        *(f"--hook={settings.target_of(hook)}" for hook in objects.hooks),
    ]


def _history(metrics: pathlib.Path) -> list[Step]:
    """Returns the reports of all workers as steps, in order of time."""
    found = []
    for path in sorted(metrics.glob("worker-*.jsonl")):
        worker = int(path.stem.removeprefix("worker-"))
        for line in run_lines.read_metrics(path).reports:
            found.append((line.wall_time, Step(worker, line.local_step, line.global_step, line.loss)))
    return [step for _, step in sorted(found)]
