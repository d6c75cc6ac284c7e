"""`train`: replays a whole schedule and records training curve and test metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.simulation.replay.gradients import Values
from ps_trainer.simulation.replay.replay import Replay, ReplayedStep, ReplayEvaluation
from ps_trainer.simulation.replay.training_setup import TrainingSetup
from ps_trainer.simulation.schedule import Schedule


class TrainingCurve(NamedTuple):
    """Training loss and metrics by update; all arrays have one entry per update.

    Attributes:
        version: int64, global_step after the update.
        secs: float64, virtual time of the update.
        num_steps: int64, number of steps that had ended by then.
        loss: float64, mean loss of the steps that ended since the update before.
        metrics: Means of the model's metrics over the same steps, by name.
    """

    version: np.ndarray
    secs: np.ndarray
    num_steps: np.ndarray
    loss: np.ndarray
    metrics: dict[str, np.ndarray]


class ReplayResult(NamedTuple):
    """Result of a replay.

    Attributes:
        curve: Training loss and metrics.
        evaluations: Test metrics in the order of time; the last entry belongs to the end.
        values: Values of all model variables at the end.
        has_diverged: Whether a loss that is not finite ended the run; then it is the curve's last.
    """

    curve: TrainingCurve
    evaluations: list[ReplayEvaluation]
    values: Values
    has_diverged: bool


def train(
    training: TrainingSetup,
    schedule: Schedule,
    update: str,
    option_strings: Sequence[str] = (),
    *,
    evaluate_every: int = 0,
    stop_when: Callable[[ReplayEvaluation], bool] | None = None,
) -> ReplayResult:
    """Replays a whole schedule, with the same errors as `Replay`.

    Args:
        training: Model, dataset and optimizer.
        schedule: Schedule of rule `update` with these options.
        update: Name of the update rule, as for `--update`.
        option_strings: Options of the rule, each as `key=value`, as for `--update_option`.
        evaluate_every: Number of updates between two evaluations; 0 = only at the end.
        stop_when: Function of an evaluation that returns True to end the run.
    """
    recorded = _Recorder(schedule)
    evaluations: list[ReplayEvaluation] = []
    has_diverged = False
    with Replay(training, schedule, update, option_strings) as replay:
        for step in replay.steps():
            recorded.add(step)
            has_diverged = not np.isfinite(step.loss)
            # The gradient of such a loss spoils the parameters for good, so later steps would say nothing.
            if has_diverged:
                break
            if step.has_updated and evaluate_every and step.version % evaluate_every == 0:
                evaluations.append(replay.evaluate())
                if stop_when is not None and stop_when(evaluations[-1]):
                    break
        if not evaluations or evaluations[-1].version != replay.version:
            evaluations.append(replay.evaluate())
        return ReplayResult(recorded.curve(), evaluations, replay.values(), has_diverged)


class _Recorder:
    """Makes a `TrainingCurve` of steps."""

    def __init__(self, schedule: Schedule):
        self._schedule = schedule
        self._open: list[ReplayedStep] = []
        self._rows: list[tuple[int, int, float, dict[str, float]]] = []

    def add(self, step: ReplayedStep) -> None:
        self._open.append(step)
        if step.has_updated or not np.isfinite(step.loss):
            # A run may diverge between two updates; then its last entry has the number of the update that is missing.
            version = step.version if step.has_updated else step.version + 1
            loss = float(np.mean([one.loss for one in self._open]))
            metrics = {name: float(np.mean([one.metrics[name] for one in self._open])) for name in step.metrics}
            self._rows.append((version, step.step_index + 1, loss, metrics))
            self._open = []

    def curve(self) -> TrainingCurve:
        versions, num_steps, losses, metrics = zip(*self._rows, strict=True)
        version = np.array(versions, np.int64)
        return TrainingCurve(
            version=version,
            secs=self._schedule.update_secs[version - 1],
            num_steps=np.array(num_steps, np.int64),
            loss=np.array(losses),
            metrics={name: np.array([one[name] for one in metrics]) for name in metrics[0]},
        )
