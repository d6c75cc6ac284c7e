"""The control of every experiment on real clusters: one worker with ps tasks trains as `--num_ps=0`, without them.

With one worker nothing is stale, so the losses of all steps have to be the same. If the same kernels run on as many
threads, the losses are the same to the last bit. If the losses differ, an experiment may measure a fault of the
machinery.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.experiments.toolkit.clusters import QUIET, Cluster, Training, flags_of
from ps_trainer.experiments.toolkit.statistics import without_warmup
from ps_trainer.metrics.step_record import StepRecord

LARGEST_DIFFERENCE = 1e-6


class Comparison(NamedTuple):
    """One training, done in one process and on a cluster of one worker."""

    local: Sequence[StepRecord]  # the steps of the one process
    cluster: Training  # training on the cluster

    @property
    def loss_difference(self) -> float:
        """Largest |difference| of a step's loss; inf if one of them made fewer steps or a loss is NaN."""
        pairs = zip(self.local, self.cluster.steps, strict=False)
        differences = [abs(a.loss - b.loss) for a, b in pairs if a.loss is not None and b.loss is not None]
        is_whole = len(differences) == len(self.local) == len(self.cluster.steps)
        return max(differences) if is_whole else math.inf

    @property
    def is_equal(self) -> bool:
        """Whether no step's loss differs by more than `LARGEST_DIFFERENCE`."""
        return self.loss_difference <= LARGEST_DIFFERENCE

    def local_ms(self) -> list[float]:
        """Returns the duration of each step in one process, without warm-up."""
        return step_ms(self.local)

    def cluster_ms(self) -> list[float]:
        """Returns the duration of each step on the cluster, without warm-up."""
        return step_ms(self.cluster.steps)


def compare(
    settings: Mapping[str, Any], folder: pathlib.Path, *, num_ps: int = 1, deadline_secs: float = 300.0
) -> Comparison:
    """Trains twice with the same settings, one after the other: in one process, and with one worker and ps tasks.

    Args:
        settings: Fields of `TrainConfig`, JSON values. Threads and report times have the defaults of `QUIET`.
        folder: Existing folder for the files of both.
        num_ps: Number of ps tasks.
        deadline_secs: Time limit of each of the two.

    Raises:
        RunError: One of them failed.
    """
    flags = flags_of({**QUIET, **settings})
    alone = Cluster(num_workers=1, num_ps=0, flags=flags, deadline_secs=deadline_secs)
    local = alone.train(folder / "local")
    cluster = Cluster(num_workers=1, num_ps=num_ps, flags=flags, deadline_secs=deadline_secs)
    return Comparison(local.steps, cluster.train(folder))


def step_ms(steps: Sequence[StepRecord]) -> list[float]:
    """Returns the duration of each step in ms, without warm-up."""
    return [1000.0 * (step.t_end - step.t_start) for step in without_warmup(steps)[0]]
