"""Figures of a run of asynchronous or synchronous SGD, and the cases that group the runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from ps_trainer.experiments.harness.cases import Case, figures, mean, median, setting, text_property
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.harness.tables import LowerBound
from ps_trainer.experiments.harness.targets import TargetCase
from ps_trainer.experiments.toolkit import real_clusters, theory, virtual_training
from ps_trainer.experiments.toolkit.statistics import IntervalEstimate, mean_ratio, ratio_by_seed


class Mode(Label):
    """Update rule of the workers, with the size of its batches relative to asynchronous SGD."""

    ASYNC = "asynchronous"
    SYNC_SAME = "synchronous"  # a worker has the batch of an asynchronous worker, so an update has n
    SYNC_GLOBAL = "synchronous, same batch per update"  # a worker has one n-th of that batch


ALPHAS = (0.05, 0.3, 1.0)
EVEN, UNEVEN = 0.05, 1.0
TRAINED_ALPHAS = (EVEN, UNEVEN)

RATES_MODE = "rates"  # in place of a `Mode`, in runs that time both
REAL_RATES, REAL_TRAINING = "rates", "training"  # purposes of real runs

TARGET_LOSS = 0.55  # about the loss at a training accuracy of 90 %; the steps of clusters log no accuracy
NUM_REAL_WORKERS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThroughputSettings(Record):
    """Settings of a run in virtual time that times both modes."""

    mode: str = RATES_MODE
    n: int  # number of workers
    alpha: float  # share of the step that is exponential


@dataclasses.dataclass(frozen=True, kw_only=True)
class VirtualTrainingSettings(Record):
    """Settings of a training in virtual time. A pilot run chooses its learning rate."""

    mode: Mode
    n: int
    alpha: float | None  # None for synchronous trainings, whose updates do not depend on it
    batch_size: int  # of each worker
    max_examples: int  # after which a training gives up


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealSettings(Record):
    """Settings of a run of a real cluster; only a training has a learning rate and a batch size."""

    what: str  # `REAL_RATES` or `REAL_TRAINING`
    mode: Mode
    n: int
    alpha: float
    mean_ms: float  # mean step
    num_updates: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealTrainingSettings(RealSettings):
    """Settings of a training of a real cluster."""

    lr: float
    batch_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThroughputFigures(Record):
    """Gradients per second of both modes, and the mean staleness of the asynchronous one."""

    async_rate: float
    sync_rate: float
    staleness: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingFigures(Record):
    """Figures of a training in virtual time."""

    rate: float  # learning rate
    examples: int  # examples until the target; all examples of a training that missed the target
    secs: Mapping[str, float]  # α, as text -> virtual seconds to the target
    is_reached: bool
    losses: Sequence[float]  # mean training loss of each window of examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientRateFigures(Record):
    """Throughput of a cluster or of its simulation."""

    rate: float  # gradients per mean step


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetFigures(Record):
    """Way to the target loss of a cluster or of its simulation; both None if it was not reached."""

    examples: int | None
    secs: float | None  # from the end of the first step


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealRateFigures(real_clusters.RealFigures):
    """Throughput of a cluster and of its simulation."""

    measured: GradientRateFigures
    simulated: GradientRateFigures


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealTargetFigures(real_clusters.RealFigures):
    """Way to the target loss of a cluster and of its simulation."""

    measured: TargetFigures
    simulated: TargetFigures


class Throughput(Case):
    """Gradients per second of asynchronous and synchronous SGD in virtual time."""

    n = setting("n")
    alpha = setting("alpha")  # share of the step that is exponential
    async_rate = median("async_rate")
    sync_rate = median("sync_rate")
    staleness = mean("staleness")

    @property
    def ratio(self) -> IntervalEstimate:
        """Asynchronous over synchronous rate, geometric mean over the seeds."""
        return ratio_by_seed(self.by_seed("async_rate"), self.by_seed("sync_rate"))


class TrainedArm(TargetCase):
    """Trainings of all seeds with one mode, at the learning rate that its pilot run chose."""

    mode = setting("mode")
    n = setting("n")
    alpha = setting("alpha")  # None for synchronous trainings, whose updates do not depend on it
    rate = median("rate")  # learning rate, the same for all seeds
    is_reached = figures("is_reached")
    examples = figures("examples")  # of each seed until the target; all examples of a seed that missed the target
    # virtual seconds of each seed until the target, with these step times; or a lower bound
    secs_even = property(lambda arm: arm.secs_at(EVEN))
    secs_uneven = property(lambda arm: arm.secs_at(UNEVEN))

    def secs_at(self, alpha: float) -> list[float]:
        """Returns each seed's virtual seconds to the target with these step times."""
        return [secs[f"{alpha:g}"] for secs in self.runs.figures("secs")]

    def mean_secs(self, alpha: float) -> float | LowerBound:
        """Returns the geometric mean of `secs_at`, a lower bound where a seed missed the target."""
        mean = mean_ratio(self.secs_at(alpha), 1.0).value
        return LowerBound(mean) if self.num_lost else mean


class RealTraining(real_clusters.RealCase):
    """A training on a real cluster, and the same one in virtual time."""

    mode = setting("mode")
    n = setting("n")
    alpha = setting("alpha")
    rate = setting("lr")
    name = text_property("L2, {0.mode}, α={0.alpha:g}")

    @property
    def secs(self) -> real_clusters.Pair | None:
        """Seconds to the target in the runs whose times count; None without such runs."""
        timed = self.runs.uncontended()
        return real_clusters.pair(self.name, timed, "secs") if timed else None


def predicted_ratio(n: int, alpha: float) -> float:
    """Returns E[max] / E[X] of n shifted exponential times, 1 − α + α H_n."""
    return theory.async_over_sync((1.0 - alpha) + alpha * theory.harmonic(n), 1.0)


def real_rates(results: Results) -> dict[tuple[int, float], dict[str, real_clusters.Pair]]:
    """Returns the throughput of the runs whose times count, by n and α, and then by mode."""
    made: dict[tuple[int, float], dict[str, real_clusters.Pair]] = {}
    for (n, alpha, mode), group in results.uncontended().by("n", "alpha", "mode").items():
        made.setdefault((n, alpha), {})[mode] = real_clusters.pair(f"L2, n={n}, α={alpha:g}, {mode}", group, "rate")
    return made


def simulated_ratio(pairs: Mapping[str, real_clusters.Pair]) -> float:
    """Returns the simulated ratio of asynchronous to synchronous throughput."""
    return pairs[Mode.ASYNC].simulated / pairs[Mode.SYNC_SAME].simulated


def measured_ratio(pairs: Mapping[str, real_clusters.Pair]) -> IntervalEstimate:
    """Returns the measured ratio of asynchronous to synchronous throughput, geometric mean over the seeds."""
    return ratio_by_seed(pairs[Mode.ASYNC].measured_by_seed, pairs[Mode.SYNC_SAME].measured_by_seed)


def to_target(losses: Sequence[float | None], ends: Sequence[float], batch_size: int) -> TargetFigures:
    """Returns the examples and the seconds until the mean loss of the last examples reaches the target.

    Seconds count from the end of the first step: in that step a cluster builds its graph, so it takes longest. Both
    values are None if the loss never reaches the target.

    Args:
        losses: Loss of each step of all workers, in the order in which the steps ended; None for NaN.
        ends: Time of each end, in seconds.
        batch_size: Number of examples in a step.
    """
    window = math.ceil(virtual_training.WINDOW_EXAMPLES / batch_size)
    known = [math.inf if loss is None else loss for loss in losses]
    for end in range(window, len(known) + 1):
        if sum(known[end - window : end]) / window <= TARGET_LOSS:
            return TargetFigures(examples=end * batch_size, secs=ends[end - 1] - ends[0])
    return TargetFigures(examples=None, secs=None)
