"""`StepCalls`: several steps of a worker in one call of TensorFlow (`--steps_per_call`).

A call costs the same for one step as for a hundred: requests to each ps task, threads that wake up, and Python around
it. So the worker makes several steps in a call (`multi_step_graph.py`). After each step this module's `_note` runs on
the worker, inside the call, as the step loop runs after a call of one step. It counts the step, logs it, and ends the
call as soon as the loop itself has something to do. So a call never makes a step too many:

    ends a call                                   because the loop then
    the number of steps, or the time              looks whether the target metric is reached
    max_steps, or a release by the rule           ends
    a stop request                                ends with its reason
    a NaN loss                                    fails
    a report, a save or a fault that is due       uses the session, or raises
    a callback that ends the run                  ends
    other workers were given this one's shards    starts the data again
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError
from ps_trainer.training.graph_parts.multi_step_graph import MultiStepGraph
from ps_trainer.training.graph_parts.step_fetches import StepFetches
from ps_trainer.updates.base import TrainStep, UpdateRule

AUTOMATIC_STEPS = 50
"""Largest number of steps in a call where no flag sets it: more steps no longer make a step measurably cheaper."""
AUTOMATIC_SECS = 0.1
"""Time after which such a call ends with its step, in a run with a target metric: the chief looks for it between calls.

Elsewhere a call of slow steps holds many as well, since a step begins while its last parameters arrive."""


class CallLimits(NamedTuple):
    """The longest that a call may last.

    Attributes:
        steps: Number of steps; 1 = each step is a separate call.
        secs: Time in seconds after which the step in progress is the last one of the call.
    """

    steps: int
    secs: float = math.inf


def check(config: TrainConfig, rule: UpdateRule, *, has_hooks: bool) -> None:
    """Checks `--steps_per_call` before any task starts.

    Raises:
        OptionError: Something acts on the host between two steps, so that no two steps fit into one call.
    """
    reason = _reason_for_single(config, rule, has_hooks=has_hooks)
    if config.steps_per_call > 1 and reason:
        raise OptionError(f"--steps_per_call={config.steps_per_call}: {reason}; use --steps_per_call=1 or 0")


def may_hold_several(config: TrainConfig, rule: UpdateRule, *, has_hooks: bool) -> bool:
    """Returns whether calls may hold several steps, as far as this is known before the rule has built its step."""
    if config.steps_per_call == 1 or _reason_for_single(config, rule, has_hooks=has_hooks):
        return False
    # The gain was measured on CPUs only.
    return bool(config.steps_per_call) or not tf.config.list_physical_devices("GPU")


def limits_of(config: TrainConfig, rule: UpdateRule, step: TrainStep, *, has_hooks: bool) -> CallLimits:
    """Returns the limits of a worker's calls.

    Args:
        config: Settings of the run.
        rule: Update rule.
        step: Step as the rule has built it.
        has_hooks: Whether the user's hooks look at each step.

    Raises:
        OptionError: The settings ask for several steps in a call, and the rule acts on the host between two steps.
    """
    reason = _reason_for_single(config, rule, has_hooks=has_hooks)
    if not reason and (len(step.phases) > 1 or step.choose is not None or step.exchange is not None):
        reason = _reason_of_rule(config)
    if config.steps_per_call > 1 and reason:
        raise OptionError(f"--steps_per_call={config.steps_per_call}: {reason}; use --steps_per_call=1 or 0")
    if reason or not may_hold_several(config, rule, has_hooks=has_hooks):
        return CallLimits(1)
    if config.steps_per_call:
        return CallLimits(config.steps_per_call)
    return CallLimits(AUTOMATIC_STEPS, AUTOMATIC_SECS if config.target_metric else math.inf)


class StepCalls:
    """The calls of one worker.

    Args:
        graph: Ops of a call.
        limits: How long a call lasts at most.
        may_continue: Function that gets the figures of a step, and returns whether another one may follow in the call.
        add: Function that counts a step after which the call continues, and returns whether it really may.
        time_fn: Function that returns monotonic seconds.
    """

    def __init__(
        self,
        graph: MultiStepGraph,
        limits: CallLimits,
        *,
        may_continue: Callable[[StepFetches], bool],
        add: Callable[[StepFetches], bool],
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self._graph = graph
        self._limits = limits
        self._may_continue = may_continue
        self._add = add
        self._time_fn = time_fn
        self._num_steps = 0
        self._ends_at = math.inf
        self._last: StepFetches | None = None
        self._error: BaseException | None = None

    def callable(self, session: tf.Session) -> Callable[[], StepFetches | None]:
        """Returns the function that makes a call.

        It returns the figures of the last step, which no worker has counted yet; None if that one is counted as well.
        """
        run = session.make_callable(self._graph.ops)
        self._graph.note = self._note

        def call() -> StepFetches | None:
            self._num_steps, self._last, self._error = 0, None, None
            self._ends_at = self._time_fn() + self._limits.secs
            run()
            if self._error is not None:
                raise self._error
            return self._last

        return call

    def _note(self, step: StepFetches) -> bool:
        """Notes a step, called by the graph; an error must not leave it, since TensorFlow would replace it."""
        try:
            self._num_steps += 1
            is_over = self._num_steps >= self._limits.steps or self._time_fn() >= self._ends_at
            if is_over or not self._may_continue(step):
                self._last = step
                return False
            return self._add(step)
        except BaseException as error:  # noqa: BLE001 - raised again when the call has returned
            self._error = error
            return False


def _reason_for_single(config: TrainConfig, rule: UpdateRule, *, has_hooks: bool) -> str:
    """Returns in words why each step must be a separate call; empty if it need not be."""
    if rule.acts_on_host:
        return _reason_of_rule(config)
    if has_hooks:
        return "a session hook looks at each step"
    if config.straggler:
        return "--straggler delays each step on the host"
    return ""


def _reason_of_rule(config: TrainConfig) -> str:
    return f"--update={config.update} decides or exchanges something on the worker's host between two steps"
