"""The cases that the runs of the experiment on linear scaling make."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps_trainer.experiments.harness.cases import count, figures, setting
from ps_trainer.experiments.harness.cases import find as find_case
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.targets import TargetCase

BATCH_SIZE = 16  # examples of a worker's batch
NUM_TRAIN = 1437  # training examples of digits
NUM_EXAMPLES = 40 * NUM_TRAIN  # after which a run gives up


class Scaling(Label):
    """Learning rate of k workers."""

    NONE = "η"
    ROOT = "√k η"
    LINEAR = "k η"
    WARM = "k η, warm-up"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaledSettings(Record):
    """Settings of a training."""

    k: int  # number of workers
    scaling: Scaling
    lr: float  # learning rate of the k workers


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaledFigures(Record):
    """Figures of a training."""

    examples: int | None  # examples until the target; None = not reached
    losses: Sequence[float]  # mean training loss of each 640 examples


class ScaledTraining(TargetCase):
    """Trainings with one number of workers and one learning rate, all their seeds together."""

    k = setting("k")
    scaling = setting("scaling")
    lr = setting("lr")
    num_lost = count("examples", None)
    examples = figures("examples", missing=NUM_EXAMPLES)  # to the target, of each seed; a lower bound where missed


def find(cases: Sequence[ScaledTraining], k: int, scaling: Scaling) -> ScaledTraining | None:
    """Returns the case of k workers with this learning rate; with one worker all are the same."""
    return find_case(cases, k=k, scaling=Scaling.NONE if k == 1 else scaling)
