"""Trainings in virtual time that end at a training accuracy or give up: the part, its figures, curves of losses."""

from __future__ import annotations

import abc
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.base import Part
from ps_trainer.experiments.harness.plots import Axes
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Measured, Run, SettingsT
from ps_trainer.experiments.harness.targets import TargetCase, draw_course
from ps_trainer.experiments.toolkit import virtual_run, virtual_training


class TargetTraining(NamedTuple):
    """A training in virtual time up to a training accuracy."""

    update: str  # name of `--update`
    num_workers: int
    compute: Sequence[str]  # step times, as for `--compute`
    num_updates: int  # after which it gives up
    target: float  # mean accuracy of the last `virtual_training.WINDOW_EXAMPLES` examples, 0..1
    batch_size: int  # of a worker
    setup: Mapping[str, Any]  # further arguments of `virtual_training.setup_of`, without the seed


@dataclasses.dataclass(frozen=True, kw_only=True)
class CourseFigures(Record):
    """Figures of a training up to a target."""

    examples: int | None  # examples until the target; None = not reached
    losses: Sequence[float]  # mean training loss of each `virtual_training.WINDOW_EXAMPLES` examples


class TargetPart(Part[SettingsT, CourseFigures]):
    """Trainings up to a training accuracy; a subclass plans the runs and names the training of each."""

    figures_type = CourseFigures

    @abc.abstractmethod
    def training_of(self, settings: SettingsT) -> TargetTraining:
        """Returns the training of a run."""

    def execute(self, run: Run[SettingsT], folder: pathlib.Path) -> Measured[CourseFigures]:
        """Trains along the schedule of the update rule. Imports TensorFlow."""
        update, num_workers, compute, num_updates, target, batch_size, setup = self.training_of(run.settings)
        done = virtual_run.run(update, num_workers=num_workers, compute=compute, num_updates=num_updates, seed=run.seed)
        course = virtual_training.course_of(
            done.schedule, update, target=target, batch_size=batch_size, seed=run.seed, **setup
        )
        examples = None if course.target_step is None else course.target_step * batch_size
        return Measured(CourseFigures(examples=examples, losses=course.losses), course.records())


def draw_losses(axis: Axes, case: TargetCase, **style: Any) -> None:
    """Draws the training losses of a case by examples, as `draw_course` does; `style` are its arguments."""
    losses = case.course("losses")
    draw_course(axis, virtual_training.WINDOW_EXAMPLES * np.arange(1, losses.shape[1] + 1), losses, **style)
