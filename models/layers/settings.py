"""Settings of a training that a model's class declares: its defaults, and those of a publication."""

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset(TrainingSettings):
    """Settings of a publication, which `--preset` gives to a run.

    A model's class declares its `presets`, by name. A flag that the user gives comes first.

    Attributes:
        model_option: Options of the model, `key=value`.
        gradient_transform: Transforms of the gradients, as `--gradient_transform` takes them.
        max_steps: Number of updates; None = as without the preset.
        source: The publication, with the section or table.
        differences: How the publication's training differs from the preset; empty if it does not.
    """

    model_option: tuple[str, ...] = ()
    gradient_transform: tuple[str, ...] = ()
    max_steps: int | None = None
    source: str
    differences: str = ""
