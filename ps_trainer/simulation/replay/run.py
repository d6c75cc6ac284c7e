"""`Replay`: trains a model along a schedule, step by step; `train`: all of it, with the curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.errors import OptionError
from ps_trainer.simulation.replay import table
from ps_trainer.simulation.replay.base import Arithmetic, Entry
from ps_trainer.simulation.replay.bench import Bench
from ps_trainer.simulation.replay.evaluator import Evaluator
from ps_trainer.simulation.replay.gradients import Values
from ps_trainer.simulation.replay.training import Training
from ps_trainer.simulation.schedule import Schedule


class Step(NamedTuple):
    """A step of a worker that has been replayed.

    Attributes:
        step_index: Index of the step in the schedule's steps.
        version: global_step after it.
        has_updated: whether its push has made an update.
        loss: of its batch, at the parameters that the worker had.
        metrics: means over its batch.
    """

    step_index: int
    version: int
    has_updated: bool
    loss: float
    metrics: dict[str, float]


class Evaluation(NamedTuple):
    """Test metrics at one moment.

    Attributes:
        version: global_step.
        secs: virtual time of that update; 0 before the first.
        metrics: "loss" and the model's own.
    """

    version: int
    secs: float
    metrics: dict[str, float]


class Curve(NamedTuple):
    """The training loss by update; an entry for each update, all arrays of the same length.

    Attributes:
        version: global_step after the update; int64.
        secs: virtual time of the update; float64.
        num_steps: steps of workers that ended up to then; int64.
        loss: mean of the losses of the steps that ended since the update before; float64.
        metrics: the same of the model's metrics, by name.
    """

    version: np.ndarray
    secs: np.ndarray
    num_steps: np.ndarray
    loss: np.ndarray
    metrics: dict[str, np.ndarray]


class Trained(NamedTuple):
    """What came of a replay.

    Attributes:
        curve: of the training loss.
        evaluations: in the order in which they were made, the last one of the end.
        values: of all model variables at the end.
        has_diverged: whether it was ended by a loss that is not finite, which is the curve's last.
    """

    curve: Curve
    evaluations: list[Evaluation]
    values: Values
    has_diverged: bool


class Replay:
    """Training along a schedule; close it, or use it in `with`.

        with Replay(training, schedule, "async") as replay:
            for step in replay.steps():
                ...

    A gradient is computed when its step ends in the schedule, of the parameters of the version that the worker
    read and of the next batch of its own input pipeline: the batches and the parameters that it would have in a
    cluster. The update is the rule's own arithmetic, in the order of arrival.

    Departs from a cluster: one ps task, so that staleness and groups are the same for all parameters; what the
    model assigns itself (moving averages) changes when a step ends, not when it computes; no gradient transforms,
    and parameters travel as float32.

    Args:
        training: what is trained.
        schedule: of `update` with these options.
        update: a name of `--update`.
        option_strings: values of `--update_option`.
        arithmetic: in place of the rule's own, for variants along its schedule.

    Raises:
        UnknownNameError: no such rule in virtual time.
        OptionError: a wrong option, or a model, optimizer or schedule that the rule cannot take.
        DataError: a worker's shard is smaller than a batch.
    """

    def __init__(
        self,
        training: Training,
        schedule: Schedule,
        update: str,
        option_strings: Sequence[str] = (),
        *,
        arithmetic: type[Arithmetic] | None = None,
    ):
        if not schedule.num_updates:
            raise OptionError("the schedule has no update; simulate 1 or more")
        self._training = training
        self._schedule = schedule
        self._bench = Bench(training, schedule.num_workers)
        try:
            self._rule = table.create(update, option_strings, self._bench, schedule, arithmetic)
        except Exception:
            self._bench.close()
            raise
        self._evaluator: Evaluator | None = None

    @property
    def version(self) -> int:
        """global_step at present."""
        return self._rule.version

    @property
    def num_kept_versions(self) -> int:
        """Versions of the parameters that are in memory for later steps."""
        return self._rule.num_kept

    def steps(self) -> Iterator[Step]:
        """Replays the next step each time; may be left and gone on with by the same iterator only."""
        for index, entry in enumerate(_entries(self._schedule)):
            computed = self._rule.step(entry)
            yield Step(index, self._rule.version, entry.is_last, computed.loss, computed.metrics)

    def values(self) -> Values:
        """All model variables at present, as the ps tasks would have them."""
        return self._rule.centre.params | self._bench.untrained()

    def evaluate(self) -> Evaluation:
        """Test metrics at present."""
        if self._evaluator is None:
            self._evaluator = Evaluator(self._training.model, self._training.dataset, self._bench.specs)
        version = self._rule.version
        secs = float(self._schedule.update_secs[version - 1]) if version else 0.0
        return Evaluation(version, secs, self._evaluator.evaluate(self.values()))

    def close(self) -> None:
        """Frees the sessions."""
        self._bench.close()
        if self._evaluator is not None:
            self._evaluator.close()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def train(
    training: Training,
    schedule: Schedule,
    update: str,
    option_strings: Sequence[str] = (),
    *,
    evaluate_every: int = 0,
    stop_when: Callable[[Evaluation], bool] | None = None,
) -> Trained:
    """Replays a whole schedule; arguments and errors as of `Replay`.

    Args:
        training: see `Replay`.
        schedule: see `Replay`.
        update: see `Replay`.
        option_strings: see `Replay`.
        evaluate_every: updates between two evaluations; 0 = only at the end.
        stop_when: ends the run when it says so of an evaluation.
    """
    recorded = _Recorder(schedule)
    evaluations: list[Evaluation] = []
    has_diverged = False
    with Replay(training, schedule, update, option_strings) as replay:
        for step in replay.steps():
            recorded.add(step)
            has_diverged = not np.isfinite(step.loss)
            if has_diverged:
                break
            if step.has_updated and evaluate_every and step.version % evaluate_every == 0:
                evaluations.append(replay.evaluate())
                if stop_when is not None and stop_when(evaluations[-1]):
                    break
        if not evaluations or evaluations[-1].version != replay.version:
            evaluations.append(replay.evaluate())
        return Trained(recorded.curve(), evaluations, replay.values(), has_diverged)


class _Recorder:
    """Makes a `Curve` of steps."""

    def __init__(self, schedule: Schedule):
        self._schedule = schedule
        self._open: list[Step] = []
        self._rows: list[tuple[int, int, float, dict[str, float]]] = []

    def add(self, step: Step) -> None:
        self._open.append(step)
        if step.has_updated or not np.isfinite(step.loss):
            # A diverged run may have no update after its last step: that one stands for the next.
            version = step.version if step.has_updated else step.version + 1
            loss = float(np.mean([one.loss for one in self._open]))
            metrics = {name: float(np.mean([one.metrics[name] for one in self._open])) for name in step.metrics}
            self._rows.append((version, step.step_index + 1, loss, metrics))
            self._open = []

    def curve(self) -> Curve:
        versions, num_steps, losses, metrics = zip(*self._rows, strict=True)
        version = np.array(versions, np.int64)
        return Curve(
            version=version,
            secs=self._schedule.update_secs[version - 1],
            num_steps=np.array(num_steps, np.int64),
            loss=np.array(losses),
            metrics={name: np.array([one[name] for one in metrics]) for name in metrics[0]},
        )


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
