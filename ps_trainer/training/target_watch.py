"""`TargetWatch`: finds out when the parameters reach the test metric at which training ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ps_trainer import target_metric as target_lib
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, did_you_mean
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import evaluate, metric_names
from ps_trainer.training.evaluation_pace import MIN_LIMIT_SECS, EvaluationLimits


class _Reached(NamedTuple):
    """Step at which the target was reached, and the metric's value then."""

    global_step: int
    value: float


@dataclasses.dataclass(frozen=True)
class TargetOutcome:
    """Whether a run reached its target metric.

    Attributes:
        wanted: The target as text.
        global_step: Step at which it was reached; None if it was not.
        value: Value of the metric at that step; None if the target was not reached.
    """

    wanted: str
    global_step: int | None = None
    value: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the entry about the target in summary.json."""
        if self.global_step is None:
            return {"wanted": self.wanted, "is_reached": False}
        return {"wanted": self.wanted, "is_reached": True, "global_step": self.global_step, "value": self.value}


class TargetWatch:
    """Evaluates the chief's checkpoints beside training, one at a time.

    A checkpoint that is offered during an evaluation is skipped. Only one thread may call the methods.

    Args:
        config: Settings of a run with a --target_metric.
        components: Components of the run.
        writer: Writer that records each evaluation.
    """

    def __init__(self, config: TrainConfig, components: Components, writer: MetricsWriter):
        self._target = target_lib.parse(config.target_metric or "")
        self._limits = EvaluationLimits(num_examples=config.eval_examples, max_secs=MIN_LIMIT_SECS)
        self._components = components
        self._writer = writer
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="target")
        self._evaluation: Future[tuple[int, dict[str, float]]] | None = None
        self._reached: _Reached | None = None

    def offer(self, values: Mapping[str, np.ndarray]) -> None:
        """Evaluates a checkpoint in a separate thread, unless an evaluation is in progress."""
        if self._evaluation is None:
            self._evaluation = self._threads.submit(self._evaluate, values)

    def evaluate_now(self, values: Mapping[str, np.ndarray]) -> None:
        """Evaluates a checkpoint now, in the caller's thread."""
        self._note(*self._evaluate(values))

    def poll(self) -> str:
        """Returns a sentence once the target is reached, and "" before; raises the error of a failed evaluation."""
        if self._evaluation is not None and self._evaluation.done():
            evaluation, self._evaluation = self._evaluation, None
            self._note(*evaluation.result())
        if self._reached is None:
            return ""
        return f"{self._target} is reached: {self._reached.value:.4g} at step {self._reached.global_step}"

    def outcome(self, step: int, metrics: Mapping[str, float]) -> TargetOutcome:
        """Returns whether the target is reached, given the metrics at the end."""
        if self._reached is None:
            # The final parameters count as well, because the run may end before a checkpoint of them is evaluated.
            self._reached = self._judge(step, metrics)
        return TargetOutcome(str(self._target), *(self._reached or ()))

    def close(self) -> None:
        """Ends the thread; does not wait for an evaluation in progress."""
        # An evaluation may take longer than a stopped job has time to end.
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _evaluate(self, values: Mapping[str, np.ndarray]) -> tuple[int, dict[str, float]]:
        return int(values["global_step"]), evaluate(self._components, values, self._limits)

    def _note(self, step: int, metrics: dict[str, float]) -> None:
        self._writer.eval(step, metrics)
        self._reached = self._reached or self._judge(step, metrics)

    def _judge(self, step: int, metrics: Mapping[str, float]) -> _Reached | None:
        return _Reached(step, metrics[self._target.metric]) if self._target.is_met(metrics) else None


def check(config: TrainConfig, components: Components) -> None:
    """Checks the target metric of a run, for the chief.

    Raises:
        OptionError: The run has a target, and writes no checkpoints, or its model has no such metric.
    """
    if config.target_metric is None:
        return
    if config.logdir is None:
        raise OptionError("--target_metric is evaluated with each checkpoint; give a --logdir for checkpoints")
    metric, known = target_lib.parse(config.target_metric).metric, metric_names(components)
    if not known:
        raise OptionError(f"--target_metric={config.target_metric} needs test examples, and the dataset has none")
    if metric not in known:
        raise OptionError(
            f"--target_metric={config.target_metric}: model {config.model!r} has no test metric {metric!r};"
            f" {did_you_mean(metric, known)}it has {', '.join(known)}"
        )
