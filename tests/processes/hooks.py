"""Hooks of the kind a user writes, for `--hook=tests.processes.hooks:<Class>`."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import time
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import durable_files, logged_rows
from ps_trainer.errors import NanLossError
from ps_trainer.training import checkpointer, chief

FOLDER_VARIABLE = "PS_TRAINER_TEST_FOLDER"


class StopOnRequest(tf.train.SessionRunHook):
    """Counts its calls, and ends training once the file `stop` exists.

    An environment variable names the folder of the file. At the end the hook writes its counts to `calls-<pid>` there.
    """

    def __init__(self):
        self._folder = pathlib.Path(os.environ[FOLDER_VARIABLE])
        self._before = self._after = 0

    def before_run(self, run_context: tf.train.SessionRunContext) -> None:
        self._before += 1

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: tf.train.SessionRunValues) -> None:
        self._after += 1
        if (self._folder / "stop").exists():
            run_context.request_stop()

    def end(self, session: tf.Session) -> None:
        (self._folder / f"calls-{os.getpid()}").write_text(f"{self._before} {self._after}")


class FreezeInSave(tf.train.SessionRunHook):
    """Stops the chief's process in the middle of the first save after the file `freeze` appears; removes that file."""

    def __init__(self):
        self._request = pathlib.Path(os.environ[FOLDER_VARIABLE], "freeze")
        self._sync = durable_files.sync
        durable_files.sync = self._stop_and_sync

    def _stop_and_sync(self, path: str | os.PathLike[str]) -> None:
        if "writing-model" in str(path) and self._request.exists():
            self._request.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        self._sync(path)


class SpoiledLoss(tf.train.SessionRunHook):
    """Ends worker 1 after its first step as if its loss were NaN; does nothing in the chief."""

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: tf.train.SessionRunValues) -> None:
        if "--task_index=1" in sys.argv:
            raise NanLossError("the loss is spoiled")


class _Wait(tf.train.SessionRunHook):
    """Holds the chief or its save up in a place that a subclass chooses, as long as the file `hold` exists.

    The file `held` shows that it is waiting there.
    """

    def __init__(self):
        self._folder = pathlib.Path(os.environ[FOLDER_VARIABLE])
        if "--task_index=0" in sys.argv:
            self._install()

    def _install(self) -> None:
        raise NotImplementedError

    def _hold(self) -> None:
        if (self._folder / "hold").exists():
            (self._folder / "held").touch()
            while (self._folder / "hold").exists():
                time.sleep(0.02)


class HoldSave(_Wait):
    """Holds a save of the chief up after a ps task has copied a slice of a table."""

    def _install(self) -> None:
        read = logged_rows.LoggedRows.read

        def hold_and_read(*args: Any) -> int:
            *others, after_slice = args

            def hold() -> None:
                self._hold()
                after_slice()

            return read(*others, hold)

        logged_rows.LoggedRows.read = hold_and_read


class HoldReading(_Wait):
    """Holds a save of the chief up before a ps task copies a row of a table."""

    def _install(self) -> None:
        read = logged_rows.LoggedRows.read

        def hold_and_read(*args: Any) -> int:
            self._hold()
            return read(*args)

        logged_rows.LoggedRows.read = hold_and_read


class HoldEvaluation(_Wait):
    """Holds the chief up before its evaluation at the end."""

    def _install(self) -> None:
        evaluate = chief.evaluate

        def hold_and_evaluate(*args: Any) -> dict[str, float]:
            self._hold()
            return evaluate(*args)

        chief.evaluate = hold_and_evaluate


class HoldSteps(_Wait):
    """Holds the chief up before each step; the file `worker-1-steps` shows that worker 1 has begun a step."""

    def _install(self) -> None:
        self.before_run = lambda run_context: self._hold()

    def before_run(self, run_context: tf.train.SessionRunContext) -> None:
        (self._folder / "worker-1-steps").touch()


class HangInSave(tf.train.SessionRunHook):
    """Lets the disk hang in the middle of the first save, whose writing has a deadline of about a second here.

    The kernel keeps the save's thread in the opening of a pipe that nobody writes.
    """

    def __init__(self):
        self._pipe = os.path.join(os.environ[FOLDER_VARIABLE], f"pipe-{os.getpid()}")
        os.mkfifo(self._pipe)
        self._sync = durable_files.sync
        durable_files.sync = self._hang_or_sync
        checkpointer._WRITE_SECS = 1.0

    def _hang_or_sync(self, path: str | os.PathLike[str]) -> None:
        self._sync(self._pipe if "writing-model" in str(path) else path)
