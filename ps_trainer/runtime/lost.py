"""What TensorFlow's errors say about lost tasks.

A lost task may come back, so the errors that mean a loss become a `LostError`, wherever they are raised: in a step, in
a call of the chief's service, or in a thread that watches. Every other error ends the run.
"""

from __future__ import annotations

import re

import tensorflow.compat.v1 as tf

from ps_trainer.errors import LostError, PeerLostError, PsLostError

# Errors with which TensorFlow says that a ps task is gone, or was replaced by one that knows no session.
LOST = (tf.errors.UnavailableError, tf.errors.AbortedError)
# Errors with which it says that a variable is not there: never initialised, or freed.
FREED = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError)

# How its message names the task that did not answer.
_TARGET = re.compile(r"remote target /job:ps/replica:\d+/task:(\d+)")
_SENDER = re.compile(r"From /job:ps/replica:\d+/task:(\d+)")
_STAGE = re.compile(r"remote target /job:(chief|worker)/replica:\d+/task:(\d+)")


def lost_task(error: tf.errors.OpError) -> LostError:
    """The error for one of `LOST`: `PsLostError`, or `PeerLostError` where another worker did not answer.

    It names the tasks that TensorFlow's message names. A step has no part on another worker but where that computes a
    stage of the model.
    """
    targets, stage = _TARGET.findall(error.message), _STAGE.search(error.message)
    # Of a step that failed on several tasks at once the message says what each met: who did not answer is the cause.
    tasks = targets or ([] if stage else _SENDER.findall(error.message))
    names = ", ".join(f"ps-{index}" for index in sorted(set(tasks), key=int))
    if "request was received twice" in error.message:
        return PsLostError(
            f"{names or 'a ps task'} refused a step because ids of TensorFlow's requests repeat"
            " (ps_trainer/runtime/request_ids.py); start the run again: it goes on from its last checkpoint"
        )
    said = " ".join(error.message.replace("=", " ").split())
    if stage and not targets:
        return PeerLostError(f"{'-'.join(stage.groups())}, which computes a stage, was lost; TensorFlow says: {said}")
    return PsLostError(f"{names or 'a ps task'} was lost; look at its log. TensorFlow says: {said}")


def reason_to_stop(error: BaseException) -> BaseException:
    """The reason that a thread beside the steps gives the job for `error`: a `LostError` where a task may come back.

    A call of such a thread has a deadline, so `DeadlineExceededError` means a ps task that does not answer.
    """
    if isinstance(error, LOST):
        return lost_task(error)
    if isinstance(error, tf.errors.DeadlineExceededError):
        return PsLostError("a ps task did not answer in time; look at the logs of the ps tasks")
    if isinstance(error, FREED):
        return PsLostError(f"the run's state is not on the ps tasks; TensorFlow says: {error.message}")
    return error
