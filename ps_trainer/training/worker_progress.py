"""Counts one worker's steps: rate, loss and staleness, since the last report and since the worker joined."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from ps_trainer.errors import NanLossError
from ps_trainer.metrics.figures import StepReport, WorkerFigures
from ps_trainer.metrics.traffic import BytesPerStep, StepTraffic, Traffic
from ps_trainer.training.chance_level import ChanceLevel

_DIVERGED_GROWTH = 100.0
"""A mean loss above this multiple of the first loss, and of a guess's, gives a warning that the training diverges.

A worker that joins trained parameters has a small first loss, to which a single batch may be 100 times as large.
"""
_AT_CHANCE = 0.99
"""A mean loss, or a test metric, of this many times the value of a guess counts as chance."""
_RECENT_STEPS = 100
"""Steps whose mean loss is compared with a guess; single batches differ too much."""
_ADVICE = (
    "nothing was learned; train longer, try --learning_rate ten times smaller or larger, or --optimizer=adam"
    " --learning_rate=0.001, scale the inputs, and check that each label belongs to its input"
)


class StepObserver(Protocol):
    """Follows the steps of a worker; the Python API's callbacks are one."""

    @property
    def reason_to_end(self) -> str:
        """Sentence which says why the run should end before its last step; empty before that."""

    def on_step(self, progress: WorkerProgress, staleness: np.ndarray, loss: float) -> None:
        """Handles a step of the worker, in the worker's thread.

        Args:
            progress: Counts of the worker, this step included.
            staleness: Value of `Phase.staleness`.
            loss: Loss of the step's batch, which is finite.
        """


class WorkerProgress:
    """The progress of one worker in its steps.

    Args:
        batch_size: Number of examples per step.
        time_fn: Function that returns monotonic seconds.

    Attributes:
        local_steps: Number of steps of this worker.
        sent_steps: Number of those steps that pushed something.
        is_in_step: Whether a step has begun and not ended. If it fails then, its push may have been applied or not.
        global_step: Last value of global_step that this worker saw.
        last_step_at: Time of the last step, or of the start.
        examples_of: Function from a number of steps to the number of examples in the first steps of that number.
        observer: Object that is called after each step; None = no object.
        chance: Loss and metrics of a guess, and when this worker's should be below them; None = unknown.
    """

    def __init__(self, batch_size: int, time_fn: Callable[[], float] = time.monotonic):
        self.examples_of: Callable[[int], int] = lambda steps: steps * batch_size
        self._examples_reported = 0
        self._time_fn = time_fn
        self._staleness: Counter[int] = Counter()
        self._pushes = self._dropped = 0
        self._since_report: list[tuple[float, np.ndarray]] = []
        self._first_loss: float | None = None
        self._recent_losses: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._has_warned = False
        self._reported_at = self._started_at = self.last_step_at = time_fn()
        self._own_steps_ended_at: float | None = None
        self._traffic: StepTraffic | None = None
        self._read_delay: Callable[[], float] | None = None
        self._delay_secs = self._delay_secs_reported = 0.0
        self.local_steps = self.sent_steps = 0
        self.global_step = 0
        self.is_in_step = False
        self.observer: StepObserver | None = None
        self.chance: ChanceLevel | None = None

    def watch(self, sample: Callable[[], Traffic | None], sent_bytes: Callable[[], int]) -> None:
        """Adds the bytes on the network to the reports; to be called before the first step.

        Args:
            sample: Function that returns the traffic of this task's sockets so far, or None if it is unknown.
            sent_bytes: Function that returns the bytes that this worker has pushed, as computed.
        """
        self._traffic = StepTraffic(sample, sent_bytes)

    def count_delays(self, read_delay: Callable[[], float]) -> None:
        """Adds the injected delays to the reports; to be called before the first step.

        Args:
            read_delay: Function that returns the delay of the last step in seconds.
        """
        self._read_delay = read_delay

    def count_examples(self, examples_of: Callable[[int], int]) -> None:
        """Counts batches that differ in size; to be called before the first step.

        Args:
            examples_of: Function from a number of steps to the number of examples in the first steps of that number.
        """
        self.examples_of = examples_of

    def wait_for_data(self) -> None:
        """Notes that this worker waits for data, so that the wait does not count as a stall."""
        self.last_step_at = self._time_fn()

    @property
    def injected_delay(self) -> float:
        """Delay injected into the last step, in seconds."""
        return self._read_delay() if self._read_delay is not None else 0.0

    def begin_step(self) -> None:
        """Notes that a step begins; a subclass may take the time."""
        self.is_in_step = True

    def begin(self) -> None:
        """Starts the counts now, so that earlier waits are neither part of the rates nor a stall."""
        self._reported_at = self._started_at = self.last_step_at = self._time_fn()

    def add(self, global_step: int, staleness: np.ndarray, loss: float, times: Sequence[float] = ()) -> None:
        """Counts a step.

        Args:
            global_step: Value of global_step after the step.
            staleness: Value of `Phase.staleness`.
            loss: Loss of the step's batch.
            times: Values of `StepFetches.times`, for subclasses.

        Raises:
            NanLossError: The loss is NaN or infinite.
        """
        self.is_in_step = False
        self.local_steps += 1
        # A phase that pushes nothing has no staleness (`updates.base.Phase`).
        self.sent_steps += np.size(staleness) > 0
        self.global_step = int(global_step)
        self.last_step_at = self._time_fn()
        # Only collected here: the histogram is computed once per report, so that steps stay cheap.
        self._since_report.append((float(loss), staleness))
        self._delay_secs += self.injected_delay
        if self._first_loss is None:
            self._first_loss = float(loss)
        if not math.isfinite(loss):
            raise NanLossError(
                f"the loss is {loss} at global step {global_step}; lower --learning_rate or check the data."
                " The last checkpoint is unchanged"
            )
        if self.observer is not None:
            self.observer.on_step(self, staleness, float(loss))

    def count_foreign_exchange(self, global_step: int) -> None:
        """Counts an exchange that this worker joined without data. It is not a step of this worker, and not a stall."""
        if self._own_steps_ended_at is None:
            self._own_steps_ended_at = self.last_step_at
        self.global_step = int(global_step)
        self.last_step_at = self._time_fn()

    def secs_since_report(self) -> float:
        """Returns the seconds since `report`, or since the start."""
        return self._time_fn() - self._reported_at

    def report(self) -> StepReport | None:
        """Returns the figures since the last report; None if no step was made."""
        steps, secs = len(self._since_report), self.secs_since_report()
        if not steps or secs <= 0:
            return None
        losses = [loss for loss, _ in self._since_report]
        self._recent_losses.extend(losses)
        dropped_before = self._dropped
        recent = self._fold_staleness()
        self._reported_at = self._time_fn()
        examples = self.examples_of(self.local_steps)
        report = StepReport(
            local_step=self.local_steps,
            steps_per_sec=steps / secs,
            examples_per_sec=(examples - self._examples_reported) / secs,
            loss=sum(losses) / steps,
            staleness_mean=mean_of(recent) if recent else None,
            gradients_dropped=self._dropped - dropped_before or None,
            injected_delay_mean=self._delay_mean(self._delay_secs - self._delay_secs_reported, steps),
            **(self._traffic.report(steps) if self._traffic else BytesPerStep())._asdict(),
        )
        self._examples_reported, self._delay_secs_reported = examples, self._delay_secs
        return report

    def warning_of(self, report: StepReport) -> str:
        """Returns a warning if the loss is far above its first value and a guess's, or is a guess's after an epoch.

        Empty if the loss is neither, or after a warning.
        """
        first = self._first_loss
        if self._has_warned or first is None:
            return ""
        guess = self.chance.loss if self.chance is not None and math.isfinite(self.chance.loss) else 0.0
        if first > 0 and report.loss > _DIVERGED_GROWTH * max(first, guess):
            self._has_warned = True
            return (
                f"the loss has grown from {first:.4g} to {report.loss:.4g}; lower --learning_rate, or scale the inputs:"
                " values far above 1 make steps too long"
            )
        if self.chance is None or not self._has_made_an_epoch:
            return ""
        mean = sum(self._recent_losses) / len(self._recent_losses)
        if mean < _AT_CHANCE * self.chance.loss:
            return ""
        self._has_warned = True
        return (
            f"after an epoch the loss is {mean:.4g}, and a guess without the inputs has {self.chance.loss:.4g}:"
            f" {_ADVICE}"
        )

    def warning_of_metrics(self, metrics: Mapping[str, float]) -> str:
        """Returns a warning if a test metric is no better than a guess's after an epoch; empty after a warning.

        Args:
            metrics: Test metrics of the current parameters, by name.
        """
        if self.chance is None or self._has_warned or self.local_steps < self.chance.local_steps:
            return ""
        for name, guess in self.chance.metrics.items():
            if (value := metrics.get(name)) is not None and value >= _AT_CHANCE * guess:
                self._has_warned = True
                told = f"after an epoch {name} is {value:.4g}, and a guess without the inputs has {guess:.4g}"
                return f"{told}: {_ADVICE}"
        return ""

    @property
    def _has_made_an_epoch(self) -> bool:
        return self.chance is not None and self.local_steps >= max(_RECENT_STEPS, self.chance.local_steps)

    def summary(self) -> WorkerFigures:
        """Returns the figures since this worker last joined."""
        self._fold_staleness()
        # Without the exchanges that it joined after its own data had ended, which would lower its rates.
        secs = (self._own_steps_ended_at or self.last_step_at) - self._started_at
        examples = self.examples_of(self.local_steps)
        return WorkerFigures(
            local_steps=self.local_steps,
            examples=examples,
            pushes=self._pushes,
            gradients_dropped=self._dropped,
            secs=secs,
            steps_per_sec=self.local_steps / secs if secs > 0 else 0.0,
            examples_per_sec=examples / secs if secs > 0 else 0.0,
            staleness=dict(sorted(self._staleness.items())),
            staleness_mean=mean_of(self._staleness) if self._staleness else None,
            injected_delay_mean=self._delay_mean(self._delay_secs, max(1, self.local_steps)),
            **(self._traffic.summary() if self._traffic else BytesPerStep())._asdict(),
        )

    def close(self) -> None:
        """Ends the counts after the last step, or after a failure."""

    def _delay_mean(self, delay_secs: float, steps: int) -> float | None:
        return delay_secs / steps if self._read_delay is not None else None

    def _fold_staleness(self) -> Counter[int]:
        """Moves the collected values of staleness into the histogram; returns the moved values as a histogram.

        A value below 0 marks a dropped gradient. Steps without values pushed nothing.
        """
        if not self._since_report:
            return Counter()
        vectors = [np.atleast_1d(staleness) for _, staleness in self._since_report]
        self._pushes += sum(vector.size > 0 for vector in vectors)
        self._dropped += sum(bool(np.any(vector < 0)) for vector in vectors)
        values = np.concatenate(vectors)
        self._since_report = []
        recent = Counter(values[values >= 0].tolist())
        self._staleness += recent
        return recent


def mean_of(histogram: Counter[int]) -> float:
    """Returns the mean of a histogram that maps values to counts."""
    return sum(value * count for value, count in histogram.items()) / sum(histogram.values())
