"""The runs of the experiment on linear scaling, and the cases that they make."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from ps_trainer.experiments import harness
from ps_trainer.experiments.toolkit.target_trainings import TargetPart, TargetTraining

BATCH_SIZE = 16  # examples of a worker's batch
TARGET = 0.97
RATE = 0.05  # of one worker, which is fastest with 0.2 to 0.4, so that k times it is a useful rate for some k
NUM_TRAIN = 1437  # training examples of digits
NUM_EXAMPLES = 40 * NUM_TRAIN  # after which a run gives up
_SECS_PER_RUN = 1.0


class Scaling(harness.Label):
    """Learning rate of k workers."""

    NONE = "η"
    ROOT = "√k η"
    LINEAR = "k η"
    WARM = "k η, warm-up"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaledSettings(harness.Record):
    """Settings of a training."""

    k: int  # number of workers
    scaling: Scaling
    lr: float  # learning rate of the k workers


class ScaledTraining(harness.TargetCase):
    """Trainings with one number of workers and one learning rate, all their seeds together."""

    k, scaling, lr = harness.settings("k", "scaling", "lr")
    is_reached = property(lambda case: [examples is not None for examples in case.runs.figures("examples")])
    examples = harness.figures("examples", missing=NUM_EXAMPLES)  # to the target, of each seed; or a lower bound


class ScaledTrainings(TargetPart[ScaledSettings]):
    """Examples to a training accuracy, by the number of workers and the learning rate."""

    cases = staticmethod(harness.case_factory(ScaledTraining, "k", "scaling"))

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[harness.Run[ScaledSettings]]:
        arms = [(1, Scaling.NONE), *itertools.product((2, 8) if quick else (2, 4, 8, 16, 32), Scaling)]
        trainings = {
            f"L0-k={k}-scaling={scaling.name.lower()}": ScaledSettings(k=k, scaling=scaling, lr=RATE * factor)
            for k, scaling in arms
            for factor in [{Scaling.NONE: 1.0, Scaling.ROOT: k**0.5}.get(scaling, k)]
        }
        return harness.runs_by_key(seeds if quick else harness.unseen_seeds(seeds), trainings, _SECS_PER_RUN)

    def training_of(self, settings: ScaledSettings) -> TargetTraining:
        batch = BATCH_SIZE * settings.k
        warmup = math.ceil(NUM_TRAIN / batch) if settings.scaling == Scaling.WARM else 0  # one epoch
        setup = {"model": "mlp", "model_options": ("hidden=32",), "learning_rate": settings.lr, "warmup_steps": warmup}
        # The steps of all workers take equally long: which one is late does not matter behind a barrier.
        return TargetTraining("sync", settings.k, ["det:mean_ms=1"], NUM_EXAMPLES // batch, TARGET, BATCH_SIZE, setup)
