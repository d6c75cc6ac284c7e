"""Counts one worker's steps: rate, loss and staleness, since the last report and over the run."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ps_trainer.errors import NanLossError
from ps_trainer.metrics.traffic import StepTraffic, Traffic


class Progress:
    """What one worker has done so far.

    Args:
        batch_size: examples per step.
        clock: seconds, monotonic.

    Attributes:
        local_steps: steps of this worker.
        sent_steps: those of them that pushed something.
        is_in_step: whether one has begun and not ended; set by the step loop.
        global_step: the last value seen.
        last_step_at: clock at the last step, or at the start.
        examples_of: gives the examples of the first so many steps.
    """

    def __init__(self, batch_size: int, clock: Callable[[], float] = time.monotonic):
        self.examples_of: Callable[[int], int] = lambda steps: steps * batch_size
        self._examples_reported = 0
        self._clock = clock
        self._staleness: Counter[int] = Counter()
        self._pushes = self._dropped = 0
        self._since_report: list[tuple[float, np.ndarray]] = []
        self._reported_at = self._started_at = self.last_step_at = clock()
        self._own_steps_ended_at: float | None = None
        self._traffic: StepTraffic | None = None
        self._read_delay: Callable[[], float] | None = None
        self._delay_secs = self._delay_secs_reported = 0.0
        self.local_steps = self.sent_steps = 0
        self.global_step = 0
        self.is_in_step = False

    def watch(self, sample: Callable[[], Traffic | None], sent_bytes: Callable[[], int]) -> None:
        """From now on reports also tell the bytes that cross the wire; call it before the first step.

        Args:
            sample: see `StepTraffic`.
            sent_bytes: see there.
        """
        self._traffic = StepTraffic(sample, sent_bytes)

    def count_delays(self, read_delay: Callable[[], float]) -> None:
        """From now on reports also tell how long steps are delayed on purpose; call it before the first step.

        Args:
            read_delay: gives the last step's delay, in seconds.
        """
        self._read_delay = read_delay

    def count_examples(self, examples_of: Callable[[int], int]) -> None:
        """From now on batches differ in size; call it before the first step.

        Args:
            examples_of: gives the examples of the first so many steps.
        """
        self.examples_of = examples_of

    def wait_for_data(self) -> None:
        """Notes that there is nothing to train on for the time being: no stall."""
        self.last_step_at = self._clock()

    @property
    def injected_delay(self) -> float:
        """Seconds that the last step was delayed on purpose."""
        return self._read_delay() if self._read_delay is not None else 0.0

    def timed(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """What the loop calls to make a step, in place of `run`: `run` itself, unless a subclass looks at the time."""
        return run

    def begin(self) -> None:
        """Counts from now on: what was before is neither in the rates nor a stall."""
        self._reported_at = self._started_at = self.last_step_at = self._clock()

    def add(self, global_step: int, staleness: np.ndarray, loss: float, times: Sequence[float] = ()) -> None:
        """Counts a step.

        Args:
            global_step: after the step.
            staleness: see `Phase.staleness`.
            loss: of its batch.
            times: see `TrainGraph.fetches`; for subclasses.

        Raises:
            NanLossError: the loss is not finite.
        """
        self.is_in_step = False
        self.local_steps += 1
        self.sent_steps += np.size(staleness) > 0
        self.global_step = int(global_step)
        self.last_step_at = self._clock()
        self._since_report.append((float(loss), staleness))
        self._delay_secs += self.injected_delay
        if not math.isfinite(loss):
            raise NanLossError(
                f"the loss is {loss} at global step {global_step}; lower --learning_rate or check the data."
                " The last checkpoint is untouched"
            )

    def go_along(self, global_step: int) -> None:
        """Notes a step of other workers that this one took part in without data: no stall, and no step of its own."""
        if self._own_steps_ended_at is None:
            self._own_steps_ended_at = self.last_step_at
        self.global_step = int(global_step)
        self.last_step_at = self._clock()

    def secs_since_report(self) -> float:
        """Seconds since `report`, or since the start."""
        return self._clock() - self._reported_at

    def report(self) -> dict[str, Any]:
        """Figures since the last report; empty without a step."""
        steps, secs = len(self._since_report), self.secs_since_report()
        if not steps or secs <= 0:
            return {}
        losses = [loss for loss, _ in self._since_report]
        dropped_before = self._dropped
        recent = self._fold_staleness()
        dropped = self._dropped - dropped_before
        self._reported_at = self._clock()
        examples = self.examples_of(self.local_steps)
        figures = {
            "local_step": self.local_steps,
            "steps_per_sec": steps / secs,
            "examples_per_sec": (examples - self._examples_reported) / secs,
            "loss": sum(losses) / steps,
        } | ({"staleness_mean": mean_of(recent)} if recent else {})
        figures |= {"gradients_dropped": dropped} if dropped else {}
        self._examples_reported = examples
        if self._read_delay is not None:
            figures["injected_delay_mean"] = (self._delay_secs - self._delay_secs_reported) / steps
            self._delay_secs_reported = self._delay_secs
        return figures | (self._traffic.report(steps) if self._traffic else {})

    def summary(self) -> dict[str, Any]:
        """Figures of the steps since this worker has joined last, as JSON values."""
        self._fold_staleness()
        secs = (self._own_steps_ended_at or self.last_step_at) - self._started_at
        examples = self.examples_of(self.local_steps)
        delays = {"injected_delay_mean": self._delay_secs / max(1, self.local_steps)} if self._read_delay else {}
        figures = {
            "local_steps": self.local_steps,
            "examples": examples,
            "pushes": self._pushes,
            "gradients_dropped": self._dropped,
            "secs": secs,
            "steps_per_sec": self.local_steps / secs if secs > 0 else 0.0,
            "examples_per_sec": examples / secs if secs > 0 else 0.0,
            "staleness": {str(value): count for value, count in sorted(self._staleness.items())},
            "staleness_mean": mean_of(self._staleness) if self._staleness else None,
        }
        return figures | delays | (self._traffic.summary() if self._traffic else {})

    def close(self) -> None:
        """The steps are over, or failed."""

    def _fold_staleness(self) -> Counter[int]:
        """Moves the collected values into the histogram; returns those alone.

        Values below 0 were not used: a step with one is a dropped gradient. Steps without values pushed nothing.
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
    """The mean of a histogram value -> count."""
    return sum(value * count for value, count in histogram.items()) / sum(histogram.values())
