"""Settings of a training that suit a model, as the model's class declares them."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings by the names of their flags; empty or None leaves a setting as it is without the model.

    A model's class declares its `defaults`. They apply to a run whose user gives no flag about them.

    Attributes:
        optimizer: Name of the optimizer.
        optimizer_option: Options of the optimizer, `key=value`.
        optimizer_for: Optimizers of some variables, as `--optimizer_for` takes them.
        learning_rate: Learning rate.
        schedule: Name of the schedule of the learning rate.
        schedule_option: Options of the schedule, `key=value`.
        batch_size: Number of examples per step and worker.
    """

    optimizer: str | None = None
    optimizer_option: tuple[str, ...] = ()
    optimizer_for: tuple[str, ...] = ()
    learning_rate: float | None = None
    schedule: str | None = None
    schedule_option: tuple[str, ...] = ()
    batch_size: int | None = None
