"""The errors that end the steps of a worker: a lost task, a replaced run, a stop request, or broken data.

The step loop translates errors before `MonitoredSession` sees them, which would retry some of them without end. The
reason of a stop request takes precedence over every row:

    raised inside the loop                             becomes
    OutOfRangeError of the input                       the end of the data
    OutOfRangeError of another queue                   PsLostError: a ps task has closed the queue
    PeerFailedError, of an exchange                    PeerLostError, after a wait for the reason
    LOST_ERRORS: a ps task or a worker is lost         PsLostError, or after a wait PeerLostError (`lost_task_error`)
    FREED_ERRORS: the chief has replaced the run       itself, after a wait for the reason
    CancelledError, RuntimeError: a closed session     itself
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.decode_errors import data_error
from ps_trainer.errors import PeerFailedError, PeerLostError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.lost_task_errors import FREED_ERRORS, LOST_ERRORS, lost_task_error

_REASON_SECS = 6.0  # the ps tasks notice within this time that a worker was killed


@contextlib.contextmanager
def translated_errors(stop: StopRequest, *, is_colocated: bool) -> Iterator[None]:
    """Translates errors of the body as the table in the module's docstring says."""
    try:
        yield
    except PeerFailedError as error:
        _wait_for_reason(stop)
        raise PeerLostError(str(error)) from error
    except LOST_ERRORS as error:
        stop.check()
        lost = lost_task_error(error, is_colocated=is_colocated)
        if isinstance(lost, PeerLostError):
            _wait_for_reason(stop)
        raise lost from error
    except FREED_ERRORS:
        _wait_for_reason(stop)  # after a long suspension, the watcher still has to learn that the run was replaced
        raise
    except (tf.errors.CancelledError, RuntimeError):
        stop.check()  # the stop request may have closed the session
        raise


def _wait_for_reason(stop: StopRequest) -> None:
    """Raises the reason of the stop request, if one is made in time: it names the task that failed, and why."""
    stop.wait(_REASON_SECS)
    stop.check()


def translate(
    error: BaseException, stop: StopRequest, has_state: Callable[[], bool], *, is_colocated: bool = False
) -> BaseException:
    """Translates an error that was raised outside of the steps.

    Args:
        error: Error that was raised.
        stop: Stop request; its reason replaces an error of TensorFlow.
        has_state: Function that asks whether the ps tasks still hold the run.
        is_colocated: Whether the workers hold the parameters.

    Returns:
        The error to raise: a `LostError` if a task was lost, a `DataError` if the data do not fit the model, else
        `error`.
    """
    if not isinstance(error, tf.errors.OpError):
        return error
    if stop.reason is not None:
        return stop.reason
    problem = data_error(error)
    if problem is not None:
        return problem
    try:
        # Only calls that can be repeated have a deadline, so a missed one counts as a loss.
        is_lost = isinstance(error, (*LOST_ERRORS, tf.errors.DeadlineExceededError)) or not has_state()
    except tf.errors.OpError:
        is_lost = True
    return lost_task_error(error, is_colocated=is_colocated) if is_lost else error
