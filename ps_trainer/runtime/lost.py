"""What TensorFlow's errors say about lost tasks.

A lost task may come back, so the errors that mean a loss become a `LostError`, wherever they are raised: in a step, in
a call of the chief's service, or in a thread that watches. Every other error ends the run.
"""

from __future__ import annotations

import re

import tensorflow.compat.v1 as tf

from ps_trainer.errors import LostError, PeerLostError, PsLostError

# Errors with which TensorFlow says that a ps task is gone, or was replaced by one that knows no session.
LOST_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError)
# Errors with which it says that a variable is not there: never initialised, or freed.
FREED_ERRORS = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError)

# How its message names the task that did not answer. A task that relays another one's failure puts that in brackets
# on the same line, so of the targets between two beginnings of a line the last one is the cause.
_REPORTS = re.compile(r"^(?=Additional GRPC error information)", re.MULTILINE)
_TARGET = re.compile(r"remote target /job:(\w+)/replica:\d+/task:(\d+)")
_SENDER = re.compile(r"From /job:ps/replica:\d+/task:(\d+)")


def lost_task(error: tf.errors.OpError) -> LostError:
    """The error for one of `LOST_ERRORS`: `PsLostError`, or `PeerLostError` where another worker did not answer.

    It names the tasks that TensorFlow's message names. A step has no part on another worker but where that computes a
    stage of the model.
    """
    # The message of a step that failed on several tasks has a report of each.
    causes = [named[-1] for report in _REPORTS.split(error.message) if (named := _TARGET.findall(report))]
    targets = [index for job, index in causes if job == "ps"]
    stages = [cause for cause in causes if cause[0] != "ps"]
    tasks = targets or ([] if stages else _SENDER.findall(error.message))
    names = ", ".join(f"ps-{index}" for index in sorted(set(tasks), key=int))
    if "request was received twice" in error.message:
        return PsLostError(
            f"{names or 'a ps task'} refused a step because ids of TensorFlow's requests repeat"
            " (ps_trainer/runtime/request_ids.py); start the run again: it goes on from its last checkpoint"
        )
    said = " ".join(error.message.replace("=", " ").split())
    if stages and not targets:
        return PeerLostError(f"{'-'.join(stages[0])}, which computes a stage, was lost; TensorFlow says: {said}")
    return PsLostError(f"{names or 'a ps task'} was lost; look at its log. TensorFlow says: {said}")


def reason_to_stop(error: BaseException) -> BaseException:
    """The reason that a thread beside the steps gives the job for `error`: a `LostError` where a task may come back.

    A call of such a thread has a deadline, so `DeadlineExceededError` means a ps task that does not answer.
    """
    if isinstance(error, LOST_ERRORS):
        return lost_task(error)
    if isinstance(error, tf.errors.DeadlineExceededError):
        return PsLostError("a ps task did not answer in time; look at the logs of the ps tasks")
    if isinstance(error, FREED_ERRORS):
        return PsLostError(f"the run's state is not on the ps tasks; TensorFlow says: {error.message}")
    return error
