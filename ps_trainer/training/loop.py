"""The step loop of one worker, inside a `MonitoredTrainingSession`.

    wait until the rule lets this worker start
    run join_ops, read global_step, call after_join
    unless max_steps was reached before:
        start the data
        until a hook asks to stop:
            raise the reason of a stop request
            restart the data if other workers were given its shards
            end if the target metric is reached
            run a phase: pull, compute, push, apply           end at the end of the data
            exchange with the other workers, and count the batch      (rules with an exchange)
            fail if the chief released this worker
            note the step, call after_step
            end at max_steps
        stay in the exchanges of the other workers until they end as well   (rules with an exchange)
    run leave_op, call at_end

Steps run on the bare session, because `MonitoredSession.run` costs up to a millisecond a step. If the user gives
`SessionRunHook`s, every step goes through them instead. A phase may be a call of several steps
(`graph_parts/step_calls.py`), which counts all of them but the last.

`step_errors.py` lists the errors that end the loop, and what the loop raises for them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.errors import LostError, PsLostError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.store import fed_call
from ps_trainer.training.graph_parts.step_calls import StepCalls
from ps_trainer.training.graph_parts.step_fetches import StepFetches
from ps_trainer.training.step_errors import translated_errors
from ps_trainer.training.train_graph import TrainGraph
from ps_trainer.training.worker_progress import WorkerProgress
from ps_trainer.updates.base import RELEASED, Exchange, Phase, StartCondition

_POLL_SECS = 0.1
_RELEASE_REASON_SECS = 10.0  # the chief releases the workers first, and then reports why it ended


class EndReason(enum.Enum):
    """Why the steps of a worker ended; the values are for messages."""

    MAX_STEPS = "max_steps"
    MAX_STEPS_BEFORE = "max_steps, reached before"
    TARGET = "the target metric, or a callback"
    DATA = "end of the data"
    HOOK = "a hook's request"


class LoopCalls(NamedTuple):
    """The functions that the loop calls.

    Attributes:
        after_join: Called before the first step, with the bare session and global_step.
        after_step: Called after each step, with the bare session and `StepFetches.counts`.
        at_end: Called after the last step, unless a step failed, with the bare session and global_step.
        is_target_reached: Called before each call; returns whether the target metric is reached.
        inside_call: Called after a step inside a call, with global_step and `StepFetches.counts`. It stands for
            `after_step`, without a session; returns False, and does nothing, if that has something to do.
    """

    after_join: Callable[[tf.Session, int], None]
    after_step: Callable[[tf.Session, Sequence[np.ndarray]], None]
    at_end: Callable[[tf.Session, int], None]
    is_target_reached: Callable[[], bool]
    inside_call: Callable[[int, Sequence[np.ndarray]], bool]


class StepLoop:
    """Runs the steps of one worker.

    Args:
        train: Graph of the worker.
        progress: Counter of this worker's steps.
        stop: Stop request, which other threads make.
        calls: Functions to call.
        max_steps: Value of global_step at which the steps end; None if they end otherwise.
        has_hooks: Whether every step goes through the user's hooks.
        is_colocated: Whether the workers hold the parameters.
    """

    def __init__(
        self,
        train: TrainGraph,
        progress: WorkerProgress,
        stop: StopRequest,
        calls: LoopCalls,
        *,
        max_steps: int | None,
        has_hooks: bool,
        is_colocated: bool = False,
    ):
        self._train = train
        self._progress = progress
        self._stop = stop
        self._calls = calls
        self._max_steps = max_steps
        self._has_hooks = has_hooks
        self._is_data_outdated = False
        self._is_colocated = is_colocated

    def run(self, session: tf.train.MonitoredSession) -> EndReason:
        """Joins the run, makes steps until they end, and leaves.

        Raises:
            PsLostError: A ps task is lost.
            PeerLostError: A worker is lost, and no step is possible without it.
            PsTrainerError, Interrupted: The reason of the stop request.
        """

        def work(step_context: Any) -> EndReason:
            with translated_errors(self._stop, is_colocated=self._is_colocated):
                return self._work(session, step_context)

        try:
            # One call for all steps, so that `translated_errors` sees an error before TensorFlow's session retries.
            return session.run_step_fn(work)
        finally:
            if self._train.shard_reader is not None:
                self._train.shard_reader.close()  # else a call that waits for a shard delays the end of the session

    def _work(self, session: tf.train.MonitoredSession, step_context: Any) -> EndReason:
        raw = step_context.session
        self._let_stop_close(raw)
        phases = [
            self._callable(step_context, phase, fetches)
            for phase, fetches in zip(self._train.step.phases, self._train.fetches, strict=True)
        ]
        global_step = self._join(raw)
        if self._is_last(global_step):
            reason = EndReason.MAX_STEPS_BEFORE
        else:
            self._begin_data(raw)
            reason = self._make_steps(session, raw, phases, global_step)
            # All workers reach `max_steps` in the same exchange, so no worker needs this one after it.
            if self._train.step.exchange is not None and reason is not EndReason.MAX_STEPS:
                self._stay_for_others(raw, self._train.step.exchange)
        if self._train.step.leave_op is not None:
            raw.run(self._train.step.leave_op)
        self._calls.at_end(raw, self._progress.global_step)
        return reason

    def _let_stop_close(self, raw: tf.Session) -> None:
        """Lets a stop request close the bare session, so that a call which blocks fails.

        A bare session may be closed twice. The monitored session would fail at its end if it was closed before.
        """
        self._stop.on_abort(raw.close)
        self._stop.on_release(lambda: self._close_before_first_step(raw))
        if self._train.step.exchange is not None:
            self._stop.on_release(raw.close)  # a collective waits for every worker, even for a lost one

    def _close_before_first_step(self, raw: tf.Session) -> None:
        """Closes the session if this worker has made no step: the first one may take long, and nothing is lost."""
        if not self._progress.local_steps and not isinstance(self._stop.reason, LostError):
            raw.close()

    def _callable(self, step_context: Any, phase: Phase, fetches: StepFetches) -> Callable[[], StepFetches | None]:
        if self._has_hooks:
            return lambda: step_context.run_with_hooks(fetches)
        if self._train.call is None:
            return _single_step(step_context.session, phase, fetches)
        limits = self._train.call_limits
        return StepCalls(self._train.call, limits, may_continue=self._may_continue, add=self._add_inside).callable(
            step_context.session
        )

    def _may_continue(self, step: StepFetches) -> bool:
        """Returns whether the loop has nothing to do after a step inside a call."""
        is_last = step.global_step == RELEASED or self._is_last(step.global_step) or not np.isfinite(step.loss)
        if is_last or self._stop.is_requested:
            return False
        return self._calls.inside_call(int(step.global_step), step.counts)

    def _add_inside(self, step: StepFetches) -> bool:
        """Counts a step inside a call; returns whether the call continues."""
        self._progress.add(step.global_step, step.staleness, step.loss, step.times)
        observer, reader = self._progress.observer, self._train.shard_reader
        self._is_data_outdated = reader is not None and reader.is_outdated()
        if self._is_data_outdated or (observer is not None and observer.reason_to_end):
            return False
        self._begin_step()
        return True

    def _begin_step(self) -> None:
        """Notes that a step begins, whose parameters are on the worker."""
        self._progress.begin_step()
        if self._train.straggler is not None:
            self._train.straggler.begin_step()

    def _join(self, raw: tf.Session) -> int:
        """Makes this worker one of those that train; returns global_step."""
        step = self._train.step
        if step.start_when is not None:
            _wait_to_start(raw, step.start_when, self._train.current_step, self._progress, self._stop)
        for op in self._train.join_ops:
            raw.run(op, step.join_feeds)
        global_step = int(raw.run(self._train.current_step))
        self._calls.after_join(raw, global_step)
        if step.on_restored is not None:
            step.on_restored(raw)
        return global_step

    def _make_steps(
        self,
        session: tf.train.MonitoredSession,
        raw: tf.Session,
        phases: Sequence[Callable[[], StepFetches | None]],
        global_step: int,
    ) -> EndReason:
        """Makes steps until one of the reasons to end applies; returns the reason."""
        train = self._train
        choose = train.step.choose or (lambda global_step: 0)
        exchange = train.step.exchange
        count_exchanged = None if train.count_exchanged_op is None else raw.make_callable(train.count_exchanged_op)
        while not session.should_stop():
            self._stop.check()
            if train.shard_reader is not None and (self._is_data_outdated or train.shard_reader.is_outdated()):
                self._begin_data(raw)
                self._is_data_outdated = False
            if self._calls.is_target_reached():
                return EndReason.TARGET
            self._begin_step()
            try:
                done = phases[choose(int(global_step))]()
            except tf.errors.OutOfRangeError as error:
                self._check_is_end_of_data(error)
                return EndReason.DATA
            if done is None:
                continue
            global_step = done.global_step if exchange is None else exchange.after_phase(raw)
            if count_exchanged is not None:
                count_exchanged()
            if global_step == RELEASED:
                self._fail_as_released()
            self._progress.add(global_step, done.staleness, done.loss, done.times)
            self._calls.after_step(raw, done.counts)
            if self._is_last(global_step):
                return EndReason.MAX_STEPS
        return EndReason.HOOK

    def _begin_data(self, raw: tf.Session) -> None:
        for op in self._train.begin_data_ops:
            raw.run(op)

    def _is_last(self, global_step: int) -> bool:
        return self._max_steps is not None and global_step >= self._max_steps

    def _check_is_end_of_data(self, error: tf.errors.OutOfRangeError) -> None:
        """Raises PsLostError if the error comes from a queue on a ps task: TensorFlow has one error for both."""
        self._stop.check()  # a stop request also ends the data, as it closes the shard reader
        if "IteratorGetNext" not in str(error) and "End of sequence" not in str(error):
            raise PsLostError(f"a ps task closed a queue: {error.message}") from error

    def _fail_as_released(self) -> NoReturn:
        self._stop.wait(_RELEASE_REASON_SECS)
        self._stop.check()
        raise PsLostError("the chief released this worker from its wait without giving a reason")

    def _stay_for_others(self, raw: tf.Session, exchange: Exchange) -> None:
        """Takes part in the exchanges of the other workers, which need every worker, until their steps end as well."""
        while (global_step := exchange.without_data(raw)) != RELEASED:
            self._progress.count_foreign_exchange(global_step)
            self._calls.after_step(raw, ())
            if self._is_last(global_step):
                return
            self._stop.check()


def _single_step(session: tf.Session, phase: Phase, fetches: StepFetches) -> Callable[[], StepFetches]:
    """Returns the function that makes a call of one step: of few tensors, and with little work in Python."""
    progress = [fetches.global_step, fetches.staleness] if phase.progress is None else [phase.progress]
    times_at = len(progress) + 1
    counts_at = times_at + len(fetches.times)
    end = counts_at + len(fetches.counts)
    targets = dict.fromkeys(getattr(target, "op", target) for target in fetches.targets)  # ops return no values
    run = fed_call.make(session, [*progress, fetches.loss, *fetches.times, *fetches.counts, *targets], [])

    def step() -> StepFetches:
        values = run()
        global_step, staleness = values[:2] if phase.progress is None else (values[0][0], values[0][1:])
        return StepFetches(
            global_step, staleness, values[times_at - 1], values[times_at:counts_at], values[counts_at:end], ()
        )

    return step


def _wait_to_start(
    session: tf.Session,
    condition: StartCondition,
    current_step: tf.Tensor,
    progress: WorkerProgress,
    stop: StopRequest,
) -> None:
    """Waits for `TrainStep.start_when`. The wait is not a stall as long as other workers make steps."""
    read = session.make_callable([condition.is_met, current_step])
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
