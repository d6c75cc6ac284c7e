"""`Job`: a run, or a task of one, that continues while Python continues."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from ps_trainer.api.result import Result
from ps_trainer.runtime.job_runner import EXIT_SECS

# A chief saves a checkpoint before it ends; `EXIT_SECS` after a stop request each task is given up at the latest.
END_SECS = EXIT_SECS + 4.0


class _Terminated(BaseException):
    """SIGTERM arrived during a wait in the main thread."""


class Job(abc.ABC):
    """A run, or a task of one, in the background; `wait` returns its result."""

    @property
    @abc.abstractmethod
    def is_running(self) -> bool:
        """Whether the job has not ended yet."""

    @abc.abstractmethod
    def stop(self, signum: int = signal.SIGTERM) -> None:
        """Asks the job to end as a signal does: the chief saves a checkpoint. `wait` then raises TrainingError.

        A callback that raises `StopTraining` ends a run with a result instead.

        Args:
            signum: Signal to report as the reason.
        """

    def wait(self, timeout_secs: float | None = None) -> Result:
        """Waits for the end of the job.

        Ctrl-C during the wait stops the job, and is raised when the job has ended. SIGTERM stops the job, too, and then
        ends the process, if the wait is in the main thread and the program has no signal handler.

        Args:
            timeout_secs: Longest wait in seconds; None = as long as the job takes. Each of the job's own waits has a
                deadline.

        Returns:
            The result of a job that is done.

        Raises:
            TrainingError: The job has failed or was stopped.
            TimeoutError: The job has not ended in time; it still runs.
        """
        try:
            with _raising_sigterm():
                has_ended = self._wait_for_end(timeout_secs)
        except KeyboardInterrupt:
            self._end_by(signal.SIGINT)
            raise
        except _Terminated:
            self._end_by(signal.SIGTERM)
            # The handler is the default one again, so this ends the process.
            os.kill(os.getpid(), signal.SIGTERM)
            raise
        if not has_ended:
            raise TimeoutError(f"the job has not ended within {timeout_secs:g} s; it still runs: call wait() or stop()")
        return self._result()

    def close(self, timeout_secs: float) -> None:
        """Waits for the end of a job that was asked to stop or has ended, and gives back what it has used."""
        self._wait_for_end(timeout_secs)
        self._finish()

    def _end_by(self, signum: int) -> None:
        """Stops the job because of a signal, and waits for its end; a Ctrl-C ends the wait."""
        self.stop(signum)
        with contextlib.suppress(KeyboardInterrupt):
            self._wait_for_end(END_SECS)
        self._finish()

    @abc.abstractmethod
    def _wait_for_end(self, timeout_secs: float | None) -> bool:
        """Waits for the end of the job; returns whether it has ended."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """Gives back what the job has used; may be called more than once."""

    @abc.abstractmethod
    def _result(self) -> Result:
        """Returns the result of a job that has ended; raises TrainingError if it has failed."""


@contextlib.contextmanager
def _raising_sigterm() -> Iterator[None]:
    """Lets SIGTERM raise `_Terminated` in the body, in the main thread of a program that does not handle it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def handle(_signum: int, _frame: FrameType | None) -> None:
        raise _Terminated

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
