"""Translates TensorFlow's errors about lost tasks into errors of this package.

A lost task may come back. So every error that means a loss becomes a `LostError`, in a step, in a call of the chief's
service, or in a thread that watches. Every other error ends the run.
"""

from __future__ import annotations

import re

import tensorflow.compat.v1 as tf

from ps_trainer.errors import LostError, PeerLostError, PsLostError

# TensorFlow raises these when a ps task is lost, or was replaced by a process that does not know the session.
LOST_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError)
# TensorFlow raises these when a variable was never initialised, or was freed.
FREED_ERRORS = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError)

# TensorFlow's message names the task that did not answer. A task that relays another task's failure adds it in brackets
# on the same line. So of the targets in one report, the last one is the cause.
_REPORTS = re.compile(r"^(?=Additional GRPC error information)", re.MULTILINE)
_TARGET = re.compile(r"remote target /job:(\w+)/replica:\d+/task:(\d+)")
# TensorFlow repeats its latest log lines in some messages, if the log level lets it write any.
_LOG_LINE = re.compile(r"\s*([IWEF]\d{4} \d\d:|Recent warning and error logs:)")
_SENDER = re.compile(r"From /job:(\w+)/replica:\d+/task:(\d+)")

# TensorFlow says before this line where the graph was built, and after it what is wrong, in a separate line.
_NODE = re.compile(r"^Node: .*\n", re.MULTILINE)
_NO_REASON = re.compile(r"\s*(Graph execution error:|From /job:.*|.* root error\(s\) found\.|)\s*")


def reason(error: BaseException) -> str:
    """Returns the message of an error, in one line where it is TensorFlow's."""
    if not isinstance(error, tf.errors.OpError):
        return str(error)
    lines = _NODE.split(error.message or "")[-1].splitlines()
    return next((line.strip() for line in lines if not _NO_REASON.fullmatch(line)), type(error).__name__)


def lost_task_error(error: tf.errors.OpError, *, is_colocated: bool = False) -> LostError:
    """Translates one of `LOST_ERRORS` into an error that names the lost tasks.

    A `PeerLostError` means another worker, which computes a stage of the model: without stages and colocated
    parameters, a step runs no op on another worker.

    Args:
        error: Error of TensorFlow.
        is_colocated: Whether the workers hold the parameters, so that a lost worker is a lost ps task.
    """
    # The message of a step that failed on several tasks has a report of each.
    reports = [report for report in _REPORTS.split(error.message) if _TARGET.search(report)]
    # TensorFlow cuts a long message of each task, maybe before its last report names the task that it relays.
    whole = [report for report in reports if "}" in report]
    causes = [_TARGET.findall(report)[-1] for report in whole or reports]
    targets = [cause for cause in causes if is_colocated or cause[0] == "ps"]
    stages = [cause for cause in causes if cause not in targets]
    # A report without a target names only its sender: a restarted ps task, for example, which does not know the graph.
    senders = [task for task in _SENDER.findall(error.message) if is_colocated or task[0] == "ps"]
    tasks = targets or ([] if stages else senders)
    names = ", ".join(f"{job}-{index}" for job, index in sorted(set(tasks), key=lambda task: (task[0], int(task[1]))))
    if "request was received twice" in error.message:
        return PsLostError(
            f"{names or 'a ps task'} rejected a step because the ids of TensorFlow's requests repeat"
            " (ps_trainer/runtime/request_ids.py); restart the run: it continues from its last checkpoint"
        )
    lines = [line for line in error.message.splitlines() if not _LOG_LINE.match(line)]
    error_text = " ".join(" ".join(lines).replace("=", " ").split())
    if stages and not targets:
        return PeerLostError(f"{'-'.join(stages[0])}, which computes a stage, was lost; TensorFlow says: {error_text}")
    if len(set(tasks)) > 1:
        return PsLostError(f"{names} were lost; look at their logs. TensorFlow says: {error_text}")
    return PsLostError(f"{names or 'a ps task'} was lost; look at its log. TensorFlow says: {error_text}")


def reason_to_stop(error: BaseException, *, is_colocated: bool = False) -> BaseException:
    """Translates an error of a thread beside the steps: into a `LostError` if a task was lost, which may come back.

    Calls of such threads have a deadline, so `DeadlineExceededError` means that a ps task does not answer.
    """
    if isinstance(error, LOST_ERRORS):
        return lost_task_error(error, is_colocated=is_colocated)
    if isinstance(error, tf.errors.DeadlineExceededError):
        return PsLostError("a ps task did not answer in time; look at the logs of the ps tasks")
    if isinstance(error, FREED_ERRORS):
        return PsLostError(f"the ps tasks do not hold the run's state; TensorFlow says: {error.message}")
    return error
