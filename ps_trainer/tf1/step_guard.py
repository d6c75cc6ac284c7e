"""`StepGuard`: surrounds each step of a script, limits its time, and translates the errors that end it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import tensorflow.compat.v1 as tf

from ps_trainer.config import TrainConfig
from ps_trainer.errors import LostError, PsLostError, PsTrainerError, StalledError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.tf1 import script_settings
from ps_trainer.tf1.script_worker import ScriptWorker
from ps_trainer.training.step_errors import translate

_REASON_SECS = 3.0  # for the watcher, which asks the ps tasks at least once a second


class StepGuard:
    """The steps of a script. The thread that creates this object makes them.

    Args:
        worker: The worker.
        stop: Request that ends the steps.
        config: Settings of the job.
        job_thread: Thread of the job; its calls do not count as steps.
        recovers: Whether the script takes another session when it has lost a task.
    """

    def __init__(
        self,
        worker: ScriptWorker,
        stop: StopRequest,
        config: TrainConfig,
        *,
        job_thread: threading.Thread,
        recovers: bool,
    ):
        self._worker = worker
        self._stop = stop
        self._config = config
        self._job_thread = job_thread
        self._recovers = recovers
        self._owner = threading.get_ident()  # queue runners have their own threads
        self._began: float | None = None
        self._loss: LostError | None = None  # met by the script, and not yet told to the job

    @property
    def is_in_step(self) -> bool:
        """Whether the script is in a step."""
        return self._began is not None

    def take_loss(self) -> LostError:
        """Returns the loss by which the last step ended; asked once."""
        loss, self._loss = self._loss or PsLostError("the script has lost its session"), None
        return loss

    def check_time(self, waited_at: float) -> None:
        """Checks how long the current step has taken.

        Args:
            waited_at: Time, by `time.monotonic`, until which the step waited for another worker with good reason.

        Raises:
            StalledError: It takes too long.
        """
        began, limit = self._began, self._config.stall_timeout_secs
        if began is not None and (idle := time.monotonic() - max(began, waited_at)) > limit:
            raise StalledError(
                f"{self._worker.name}: a step takes more than {idle:.0f} s; a task that it waits for is slow"
                " or stuck; look at their logs, or raise PS_TRAINER_STALL_TIMEOUT_SECS"
            )

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Surrounds each call of the script's session; translates its errors.

        Raises:
            tf.errors.AbortedError: A task is lost that may come back; `ScriptJob.next_session` gives another session.
            PsTrainerError: The job has failed.
            Interrupted: A signal came.
        """
        if threading.current_thread() is self._job_thread:  # `ScriptWorker` translates the errors of its own calls
            yield
            return
        is_owner = threading.get_ident() == self._owner
        try:
            self._stop.check()
            if is_owner:
                self._began = time.monotonic()
            yield
            self._stop.check()
            if is_owner:
                self._worker.note_progress()
        except tf.errors.OutOfRangeError:
            raise
        except (tf.errors.OpError, RuntimeError, PsTrainerError) as raised:
            error = self._translate(raised)
            if isinstance(error, LostError) and self._recovers:
                self._loss = error
                raise tf.errors.AbortedError(None, None, str(error)) from raised
            raise rephrase_own_error(error) from (None if error is raised else raised)
        finally:
            if is_owner:
                self._began = None

    def _translate(self, raised: BaseException) -> BaseException:
        """Returns the error of ps_trainer for an error of a step; the same error if it is the script's own."""
        if not isinstance(raised, tf.errors.OpError | RuntimeError) or isinstance(
            raised, tf.errors.InvalidArgumentError
        ):
            return raised
        if isinstance(raised, tf.errors.CancelledError):
            self._stop.wait(_REASON_SECS)  # the watcher may be about to learn which task was lost, and why
        if self._stop.reason is not None:
            return self._stop.reason
        return translate(raised, self._stop, self._worker.has_state)


def rephrase_own_error(error: BaseException) -> BaseException:
    """Returns the same error; one of ps_trainer's in the words of scripts."""
    return script_settings.rephrase_error(error) if isinstance(error, PsTrainerError) else error
