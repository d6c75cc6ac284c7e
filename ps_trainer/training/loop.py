"""The step loop of one worker, inside a `MonitoredTrainingSession`.

    wait until the rule lets this worker start
    join, read global_step, call after_join
    start the data
    until a hook asks to stop:
        raise the reason of a stop request
        restart the data if other workers were given its shards
        end if the target metric is reached
        run a phase: pull, compute, push, apply      end at the end of the data
        exchange gradients with the other workers, under rules that do so
        raise PsLostError if the chief released this worker
        note the step, call after_step
        end at max_steps
    take part in the exchanges of the other workers, until they end as well
    leave, call at_end

Steps run on the bare session, one call each: `MonitoredSession.run` would cost up to a millisecond a
step. With `SessionRunHook`s of the user's, every step goes through them instead. The loop translates errors before
`MonitoredSession` sees them, which would retry without end. The reason of a stop request always comes first:

    raised inside the loop                            becomes
    OutOfRangeError of the input                      the end of the data
    OutOfRangeError of another queue                  PsLostError: a ps task has closed the queue
    PeerFailedError, of an exchange                   PeerLostError, after a wait for the reason
    LOST_ERRORS: a ps task or a worker is gone        PsLostError or PeerLostError, as `lost_task` finds
    FREED_ERRORS: the chief has replaced the run      itself, after a wait for the reason
    CancelledError, RuntimeError: a closed session    itself
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.errors import PeerFailedError, PeerLostError, PsLostError
from ps_trainer.runtime.lost import FREED_ERRORS, LOST_ERRORS, lost_task
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.training.graph import TrainGraph
from ps_trainer.training.progress import Progress
from ps_trainer.updates.base import RELEASED

_POLL_SECS = 0.1
_REASON_SECS = 6.0  # in which the ps tasks notice that a worker was killed
_RELEASE_REASON_SECS = 10.0  # in which the task that released this worker says why


class EndReason(enum.Enum):
    """Why the steps of a worker are over; the value is for messages."""

    MAX_STEPS = "max_steps"
    MAX_STEPS_BEFORE = "max_steps, reached before"
    TARGET = "the target metric"
    DATA = "end of the data"
    HOOK = "a hook's request"


class LoopCalls(NamedTuple):
    """What the loop calls.

    Attributes:
        after_join: before the first step, with the bare session and global_step.
        after_step: after each step, with the bare session and the counts of `TrainGraph.fetches`.
        at_end: when the steps are over and none failed, with the bare session and global_step.
        is_target_reached: before each step.
    """

    after_join: Callable[[tf.Session, int], None]
    after_step: Callable[[tf.Session, Sequence[np.ndarray]], None]
    at_end: Callable[[tf.Session, int], None]
    is_target_reached: Callable[[], bool]


class StepLoop:
    """Runs the steps of one worker.

    Args:
        train: the worker's graph.
        progress: counts the steps.
        stop: asked to stop.
        calls: see `LoopCalls`.
        max_steps: global_step at which to end, or None.
        has_hooks: whether the user's hooks want to see every step.
    """

    def __init__(
        self,
        train: TrainGraph,
        progress: Progress,
        stop: StopRequest,
        calls: LoopCalls,
        *,
        max_steps: int | None,
        has_hooks: bool,
    ):
        self._train = train
        self._progress = progress
        self._stop = stop
        self._calls = calls
        self._max_steps = max_steps
        self._has_hooks = has_hooks

    def run(self, session: tf.train.MonitoredSession) -> EndReason:
        """Joins, makes steps until they are over, and leaves.

        Raises:
            PsLostError: a ps task is gone.
            PeerLostError: a worker is gone without which no step can be made.
            PsTrainerError, Interrupted: the reason of the stop request.
        """

        def work(step_context: Any) -> EndReason:
            with _translated_errors(self._stop):
                return self._work(session, step_context)

        try:
            return session.run_step_fn(work)
        finally:
            if self._train.shard_reader is not None:
                self._train.shard_reader.close()  # a call that waits for data would hold up the session's end

    def _work(self, session: tf.train.MonitoredSession, step_context: Any) -> EndReason:
        # It may be closed twice: as it ends, the monitored session fails if it was closed meanwhile.
        raw = step_context.session
        self._stop.on_abort(raw.close)
        if self._train.step.exchange is not None:
            self._stop.on_release(raw.close)  # a collective waits for every worker, also for a lost one
        phases = [self._progress.timed(self._callable(step_context, fetches)) for fetches in self._train.fetches]
        global_step = self._join(raw)
        if self._is_last(global_step):
            reason = EndReason.MAX_STEPS_BEFORE
        else:
            raw.run(self._train.begin_data_op)
            reason = self._make_steps(session, raw, phases, global_step)
            if self._train.step.exchange is not None and reason is not EndReason.MAX_STEPS:
                self._stay_for_others(raw)
        if self._train.step.leave_op is not None:
            raw.run(self._train.step.leave_op)
        self._calls.at_end(raw, self._progress.global_step)
        return reason

    def _callable(self, step_context: Any, fetches: list[Any]) -> Callable[[], Any]:
        if self._has_hooks:
            return lambda: step_context.run_with_hooks(fetches)
        return step_context.session.make_callable(fetches)

    def _join(self, raw: tf.Session) -> int:
        """Makes this worker one of those that train; returns global_step."""
        step = self._train.step
        if step.start_when is not None:
            _wait_to_start(raw, self._train, self._progress, self._stop)
        for op in self._train.join_ops:
            raw.run(op)
        global_step = int(raw.run(self._train.current_step))
        self._calls.after_join(raw, global_step)
        if step.on_restored is not None:
            step.on_restored(raw)
        return global_step

    def _make_steps(
        self, session: tf.train.MonitoredSession, raw: tf.Session, phases: Sequence[Callable[[], Any]], global_step: int
    ) -> EndReason:
        train, progress, stop, calls = self._train, self._progress, self._stop, self._calls
        choose = train.step.choose or (lambda global_step: 0)
        exchange = train.step.exchange
        count_exchanged = None if train.count_exchanged_op is None else raw.make_callable(train.count_exchanged_op)
        while not session.should_stop():
            stop.check()
            if train.shard_reader is not None and train.shard_reader.is_outdated():
                raw.run(train.begin_data_op)
            if calls.is_target_reached():
                return EndReason.TARGET
            progress.is_in_step = True
            try:
                global_step, staleness, loss, times, counts, _ = phases[choose(int(global_step))]()
            except tf.errors.OutOfRangeError as error:
                self._check_is_end_of_data(error)
                return EndReason.DATA
            if exchange is not None:
                global_step = exchange.after_phase(raw)
            if count_exchanged is not None:
                count_exchanged()
            if global_step == RELEASED:
                self._fail_as_released()
            progress.add(global_step, staleness, loss, times)
            calls.after_step(raw, counts)
            if self._is_last(global_step):
                return EndReason.MAX_STEPS
        return EndReason.HOOK

    def _is_last(self, global_step: int) -> bool:
        return self._max_steps is not None and global_step >= self._max_steps

    def _check_is_end_of_data(self, error: tf.errors.OutOfRangeError) -> None:
        self._stop.check()  # a stop request ends the data as well
        if "IteratorGetNext" not in str(error) and "End of sequence" not in str(error):
            raise PsLostError(f"a queue on the ps tasks was closed: {error.message}") from error

    def _fail_as_released(self) -> NoReturn:
        self._stop.wait(_RELEASE_REASON_SECS)
        self._stop.check()
        raise PsLostError("the chief let this worker go without a reason")

    def _stay_for_others(self, raw: tf.Session) -> None:
        """Takes part in the steps of the other workers, which need this one, until these are over too."""
        while (global_step := self._train.step.exchange.without_data(raw)) != RELEASED:
            self._progress.go_along(global_step)
            self._calls.after_step(raw, ())
            if self._is_last(global_step):
                return
            self._stop.check()


@contextlib.contextmanager
def _translated_errors(stop: StopRequest) -> Iterator[None]:
    """Raises what the table above says, in place of what the body raises."""
    try:
        yield
    except PeerFailedError as error:
        stop.wait(_REASON_SECS)  # another task may know which worker failed, and why
        stop.check()
        raise PeerLostError(str(error)) from error
    except LOST_ERRORS as error:
        stop.check()
        lost = lost_task(error)
        if isinstance(lost, PeerLostError):
            stop.wait(_REASON_SECS)
            stop.check()
        raise lost from error
    except FREED_ERRORS:
        stop.wait(_REASON_SECS)  # a worker that was away for long finds that the chief has replaced the run
        stop.check()
        raise
    except (tf.errors.CancelledError, RuntimeError):
        stop.check()  # the stop request may have closed the session
        raise


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
        is_lost = isinstance(error, (*LOST_ERRORS, tf.errors.DeadlineExceededError)) or not has_state()
    except tf.errors.OpError:
        is_lost = True
    return lost_task(error) if is_lost else error
