"""Limits the time of an evaluation, and finds the number of examples that fits into the limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from absl import logging

MIN_LIMIT_SECS = 60.0
"""Time in seconds that the evaluation at the end of a run may take at least; otherwise the time of the training."""

_PROBE_SHARE = 0.1  # of the time, after which the evaluation judges whether it will end in time
_REPORT_SECS = 5.0
_MARGIN = 0.7  # of the examples that would just fit, because later batches may be slower
_MIN_EXAMPLES = 256


class EvaluationLimits(NamedTuple):
    """Limits of an evaluation, and what it tells while it runs.

    Attributes:
        num_examples: Number of test examples, spread evenly over all; None = as many as `max_secs` allow.
        max_secs: Time in seconds; None = any. An evaluation that would take longer uses fewer examples.
        check: Function that raises if the evaluation must end; called after each batch.
        report: Function that is told the progress in words, every few seconds.
        time_fn: Function that returns the time in seconds.
    """

    num_examples: int | None = None
    max_secs: float | None = None
    check: Callable[[], Any] = lambda: None
    report: Callable[[str], Any] = logging.info
    time_fn: Callable[[], float] = time.monotonic


NO_LIMITS = EvaluationLimits()


class EvaluationTooSlow(Exception):
    """All test examples do not fit into the time.

    Args:
        num_examples: Number of examples that do.
    """

    def __init__(self, num_examples: int):
        super().__init__(f"{num_examples} test examples fit into the time")
        self.num_examples = num_examples


class Pace:
    """Follows an evaluation from batch to batch.

    Args:
        limits: Limits of the evaluation.
        total: Number of its examples; None if it is unknown.
        may_begin_again: Whether an evaluation that is too slow may begin again with fewer examples.

    Attributes:
        is_cut: Whether the time is over, so that the evaluation must end with what it has.
    """

    def __init__(self, limits: EvaluationLimits, total: int | None, *, may_begin_again: bool = True):
        self._limits, self._total = limits, total
        self._may_begin_again = may_begin_again
        self._started = self._reported = limits.time_fn()
        self._first: tuple[float, int] | None = None
        self.is_cut = False

    def secs_left(self) -> float | None:
        """Returns the time that is left; None if it is not limited."""
        if self._limits.max_secs is None:
            return None
        return self._limits.max_secs - (self._limits.time_fn() - self._started)

    def after_batch(self, num_done: int) -> None:
        """Notes a batch.

        Args:
            num_done: Number of examples so far.

        Raises:
            EvaluationTooSlow: The evaluation will not end in time.
        """
        self._limits.check()
        now = self._limits.time_fn()
        if now - self._reported >= _REPORT_SECS:
            self._reported = now
            self._limits.report(f"evaluating: {num_done} of {self._total or 'the'} test examples")
        if self._first is None:
            self._first = now, num_done  # the first batch takes longer, so it says nothing about the others
            return
        left, max_secs = self.secs_left(), self._limits.max_secs
        if left is None or max_secs is None or self._limits.num_examples is not None:
            return
        if self._may_begin_again and self._total is not None and left < (1 - _PROBE_SHARE) * max_secs:
            self._may_begin_again = False
            per_sec = (num_done - self._first[1]) / max(now - self._first[0], 1e-6)
            if (self._total - num_done) / per_sec > left:
                raise EvaluationTooSlow(max(_MIN_EXAMPLES, int(_MARGIN * per_sec * left)))
        self.is_cut = left <= 0
