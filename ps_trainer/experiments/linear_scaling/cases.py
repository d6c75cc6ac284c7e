"""The cases that the runs of the experiment on linear scaling make."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps_trainer.experiments.harness.cases import Case, count, figures, setting
from ps_trainer.experiments.harness.claims import Measure
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.toolkit.statistics import ratio_interval, spread

BATCH_SIZE = 16
"""Examples of a worker's batch."""
NUM_TRAIN = 1437
"""Training examples of digits."""
NUM_EXAMPLES = 40 * NUM_TRAIN
"""Examples after which a run gives up."""


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


class ScaledTraining(Case):
    """Trainings with one number of workers and one learning rate, all their seeds together."""

    k = setting("k")  # number of workers
    scaling = setting("scaling")  # one of `Scaling`
    lr = setting("lr")  # learning rate of the k workers
    num_lost = count("examples", None)  # number of seeds that did not reach the target
    losses = figures("losses")  # training loss of each window, for each seed
    examples = figures("examples", missing=NUM_EXAMPLES)  # to the target, of each seed; a lower bound where missed

    @property
    def median(self) -> float:
        """Median of the examples to the target."""
        return spread(self.examples).median

    @property
    def is_lost(self) -> bool:
        """Whether most seeds do not reach the target."""
        return 2 * self.num_lost > len(self.examples)


def find(cases: Sequence[ScaledTraining], k: int, scaling: Scaling) -> ScaledTraining | None:
    """Returns the case of k workers with this learning rate; with one worker all are the same."""
    return next((one for one in cases if one.k == k and (k == 1 or one.scaling == scaling)), None)


def ratio(cases: Sequence[ScaledTraining], k: int, scaling: Scaling, of: ScaledTraining | None) -> list[Measure]:
    """Returns the examples that a case needs over those of another, with the interval over their seeds.

    There is none where one of the two was not run. Where both miss the target, neither is known to need more.
    """
    case = find(cases, k, scaling)
    if case is None or of is None or (case.is_lost and of.is_lost):
        return []
    return [Measure(f"k={k}", *ratio_interval(case.examples, of.examples))]
