"""Training in virtual time: real gradients along a schedule until the training accuracy is good enough."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ps_trainer import component_tables
from ps_trainer.simulation.schedule import Schedule

# Only the execution of a run imports TensorFlow; lists and reports work without it.
TARGET_ACCURACY = 0.9
WINDOW_EXAMPLES = 640


class Course(NamedTuple):
    """Result of a training in virtual time."""

    target_step: int | None  # steps of workers until the target; None = not reached
    target_version: int | None  # updates until the target; None = not reached
    num_steps: int  # number of replayed steps
    has_diverged: bool  # whether a loss that is not finite ended the training
    losses: list[float]  # mean training loss of each `WINDOW_EXAMPLES` examples, in order; the last may be of fewer
    accuracy: float  # training accuracy in the last window, 0..1

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields a record for each window of examples."""
        for index, loss in enumerate(self.losses):
            yield {"examples": WINDOW_EXAMPLES * (index + 1), "loss": loss}


def setup_of(
    model: str,
    learning_rate: float,
    *,
    dataset: str = "digits",
    dataset_options: Sequence[str] = (),
    model_options: Sequence[str] = (),
    optimizer: str = "sgd",
    optimizer_options: Sequence[str] = (),
    warmup_steps: int = 0,
    batch_size: int,
    seed: int,
) -> Any:
    """Returns a `simulation.replay` `TrainingSetup` of a registered model and dataset.

    Its learning rate is constant after `warmup_steps` updates.
    """
    from ps_trainer.simulation.replay.training_setup import TrainingSetup

    return TrainingSetup(
        model=component_tables.MODELS.create(model, model_options),
        dataset=component_tables.DATASETS.create(dataset, dataset_options, data_dir=None),
        optimizer=component_tables.OPTIMIZERS.create(optimizer, optimizer_options),
        rate_schedule=component_tables.SCHEDULES.create("constant", (f"warmup_steps={warmup_steps}",)),
        learning_rate=learning_rate,
        batch_size=batch_size,
        seed=seed,
    )


@contextmanager
def open_replay(
    schedule: Schedule, update: str, options: Sequence[str] = (), *, arithmetic: Any = None, **training: Any
) -> Iterator[Any]:
    """Returns an open `simulation.replay.replay.Replay`, which trains along a schedule.

    Args:
        schedule: Order of pulls and pushes.
        update: Name of `--update`.
        options: Values of `--update_option`.
        arithmetic: Class that computes updates instead of the rule's own.
        **training: Arguments of `setup_of`.
    """
    from ps_trainer.simulation.replay.replay import Replay  # imports TensorFlow, which lists do not need

    with Replay(setup_of(**training), schedule, update, options, arithmetic=arithmetic) as replay:
        yield replay


def follow(replay: Any, batch_size: int, *, target: float | None = TARGET_ACCURACY) -> Course:
    """Replays steps until the mean accuracy of the last `WINDOW_EXAMPLES` training examples reaches the target.

    Each gradient's own batch gives the accuracy, at the parameters that the worker read. The target can therefore be
    reached only after a whole window. Without a target the replay continues to the end of the schedule.
    """
    window = math.ceil(WINDOW_EXAMPLES / batch_size)
    recent: deque[float] = deque(maxlen=window)
    losses: list[float] = []
    sums = [0.0, 0]
    count = 0
    for step in replay.steps():
        count += 1
        if not math.isfinite(step.loss):
            return Course(None, None, count, has_diverged=True, losses=losses, accuracy=_mean(recent))
        recent.append(step.metrics["accuracy"])
        sums = [sums[0] + step.loss, sums[1] + 1]
        if sums[1] == window:
            losses.append(sums[0] / window)
            sums = [0.0, 0]
        if target is not None and len(recent) == window and _mean(recent) >= target:
            return Course(
                count,
                step.version,
                count,
                has_diverged=False,
                losses=_append_rest(losses, sums),
                accuracy=_mean(recent),
            )
    return Course(None, None, count, has_diverged=False, losses=_append_rest(losses, sums), accuracy=_mean(recent))


def course_of(
    schedule: Schedule,
    update: str,
    options: Sequence[str] = (),
    *,
    target: float | None = TARGET_ACCURACY,
    batch_size: int,
    **training: Any,
) -> Course:
    """Returns the course of a training along a schedule; arguments as for `open_replay` and `follow`."""
    with open_replay(schedule, update, options, batch_size=batch_size, **training) as replay:
        return follow(replay, batch_size, target=target)


def crossing(values: Sequence[float], losses: Sequence[float], target: float) -> float:
    """Returns the value, such as a time, at which a loss first falls to the target, interpolated between two entries.

    Args:
        values: Rising values, one for each loss.
        losses: Losses, of which the last one is at the target or below.
        target: Loss to reach.
    """
    end = next(index for index, loss in enumerate(losses) if loss <= target)
    if end == 0 or not math.isfinite(losses[end - 1]):
        return values[end]
    share = (losses[end - 1] - target) / (losses[end - 1] - losses[end])
    return values[end - 1] + share * (values[end] - values[end - 1])


def _mean(values: deque[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _append_rest(losses: list[float], sums: Sequence[float]) -> list[float]:
    return [*losses, sums[0] / sums[1]] if sums[1] else losses
