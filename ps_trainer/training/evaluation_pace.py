"""Limits the time of an evaluation, and finds the number of examples that fits into the limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from absl import logging

MIN_LIMIT_SECS = 60.0
"""Time in seconds that the evaluation at the end of a run may take at least; otherwise the time of the training."""

SHARED_SECS = 10.0
"""Time in seconds that the rest of an evaluation must take, so that other workers begin to help."""

_MEASURE_SECS = 2.0  # after which the pace is known well enough for that decision
_PROBE_SHARE = 0.1  # of the time, after which the evaluation judges whether it will end in time
_REPORT_SECS = 5.0
_MARGIN = 0.7  # of the examples that would just fit, because later batches may be slower


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
        cpu_time_fn: Function that returns the CPU time of this process in seconds.

    Attributes:
        count_helpers: Function that gets the number of cores in use, and returns the number of workers that can help;
            called once if the evaluation takes long. None = no workers.
        num_helpers: Number of workers that are to help; 0 until that is decided.
        is_cut: Whether the time is over, so that the evaluation must end with what it has.
    """

    def __init__(
        self,
        limits: EvaluationLimits,
        total: int | None,
        *,
        may_begin_again: bool = True,
        cpu_time_fn: Callable[[], float] = time.process_time,
    ):
        self._limits, self.total = limits, total
        self._may_begin_again = may_begin_again
        self._cpu_time_fn = cpu_time_fn
        self._started = self._reported = limits.time_fn()
        self._first: _FirstBatch | None = None
        self.count_helpers: Callable[[float], int] | None = None
        self.num_helpers = 0
        self.is_cut = False

    def secs_left(self) -> float | None:
        """Returns the time that is left; None if it is not limited."""
        if self._limits.max_secs is None:
            return None
        return self._limits.max_secs - (self._limits.time_fn() - self._started)

    def after_batch(self, num_done: int) -> bool:
        """Notes a batch; returns whether the evaluation may continue.

        Args:
            num_done: Number of examples so far.

        Raises:
            EvaluationTooSlow: The evaluation will not end in time.
        """
        self._limits.check()
        now = self._limits.time_fn()
        if now - self._reported >= _REPORT_SECS:
            self._reported = now
            self._limits.report(f"evaluating: {num_done} of {self.total or 'the'} test examples")
        max_secs = self._limits.max_secs if self._limits.num_examples is None else None
        if self._first is None:
            # The first batch takes longer, so it says nothing about the others.
            self._first = _FirstBatch(now, self._cpu_time_fn(), num_done)
            self.is_cut = max_secs is not None and now - self._started >= max_secs
            return not self.is_cut
        self._look_for_help(self._first, now, num_done)
        left = self.secs_left()
        if left is None or max_secs is None:
            return True
        if left <= 0:
            self.is_cut = True
            return False
        is_probed = self.num_helpers or left < (1 - _PROBE_SHARE) * max_secs
        if self._may_begin_again and self.total is not None and is_probed:
            self._may_begin_again = False
            # Of this worker alone: how much the helpers gain depends on how much of the time is reading.
            per_sec = self._per_sec(self._first, now, num_done)
            if (self.total - num_done) / per_sec > left:
                raise EvaluationTooSlow(max(1, int(_MARGIN * per_sec * left)))
        return True

    def _look_for_help(self, first: _FirstBatch, now: float, num_done: int) -> None:
        """Decides once whether other workers are to help, when the pace is known."""
        if self.count_helpers is None or self.total is None or now - first.at < _MEASURE_SECS:
            return
        count, self.count_helpers = self.count_helpers, None
        if (self.total - num_done) / self._per_sec(first, now, num_done) > SHARED_SECS:
            self.num_helpers = count((self._cpu_time_fn() - first.cpu_secs) / (now - first.at))

    def _per_sec(self, first: _FirstBatch, now: float, num_done: int) -> float:
        return (num_done - first.num_done) / max(now - first.at, 1e-6)


class _FirstBatch(NamedTuple):
    """The end of the first batch: times, and number of examples."""

    at: float
    cpu_secs: float
    num_done: int
