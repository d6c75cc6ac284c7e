"""`Replay`: trains a model along a schedule, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.errors import OptionError
from ps_trainer.simulation.replay import arithmetic_table
from ps_trainer.simulation.replay.base import Arithmetic, Entry
from ps_trainer.simulation.replay.compute_session import ComputeSession
from ps_trainer.simulation.replay.evaluator import ReplayEvaluator
from ps_trainer.simulation.replay.gradients import Values
from ps_trainer.simulation.replay.training_setup import TrainingSetup
from ps_trainer.simulation.schedule import Schedule


class ReplayedStep(NamedTuple):
    """A replayed step of a worker.

    Attributes:
        step_index: Index of the step in the schedule's steps.
        version: Value of global_step after the step.
        has_updated: Whether the step's push completed an update.
        loss: Loss of the batch at the worker's parameters.
        metrics: Means of the model's metrics over the batch.
    """

    step_index: int
    version: int
    has_updated: bool
    loss: float
    metrics: dict[str, float]


class ReplayEvaluation(NamedTuple):
    """Test metrics at one moment.

    Attributes:
        version: Value of global_step.
        secs: Virtual time of that update; 0 before the first.
        metrics: "loss" and the model's own metrics.
    """

    version: int
    secs: float
    metrics: dict[str, float]


class Replay:
    """Trains a model along a schedule. Close it, or use it in a `with` statement.

        with Replay(training, schedule, "async") as replay:
            for step in replay.steps():
                ...

    A gradient is computed when its step ends in the schedule. It uses the parameters of the version that the worker
    read, and the next batch of the worker's own input pipeline. A worker of a cluster would have the same. The rule's
    own arithmetic makes the updates, in the order of arrival.

    Departs from a cluster: one ps task, so that staleness and groups are the same for all parameters. Variables that
    the model assigns itself (moving averages) change when a step ends, not when it computes. There are no gradient
    transforms, and parameters travel as float32.

    Args:
        training: Model, dataset and optimizer.
        schedule: Schedule of rule `update` with these options.
        update: Name of the update rule, as for `--update`.
        option_strings: Options of the rule, each as `key=value`, as for `--update_option`.
        arithmetic: Arithmetic instead of the rule's own, for variants along its schedule.

    Raises:
        UnknownNameError: No rule of this name can be replayed.
        OptionError: An option is wrong, or the rule cannot train the model or follow the schedule.
        DataError: A worker's shard is smaller than a batch.
    """

    def __init__(
        self,
        training: TrainingSetup,
        schedule: Schedule,
        update: str,
        option_strings: Sequence[str] = (),
        *,
        arithmetic: type[Arithmetic] | None = None,
    ):
        if not schedule.num_updates:
            raise OptionError("the schedule has no update; simulate at least 1")
        self._training = training
        self._schedule = schedule
        self._bench = ComputeSession(training, schedule.num_workers)
        try:
            self._rule = arithmetic_table.create(update, option_strings, self._bench, schedule, arithmetic)
        except Exception:
            # The caller gets no object that it could close, and the session has threads for each worker's input.
            self._bench.close()
            raise
        self._evaluator: ReplayEvaluator | None = None

    @property
    def version(self) -> int:
        """Current value of global_step."""
        return self._rule.version

    @property
    def num_kept_versions(self) -> int:
        """Number of versions of the parameters that are in memory for later steps."""
        return self._rule.num_kept

    def steps(self) -> Iterator[ReplayedStep]:
        """Replays and yields one step after the other. Use only one iterator: a second one would begin again."""
        for index, entry in enumerate(_entries(self._schedule)):
            computed = self._rule.step(entry)
            yield ReplayedStep(index, self._rule.version, entry.is_last, computed.loss, computed.metrics)

    def values(self) -> Values:
        """Returns the current values of all model variables, as the ps tasks would have them."""
        return self._rule.center.params | self._bench.untrained_values()

    def evaluate(self) -> ReplayEvaluation:
        """Computes the current test metrics."""
        if self._evaluator is None:
            self._evaluator = ReplayEvaluator(self._training.model, self._training.dataset, self._bench.specs)
        version = self._rule.version
        secs = float(self._schedule.update_secs[version - 1]) if version else 0.0
        return ReplayEvaluation(version, secs, self._evaluator.evaluate(self.values()))

    def close(self) -> None:
        """Closes the sessions."""
        self._bench.close()
        if self._evaluator is not None:
            self._evaluator.close()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _entries(schedule: Schedule) -> Iterator[Entry]:
    steps = schedule.steps
    is_made = (steps.update >= 0) & (steps.update < schedule.num_updates)
    (pushing,) = np.nonzero(is_made)
    closing = np.full(schedule.num_updates, -1, np.int64)
    np.maximum.at(closing, steps.update[pushing], pushing)
    is_last = np.zeros(len(steps.worker), bool)
    is_last[closing[closing >= 0]] = True
    columns = (steps.worker, steps.local_step, steps.version, steps.update, steps.staleness, is_last)
    return (Entry(*row) for row in zip(*(column.tolist() for column in columns), strict=True))
