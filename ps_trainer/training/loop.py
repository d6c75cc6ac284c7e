"""The step loop of one worker, inside a `MonitoredTrainingSession`.

Steps run on the bare session, one call each: `MonitoredSession.run` would cost up to a millisecond a
step. With `SessionRunHook`s of the user's, every step goes through them instead. An error of the cluster
is turned into this package's here, before `MonitoredSession` would retry it without end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.errors import PeerFailedError, PeerLostError, PsLostError
from ps_trainer.runtime.lost import FREED, LOST, lost_task
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.training.graph import TrainGraph
from ps_trainer.training.progress import Progress
from ps_trainer.updates.base import RELEASED, Exchange

_POLL_SECS = 0.1
_REASON_SECS = 6.0  # in which the ps tasks notice that a worker was killed


def run_steps(
    session: tf.train.MonitoredSession,
    train: TrainGraph,
    progress: Progress,
    stop: StopRequest,
    *,
    max_steps: int | None,
    is_enough: Callable[[], bool],
    has_hooks: bool,
    after_join: Callable[[tf.Session, int], None],
    after_step: Callable[[tf.Session], None],
    at_end: Callable[[tf.Session, int], None],
) -> str:
    """Runs steps until `max_steps`, the target, the end of the data or a hook's request; returns which, in words.

    Args:
        session: of this worker.
        train: its graph.
        progress: counts the steps.
        stop: asked to stop.
        max_steps: global_step at which to end, or None.
        is_enough: asked before each step whether the target metric is reached.
        has_hooks: whether the user's hooks want to see every step.
        after_join: called with the bare session and global_step before the first step.
        after_step: called after each step with the bare session.
        at_end: called with the bare session and global_step when the steps are over, unless they failed.

    Raises:
        PsLostError: a ps task is gone.
        PeerFailedError: a worker is gone without which no step can be made.
        PsTrainerError, Interrupted: the reason of the stop request.
    """
    ended_by = []

    def steps(step_context: Any) -> None:
        raw = step_context.session  # may be closed twice; the monitored session, closed meanwhile, fails as it ends
        stop.on_abort(raw.close)
        if train.step.exchange is not None:
            stop.on_release(raw.close)  # a collective waits for every worker, also for one that is gone
        runs = [
            progress.timed(_hooked(step_context, fetches) if has_hooks else raw.make_callable(fetches))
            for fetches in train.fetches
        ]
        choose = train.step.choose or (lambda global_step: 0)
        exchange = train.step.exchange
        if train.step.start_when is not None:
            _wait_to_start(raw, train, progress, stop)
        for op in train.join_ops:
            raw.run(op)
        global_step = raw.run(train.current_step)
        after_join(raw, int(global_step))
        if train.step.on_restored is not None:
            train.step.on_restored(raw)
        if max_steps is not None and global_step >= max_steps:
            ended_by.append("max_steps, reached before")
            return
        raw.run(train.begin_data_op)
        while not session.should_stop():
            stop.check()
            if train.shard_reader is not None and train.shard_reader.is_outdated():
                raw.run(train.begin_data_op)
            if is_enough():
                ended_by.append("the target metric")
                break
            progress.is_in_step = True
            try:
                global_step, staleness, loss, times, _ = runs[choose(int(global_step))]()
            except tf.errors.OutOfRangeError as error:
                stop.check()  # the data may have been ended for that reason
                if "IteratorGetNext" not in str(error) and "End of sequence" not in str(error):
                    raise PsLostError(f"a queue on the ps tasks was closed: {error.message}") from error
                ended_by.append("end of the data")
                break
            if exchange is not None:
                global_step = exchange.after_phase(raw)
            if global_step == RELEASED:
                stop.wait(10.0)  # whoever released us says why in a moment
                stop.check()
                raise PsLostError("the chief let this worker go without a reason")
            progress.add(global_step, staleness, loss, times)
            after_step(raw)
            if max_steps is not None and global_step >= max_steps:
                ended_by.append("max_steps")
                return
        else:
            ended_by.append("a hook's request")
        if exchange is not None:
            _stay_for_others(raw, exchange, progress, stop, max_steps=max_steps, after_step=after_step)

    def guarded(step_context: Any) -> None:
        try:
            steps(step_context)
            if train.step.leave_op is not None:
                step_context.session.run(train.step.leave_op)
            at_end(step_context.session, progress.global_step)
        except PeerFailedError as error:
            stop.wait(_REASON_SECS)  # somebody may know which worker failed, and why
            stop.check()
            raise PeerLostError(str(error)) from error
        except LOST as error:
            stop.check()
            lost = lost_task(error)
            if isinstance(lost, PeerLostError):
                stop.wait(_REASON_SECS)
                stop.check()
            raise lost from error
        except FREED:
            stop.wait(_REASON_SECS)  # whoever was away for long finds the state of a run that the chief has replaced
            stop.check()
            raise
        except (tf.errors.CancelledError, RuntimeError):
            stop.check()  # the session was closed under us, for that reason
            raise

    try:
        session.run_step_fn(guarded)
    finally:
        if train.shard_reader is not None:
            train.shard_reader.close()  # the session's end waits for whoever waits for data
    return ended_by[0]


def _stay_for_others(
    session: tf.Session,
    exchange: Exchange,
    progress: Progress,
    stop: StopRequest,
    *,
    max_steps: int | None,
    after_step: Callable[[tf.Session], None],
) -> None:
    """Takes part in the others' steps, which cannot be made without this worker, until they are over too."""
    while (global_step := exchange.without_data(session)) != RELEASED:
        progress.go_along(global_step)
        after_step(session)
        if max_steps is not None and global_step >= max_steps:
            return
        stop.check()


def _wait_to_start(session: tf.Session, train: TrainGraph, progress: Progress, stop: StopRequest) -> None:
    """Waits for `TrainStep.start_when`; while others make steps, that is no stall."""
    condition = train.step.start_when
    read = session.make_callable([condition.is_met, train.current_step])
    is_met, seen = read()
    if not is_met:
        logging.info("waiting for %s", condition.reason)
    while not is_met:
        stop.check()
        stop.wait(_POLL_SECS)
        is_met, step = read()
        if step != seen:
            seen = step
            progress.begin()
    progress.begin()


def explained(error: BaseException, stop: StopRequest, has_state: Callable[[], bool]) -> BaseException:
    """The error to raise for one that came outside of the steps.

    Args:
        error: what was raised; one of TensorFlow's is this package's where a ps task is gone.
        stop: its reason comes first.
        has_state: asks whether the ps tasks still hold the run.
    """
    if not isinstance(error, tf.errors.OpError):
        return error
    if stop.reason is not None:
        return stop.reason
    try:
        # Only calls that may be repeated have a deadline.
        is_lost = isinstance(error, (*LOST, tf.errors.DeadlineExceededError)) or not has_state()
    except tf.errors.OpError:
        is_lost = True
    return lost_task(error) if is_lost else error


def _hooked(step_context: Any, fetches: list) -> Callable[[], Any]:
    return lambda: step_context.run_with_hooks(fetches)
